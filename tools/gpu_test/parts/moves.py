"""Sessions that move between two servers of this machine, and into files and back."""

from gpu_test.bundle import BUNDLE, CAUSEWAY
from gpu_test.moves import CASES, all_cases


def run_moves(session):
    """Each case, and what came of it."""
    report = session.report
    report.table(what=12, found=120)
    names = [name for name in CASES if session.is_selected(name)]
    for name, well, reports, _ in all_cases(CAUSEWAY, BUNDLE / "programs", session.server.gpu, names):
        good = report.check(name, None if well else reports)
        report.row(name, reports if good else f"FAIL {reports}")
    report.list_failures()
