"""NVML: nvidia-smi, natively and through Causeway. What programs ask NVML for is compared by tests/python/nvml*.py."""

import shutil

from gpu_harness import run

LIMIT_S = 30

# Only what does not change from one second to the next.
QUERY = "index,name,uuid,driver_version,memory.total,compute_cap,pci.bus_id"
COMMANDS = [
    ("list of GPUs", ["nvidia-smi", "-L"]),
    ("properties", ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv"]),
]


def run_nvml(session):
    """Runs nvidia-smi both ways; returns (passed, failed)."""
    report = session.report
    if shutil.which("nvidia-smi") is None:
        report.line("skipped: there is no nvidia-smi here")
        return 0, 0
    passed, complaints = 0, []
    report.table(nvidia_smi=16, native=16, remote=16, compared=10)
    for title, command in [*COMMANDS, ("table", ["nvidia-smi"])]:
        outcomes = {way: run(wrap(command), LIMIT_S) for way, wrap in session.ways()}
        cells = {way: f"{'ok' if o.status == 0 else 'FAIL'} {o.seconds:.1f} s" for way, o in outcomes.items()}
        same = len({outcome.output for outcome in outcomes.values()}) == 1
        # The table shows a clock, temperatures and other people's processes.
        compared = "-" if title == "table" else "same" if same else "DIFFERS"
        report.row(title, cells.get("native", "-"), cells["remote"], compared)
        wrong = [f"{title}, {way}: {o.reason()}" for way, o in outcomes.items() if o.status != 0]
        if not wrong and compared == "DIFFERS":
            wrong = [f"{title}: natively `{outcomes['native'].output.strip()}`, remotely `{outcomes['remote'].output.strip()}`"]
        complaints += wrong
        passed += not wrong
    report.line()
    for complaint in complaints:
        report.line(f"- {complaint}")
    report.data["nvml"] = {"complaints": complaints}
    return passed, len(complaints)
