"""NVML: nvidia-smi, natively and through Causeway. What programs ask NVML for is compared by
tests/python/nvml*.py."""

import shutil

from gpu_test.commands import run

LIMIT_S = 30

# Only what does not change from one second to the next.
QUERY = "index,name,uuid,driver_version,memory.total,compute_cap,pci.bus_id"
COMMANDS = [
    ("list of GPUs", ["nvidia-smi", "-L"]),
    ("properties", ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv"]),
    ("table", ["nvidia-smi"]),
]


def run_nvml(session):
    """Runs nvidia-smi both ways."""
    report = session.report
    if shutil.which("nvidia-smi") is None:
        report.line("skipped: there is no nvidia-smi here")
        report.skipped("nvidia-smi", "it is not here")
        return
    report.table(nvidia_smi=16, native=16, remote=16, compared=10)
    for title, command in COMMANDS:
        outcomes = {way: run(wrap(command), LIMIT_S) for way, wrap in session.paths()}
        cells = {
            way: f"{'ok' if outcome.status == 0 else 'FAIL'} {outcome.seconds:.1f} s"
            for way, outcome in outcomes.items()
        }
        same = len({outcome.output for outcome in outcomes.values()}) == 1
        # The table shows a clock, temperatures and other people's processes.
        compared = "-" if title == "table" else "same" if same else "DIFFERS"
        report.row(title, cells.get("native", "-"), cells["remote"], compared)
        wrong = [f"{way}: {outcome.reason()}" for way, outcome in outcomes.items() if outcome.status != 0]
        if not wrong and compared == "DIFFERS":
            native, remote = (outcomes[way].output.strip() for way in ("native", "remote"))
            wrong = [f"natively `{native}`, remotely `{remote}`"]
        report.check(title, "; ".join(wrong) or None, sum(outcome.seconds for outcome in outcomes.values()))
    report.list_failures("- ")
    report.data["nvml"] = {"complaints": [f"{case.name}: {case.failure}" for case in report.failures()]}
