"""The applications of bench/apps, natively and over each transport in turns: the overhead by size."""

from gpu_test.apps.applications import APPLICATIONS, FULL, QUICK, SMALL
from gpu_test.apps.campaign import Way, remote_ways, run_campaign
from gpu_test.apps.overhead import judgements, markdown, summary
from gpu_test.bundle import BUNDLE, CAUSEWAY


def run_apps(session):
    """Runs and reports: programs that succeed and requirements that are met have passed."""
    report = session.report
    chosen = [application for application in APPLICATIONS if session.wants(application.name)]
    scale = SMALL if not session.native else QUICK if session.quick else FULL
    session.server.revive()
    ways = [Way("native")] if session.native else []
    ways += remote_ways(CAUSEWAY, session.server.address, ["tcp", "shm"])
    results = run_campaign(chosen, scale, ways, BUNDLE / "apps" / "programs", report.line)
    judge = scale is not SMALL
    report.line()
    for line in markdown(results, chosen, judge):
        report.line(line)
    report.data["apps"] = {
        "mean_overhead_percent": summary(results, chosen),
        "runs": results.runs,
        "failures": results.failures,
    }
    for run in results.runs:
        name = f"{run['app']} {run['size']}, {run['way']}, round {run['round'] + 1}"
        report.passed(name, run["seconds"])
    for failure in results.failures:
        report.failed(*failure.split(": ", 1))
    for app, way, required, measured, met in judgements(results) if judge else []:
        # A figure that could not be taken is not one that holds.
        problem = None if met else f"{measured} % instead of {required} % at most"
        report.judge(f"mean overhead of {app}, {way}", problem)
