"""Tests that others wrote: PyTorch's of torch.distributed, through Causeway, and natively if one fails there.

Every test runs over one of the transports, the next one over the other. They come in an order that has
nothing to do with their names, so that what fits into the time is a sample; words behind the part choose
some by name."""

import concurrent.futures
import hashlib
import itertools
import os
import sys
import time

from gpu_test.bundle import BUNDLE
from gpu_test.commands import run
from gpu_test.parts.python import result_of

PROGRAM = BUNDLE / "gpu_test" / "torch_suite.py"
TEST_LIMIT_S = 90
PART_LIMIT_S = 480
# A test starts three Python processes, each of which imports PyTorch.
CORES_OF_A_TEST = 3


def in_sample_order(names):
    """The same order each time, whatever the names are like."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())


def run_suites(session):
    """Runs as many tests as the time allows; reports those that fail through Causeway alone."""
    report = session.report
    if session.gpus() < 2:
        report.line("skipped: PyTorch's tests of torch.distributed need two GPUs.")
        return
    listed = run([sys.executable, PROGRAM, "--list"], TEST_LIMIT_S)
    if listed.status != 0:
        report.line(f"skipped: PyTorch's tests cannot be imported: {listed.reason()}")
        return
    names = in_sample_order(name for name in listed.output.split() if session.is_selected(name))
    deadline = time.monotonic() + PART_LIMIT_S
    folder = report.folder / "suites"
    folder.mkdir(exist_ok=True)

    def one(name, via):
        """The outcomes of a test by way; nothing if the time is over."""
        outcomes = {}
        for way in (via, "native"):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            command = [sys.executable, PROGRAM, name]
            command = command if way == "native" else session.server.command(command, via)
            outcomes[way] = run(command, min(TEST_LIMIT_S, left))
            if time.monotonic() >= deadline and outcomes[way].timed_out:
                del outcomes[way]
                break
            if result_of(outcomes[way]) != "FAIL":
                break
            (folder / f"{name}.{way}.txt").write_text(outcomes[way].output + outcomes[way].errors)
        return name, via, outcomes

    counts = {"ok": 0, "skipped": 0, "FAIL": 0, "fails natively, too": 0, "left": 0}
    report.table(test=64, over=8, remote=12, native=12)
    at_once = max(1, (os.cpu_count() or 1) // CORES_OF_A_TEST)
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for name, via, outcomes in pool.map(one, names, itertools.cycle(session.modules)):
            results = {way: result_of(outcome) for way, outcome in outcomes.items()}
            remote, native = results.get(via, "left"), results.get("native", "-")
            if remote == "FAIL" and native == "FAIL":
                remote = "fails natively, too"
            counts[remote] += 1
            if remote in ("ok", "skipped", "left"):
                continue
            report.row(name, via, remote, native)
            report.check(name, f"over {via}: {outcomes[via].reason()}" if remote == "FAIL" else None)
    report.line()
    report.line(f"Of {len(names)} tests of PyTorch's, {at_once} at a time: {counts}")
    report.list_failures()
