"""How often the client waits for the server: in one training step, and from a program's start to its first
kernel.

The counts come from the file that CAUSEWAY_STATS names. What one step costs is the difference between a
program of n + 1 steps and one of n steps, so that start and end count for nothing."""

import collections
import json
import pathlib
import sys
import tempfile

from gpu_test.bundle import BUNDLE, RUNTIME
from gpu_test.commands import run

LIMIT_S = 120
STEPS = 5

# Calls that carry code to the server, which may wait for its bytes.
LOADING = ("cuLibraryLoad", "cuModuleLoad")

TRAINING = [sys.executable, pathlib.Path(__file__).resolve().parents[1] / "training_steps.py"]
FIRST_KERNEL_OF_TORCH = [sys.executable, "-c", "import torch; torch.ones(1, device='cuda')"]


class NoCountsError(Exception):
    """The program left no counts; the message says how it ended."""


def counts_of(session, command):
    """The counts that a program left behind."""
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as folder:
        path = pathlib.Path(folder) / "counts.json"
        outcome = run(session.server.command(command), LIMIT_S, RUNTIME | {"CAUSEWAY_STATS": str(path)})
        if outcome.status != 0 or not path.exists():
            raise NoCountsError(outcome.reason())
        return json.loads(path.read_text())


def waiting_calls(counts):
    """How often each entry point waited."""
    calls = counts["calls"].items()
    return collections.Counter({name: kinds["called"] for name, kinds in calls if "called" in kinds})


def named(calls):
    """The calls of a counter, the most frequent first."""
    return ", ".join(f"{name} {number}x" for name, number in calls.most_common(12)) or "none"


def count_training_step(session):
    """Waiting calls in one eager training step of the yardstick's transformer, with one wait for its end."""
    fewer = counts_of(session, [*TRAINING, STEPS])
    more = counts_of(session, [*TRAINING, STEPS + 1])
    calls = waiting_calls(more)
    calls.subtract(waiting_calls(fewer))
    local, posted = more["local"] - fewer["local"], more["posted"] - fewer["posted"]
    return more["waits"] - fewer["waits"], f"{named(+calls)}; besides {local} local and {posted} posted calls"


def count_first_kernel(session, command):
    """Waits of a program before it launches its first kernel, without those of calls that carry code."""
    counts = counts_of(session, command)
    calls = waiting_calls(counts)
    loading = sum(number for name, number in calls.items() if name.startswith(LOADING))
    before = counts["waits_before_first_launch"]
    return before - loading, f"{named(calls)} from start to end; {counts['module_bytes']} bytes of code"


def run_counts(session):
    """Counts and compares with what is required."""
    report = session.report
    first_kernel = [BUNDLE / "programs" / "first_kernel"]
    measured = [
        ("training step", 4, lambda: count_training_step(session)),
        ("first kernel, CUDA program", 5, lambda: count_first_kernel(session, first_kernel)),
        ("first kernel, PyTorch", 5, lambda: count_first_kernel(session, FIRST_KERNEL_OF_TORCH)),
    ]
    report.line("Waits for the server, without those that carry code.")
    report.table(what=28, waits=6, allowed=8, verdict=8, calls_that_waited=80)
    for title, allowed, count in measured:
        if not session.is_selected(title):
            continue
        try:
            waits, calls = count()
        except NoCountsError as reason:
            report.row(title, "-", allowed, "FAIL", reason)
            report.failed(title, reason)
            continue
        met = report.check(
            title, None if waits <= allowed else f"{waits} waits of {allowed} allowed: {calls}"
        )
        report.row(title, waits, allowed, "met" if met else "MISSED", calls)
        report.data.setdefault("counts", {})[title] = {"waits": waits, "allowed": allowed, "calls": calls}
