"""The applications of bench/apps, natively and over each transport in turns: the overhead by size."""

from gpu_test.apps.applications import APPLICATIONS, FULL, QUICK, SMALL
from gpu_test.apps.campaign import Way, remote_paths, run_campaign
from gpu_test.apps.overhead import checks, markdown, summary
from gpu_test.bundle import BUNDLE, CAUSEWAY


def run_apps(session):
    """Runs and reports: programs that succeed and requirements that are met have passed."""
    report = session.report
    chosen = [application for application in APPLICATIONS if session.is_selected(application.name)]
    scale = SMALL if not session.native else QUICK if session.quick else FULL
    session.server.revive()
    paths = [Way("native")] if session.native else []
    paths += remote_paths(CAUSEWAY, session.server.address, ["tcp", "shm"])
    results = run_campaign(chosen, scale, paths, BUNDLE / "apps" / "programs", report.line)
    check = scale is not SMALL
    report.line()
    for line in markdown(results, chosen, check):
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
    for app, way, required, measured, met in checks(results) if check else []:
        # A figure that could not be taken is not one that holds.
        problem = None if met else f"{measured} % instead of {required} % at most"
        report.check(f"mean overhead of {app}, {way}", problem)
