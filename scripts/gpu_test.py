#!/usr/bin/env python3
"""Tests Causeway on a machine with a GPU, from the bundle that this file lies in: no Rust, no network.

Everything runs natively and through Causeway, with client and server on this machine. They are joined by shared memory, or by what
CAUSEWAY_VIA names, such as tcp; the parts apps and bench compare both. Each part takes less than ten minutes; a program that hangs
costs only itself. Words behind a part choose what of it is run: a title must contain one of them.

    gpu-test.sh                                    all parts: programs, model, python, nvml, servers, counts, yardstick, apps, bench
    gpu-test.sh programs errors                    the programs with `errors` in their title
    gpu-test.sh model                              random programs of asynchronous work; model 5000..90000 for these seeds
    gpu-test.sh python torch_graphs jax nvml       some files of tests/python, then NVML
    gpu-test.sh servers                            two servers: copies between devices of both
    gpu-test.sh --quick yardstick gpt conv         fewer repetitions of some pieces of the yardstick
    gpu-test.sh --quick apps cublas cufft          overhead of some of the applications of bench/apps
    gpu-test.sh bench                              causeway bench over each module, beside plain TCP and what is required

Results are appended to gpu-results.md, and the numbers written to gpu-results.json, in $OUT or beside the bundle."""

import argparse
import functools
import os
import pathlib
import signal
import sys
import time

import gpu_apps
import gpu_bench
import gpu_counts
import gpu_model
import gpu_nvml
import gpu_programs
import gpu_python
import gpu_servers
import yardstick
from gpu_harness import BUNDLE, MODULES, Report, Server, Session, machine, now, unpack_programs

PARTS = {
    "programs": gpu_programs.run_programs,
    "model": gpu_model.run_model,
    "python": gpu_python.run_python,
    "nvml": gpu_nvml.run_nvml,
    "servers": gpu_servers.run_servers,
    "counts": gpu_counts.run_counts,
    "yardstick": yardstick.run_yardstick,
    "apps": gpu_apps.run_apps,
    "bench": gpu_bench.run_bench,
}


def read_parts(parser, words):
    """The parts that were asked for, each with the words that choose from it."""
    chosen = []
    for word in words:
        if word in PARTS:
            chosen.append((word, []))
        elif chosen:
            chosen[-1][1].append(word)
        else:
            parser.error(f"no part is called {word}; there are {', '.join(PARTS)}")
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART [WORD...]", help=f"any of: {', '.join(PARTS)} (default: $PARTS, or all)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions of the yardstick, the applications and the benchmarks")
    parser.add_argument("--gpu", default="driver", help="the server's GPU: driver, or cpu to try this script without a GPU")
    parser.add_argument("--modules", default=",".join(MODULES), help="measure copies, waits and the yardstick over these (default: all)")
    parser.add_argument("--limit", type=float, default=560, metavar="SECONDS", help="how long the yardstick may take (default: 560)")
    arguments = parser.parse_args()
    modules = tuple(arguments.modules.split(","))
    if not set(modules) <= set(MODULES):
        parser.error(f"--modules takes some of {', '.join(MODULES)}, not {arguments.modules}")
    chosen = read_parts(parser, arguments.parts or os.environ.get("PARTS", "").split() or list(PARTS))

    unpack_programs()
    report = Report(pathlib.Path(os.environ.get("OUT") or BUNDLE.parent))
    report.line(f"# GPU test, {now()}")
    report.line()
    via = os.environ.get("CAUSEWAY_VIA") or "auto"
    report.line(f"{machine()}. Client and server on this machine; --via {via} where nothing else is said.")
    report.line()
    report.line(f"Command: `{' '.join(['gpu-test.sh', *sys.argv[1:]])}`")
    # Whoever ends this early still gets what has been measured.
    interruptions = []
    signal.signal(signal.SIGTERM, lambda *_: interruptions.append(True))
    server = Server(arguments.gpu, report.folder / "gpu-server.log")
    passed = failed = 0
    summary = []
    try:
        for part, words in chosen:
            if interruptions:
                break
            report.line()
            report.line(f"## {' '.join([part, *words])}")
            report.line()
            start = time.monotonic()
            interrupted = functools.partial(bool, interruptions)
            session = Session(
                report, server, arguments.gpu == "driver", arguments.quick, words, modules, arguments.limit, interrupted
            )
            part_passed, part_failed = PARTS[part](session)
            passed, failed = passed + part_passed, failed + part_failed
            summary.append(f"{part}: {part_passed} passed, {part_failed} failed, {time.monotonic() - start:.0f} s")
            report.save()
    finally:
        server.stop()
    report.line()
    for line in summary:
        report.line(line)
    report.line(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
