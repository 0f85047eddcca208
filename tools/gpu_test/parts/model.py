"""Random programs of asynchronous work (tests/model), natively and through Causeway: memory must hold what
CUDA's order says."""

import os
import re

from gpu_test.bundle import BUNDLE
from gpu_test.commands import run

SECONDS, QUICK_SECONDS = 100, 20
# NVIDIA's driver reads the source of a short copy too early where the legacy default stream alone gives the
# order: natively such programs go wrong, and through Causeway those with memory that the device reaches
# itself.
WITHOUT = "host-sources"
SUMMARY = re.compile(r"model: (\d+) programs, (\d+) wrong, (\d+) hung, (\d+) failed")


def run_model(session):
    """Runs as many programs as there is time for, each way; what passes and fails are the ways."""
    report = session.report
    seconds = QUICK_SECONDS if session.quick else SECONDS
    seeds = next((word for word in session.chosen if ".." in word), "0..100000000")
    jobs = max(2, min(8, (os.cpu_count() or 4) // 2))
    command = [BUNDLE / "programs" / "causeway-model", "--seeds", seeds, "--seconds", seconds, "--jobs", jobs]
    data = report.data["model"] = {}
    report.table(programs_run=12, programs=10, wrong=8, hung=8, failed=8)
    for way, wrap in session.paths_by_module():
        outcome = run(wrap([*map(str, command), "--without", WITHOUT]), seconds + 300)
        found = SUMMARY.search(outcome.output)
        counts = data[way] = [int(count) for count in found.groups()] if found else []
        report.row("natively" if way == "native" else way, *(counts or ["-"] * 4))
        good = outcome.status == 0 and counts and counts[0] > 0
        problem = f"{outcome.reason()}\n\n```\n{outcome.output[-6000:]}\n```"
        report.check(way, None if good else problem, outcome.seconds)
    report.list_failures("- ")
