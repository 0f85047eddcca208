"""Random programs of asynchronous work (tests/model), natively and through Causeway: memory must hold what CUDA's order says."""

import os
import re

from gpu_harness import BUNDLE, run

SECONDS, QUICK_SECONDS = 100, 20
# NVIDIA's driver reads the source of a short copy too early where the legacy default stream alone gives the order: natively
# such programs go wrong, and through Causeway those with memory that the device reaches itself.
WITHOUT = "host-sources"
SUMMARY = re.compile(r"model: (\d+) programs, (\d+) wrong, (\d+) hung, (\d+) failed")


def run_model(session):
    """Runs as many programs as there is time for, each way; returns (passed, failed), by ways."""
    report = session.report
    seconds = QUICK_SECONDS if session.quick else SECONDS
    seeds = next((word for word in session.chosen if ".." in word), "0..100000000")
    jobs = max(2, min(8, (os.cpu_count() or 4) // 2))
    command = [BUNDLE / "programs" / "causeway-model", "--seeds", seeds, "--seconds", str(seconds), "--jobs", str(jobs), "--without", WITHOUT]
    passed, complaints, data = 0, [], {}
    report.table(programs_run=12, programs=10, wrong=8, hung=8, failed=8)
    for way, wrap in session.ways_by_module():
        outcome = run(wrap(command), seconds + 300)
        found = SUMMARY.search(outcome.output)
        counts = [int(count) for count in found.groups()] if found else []
        data[way] = counts
        report.row("natively" if way == "native" else way, *(counts or ["-"] * 4))
        if outcome.status == 0 and counts and counts[0] > 0:
            passed += 1
        else:
            complaints.append(f"{way}: {outcome.reason()}\n\n```\n{outcome.output[-6000:]}\n```")
    report.line()
    for complaint in complaints:
        report.line(f"- {complaint}")
    report.data["model"] = data
    return passed, len(complaints)
