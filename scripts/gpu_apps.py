"""The applications of bench/apps, natively and through Causeway over each transport in turns: the overhead by size."""

import sys

from gpu_harness import BUNDLE, CAUSEWAY

sys.path.insert(0, str(BUNDLE / "apps"))

from applications import APPLICATIONS, FULL, QUICK, SMALL  # noqa: E402
from campaign import Way, remote_ways, run_campaign  # noqa: E402
from overhead import judgements, markdown, summary  # noqa: E402


def run_apps(session):
    """Runs and reports; returns (passed, failed): programs that succeeded and requirements that are met, and the others."""
    chosen = [application for application in APPLICATIONS if session.wants(application.name)]
    scale = SMALL if not session.native else QUICK if session.quick else FULL
    session.server.revive()
    ways = [Way("native")] if session.native else []
    ways += remote_ways(CAUSEWAY, session.server.address, ["tcp", "shm"])
    results = run_campaign(chosen, scale, ways, BUNDLE / "apps" / "programs", session.report.line)
    judge = scale is not SMALL
    session.report.line()
    for line in markdown(results, chosen, judge):
        session.report.line(line)
    session.report.data["apps"] = {
        "mean_overhead_percent": summary(results, chosen), "runs": results.runs, "failures": results.failures
    }
    met = [met for *_, met in judgements(results)] if judge else []
    # A figure that could not be taken is not one that holds.
    return len(results.runs) + met.count(True), len(results.failures) + met.count(False) + met.count(None)
