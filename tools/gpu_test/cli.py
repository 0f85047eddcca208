"""Tests Causeway on a machine with a GPU, from the bundle that this file lies in: no Rust, no network.

Everything runs natively and through Causeway, with client and server on this machine. They are joined by
shared memory, or by what CAUSEWAY_VIA names, such as tcp; the parts apps and bench compare both. Each part
takes less than ten minutes; a program that hangs costs only itself. Words behind a part choose what of it is
run: a title must contain one of them.

    gpu-test.sh                               all parts, in the order of the list below
    gpu-test.sh programs errors               the programs with `errors` in their title
    gpu-test.sh model                         random programs of asynchronous work (seeds: model 5000..90000)
    gpu-test.sh python torch_graphs jax nvml  some files of tests/python, then NVML
    gpu-test.sh everyday                      doctor, --on local, a trace, watching, the wheel
    gpu-test.sh servers                       two servers: copies between devices of both
    gpu-test.sh moves                         two servers: sessions that move from one to the other
    gpu-test.sh mpi                           two ranks on one GPU: messages, by each channel, beside UCX
    gpu-test.sh device                        kernels that communicate: tests, and what it costs (cost)
    gpu-test.sh collectives                   2, 4 and 8 ranks on one GPU: calls of all ranks together
    gpu-test.sh shares                        two clients with shares of 3 and 1 of the GPU's time
    gpu-test.sh two-gpus                      two GPUs: messages, calls, copies, beside UCX and NCCL
    gpu-test.sh --quick yardstick gpt conv    fewer repetitions of some pieces of the yardstick
    gpu-test.sh --quick apps cublas cufft     overhead of some of the applications of bench/apps
    gpu-test.sh bench                         causeway bench over each module, beside what is required
    gpu-test.sh suites ddp                    two GPUs: PyTorch's own tests of torch.distributed

Results are appended to gpu-results.md, the numbers written to gpu-results.json, and what passed and failed to
gpu-results.xml (JUnit), in $OUT or beside the bundle."""

import argparse
import functools
import os
import pathlib
import signal
import sys
import time

from gpu_test.bundle import BUNDLE, CAUSEWAY, machine, now, unpack
from gpu_test.parts.apps import run_apps
from gpu_test.parts.bench import run_bench
from gpu_test.parts.collectives import run_collectives
from gpu_test.parts.counts import run_counts
from gpu_test.parts.device import run_device
from gpu_test.parts.everyday import run_everyday
from gpu_test.parts.model import run_model
from gpu_test.parts.moves import run_moves
from gpu_test.parts.mpi import run_mpi
from gpu_test.parts.nvml import run_nvml
from gpu_test.parts.programs import run_programs
from gpu_test.parts.python import run_python
from gpu_test.parts.servers import run_servers
from gpu_test.parts.shares import run_shares
from gpu_test.parts.suites import run_suites
from gpu_test.parts.two_gpus import run_two_gpus
from gpu_test.parts.yardstick import run_yardstick
from gpu_test.report import Report
from gpu_test.server import Server
from gpu_test.session import MODULES, Session

PARTS = {
    "programs": run_programs,
    "model": run_model,
    "python": run_python,
    "nvml": run_nvml,
    "everyday": run_everyday,
    "servers": run_servers,
    "moves": run_moves,
    "mpi": run_mpi,
    "device": run_device,
    "collectives": run_collectives,
    "counts": run_counts,
    "shares": run_shares,
    "yardstick": run_yardstick,
    "apps": run_apps,
    "bench": run_bench,
    "two-gpus": run_two_gpus,
    "suites": run_suites,
}


def read_parts(words):
    """The parts that were asked for, each with the words that choose from it. Raises ValueError for an
    unknown one."""
    chosen = []
    for word in words:
        if word in PARTS:
            chosen.append((word, []))
        elif chosen:
            chosen[-1][1].append(word)
        else:
            raise ValueError(f"no part is called {word}; there are {', '.join(PARTS)}")
    return chosen


def read_arguments():
    """The command line, its parts and modules understood."""
    parser = argparse.ArgumentParser(
        prog="gpu-test.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "parts",
        nargs="*",
        metavar="PART [WORD...]",
        help=f"any of: {', '.join(PARTS)} (default: $PARTS, or all)",
    )
    add(
        "--quick",
        action="store_true",
        help="fewer repetitions of the yardstick, the applications and the benchmarks",
    )
    add("--gpu", default="driver", help="the server's GPU: driver, or cpu to try this script without a GPU")
    add(
        "--modules",
        default=",".join(MODULES),
        help="measure copies, waits and the yardstick over these (default: all)",
    )
    add(
        "--limit",
        type=float,
        default=560,
        metavar="SECONDS",
        help="how long the yardstick, or the native messages of two-gpus, may take (default: 560)",
    )
    arguments = parser.parse_args()
    arguments.modules = tuple(arguments.modules.split(","))
    if not set(arguments.modules) <= set(MODULES):
        parser.error(f"--modules takes some of {', '.join(MODULES)}, not {','.join(arguments.modules)}")
    try:
        arguments.parts = read_parts(arguments.parts or os.environ.get("PARTS", "").split() or list(PARTS))
    except ValueError as error:
        parser.error(str(error))
    return arguments


def main():
    """Runs the parts; the exit status says whether anything has failed."""
    arguments = read_arguments()
    unpack("programs")
    report = Report(pathlib.Path(os.environ.get("OUT") or BUNDLE.parent))
    via = os.environ.get("CAUSEWAY_VIA") or "auto"
    where = f"Client and server on this machine; --via {via} where nothing else is said."
    command = " ".join(["gpu-test.sh", *sys.argv[1:]])
    for line in (f"# GPU test, {now()}", "", f"{machine()}. {where}", "", f"Command: `{command}`"):
        report.line(line)
    # Whoever ends this early still gets what has been measured.
    interruptions = []
    signal.signal(signal.SIGTERM, lambda *_: interruptions.append(True))
    summary = []
    with Server(CAUSEWAY, arguments.gpu, report.folder / "gpu-server.log") as server:
        for part, words in arguments.parts:
            if interruptions:
                break
            report.begin(part, words)
            before, start = report.counts(part), time.monotonic()
            session = Session(
                report,
                server,
                native=arguments.gpu == "driver",
                quick=arguments.quick,
                chosen=words,
                modules=arguments.modules,
                limit_s=arguments.limit,
                interrupted=functools.partial(bool, interruptions),
            )
            PARTS[part](session)
            passed, failed = (now - then for now, then in zip(report.counts(part), before, strict=True))
            summary.append(f"{part}: {passed} passed, {failed} failed, {time.monotonic() - start:.0f} s")
            report.save()
    report.line()
    for line in summary:
        report.line(line)
    passed, failed = report.counts()
    report.line(f"{passed} passed, {failed} failed")
    return 1 if failed else 0
