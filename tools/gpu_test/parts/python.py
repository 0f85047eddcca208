"""The programs of tests/python, natively and through Causeway: both must succeed and say the same.

Several run at a time. What each wrote is kept in the folder `python` beside the results."""

import concurrent.futures
import os
import re
import sys
import tempfile
import time

from gpu_test.bundle import BUNDLE
from gpu_test.commands import run

FOLDER = BUNDLE / "python"
SHARED = {"checks", "process_group"}  # what the programs import
FILE_LIMIT_S = 270
PART_LIMIT_S = 420
AT_ONCE = 4
MAX_NOTES = 4  # of one file in the report; all are in its output

SKIPPED = 77  # the exit status of a program that a package is missing for, as tests/python/checks.py has it

# The slowest first, so that none of them is left alone at the end.
SLOWEST = [
    "torch_parallel_training",
    "torch_distributed",
    "torch_compile",
    "transformers_static_cache",
    "jax_training",
    "jax_distributed",
    "nccl_two_gpus",
    "torch_sharing",
    "triton_kernels",
]

# Those whose versions are told.
PACKAGES = "torch torchvision triton jax cupy-cuda13x cupy-cuda12x numba numba-cuda transformers".split()

VALUE = re.compile(r"value (\S+) (\S+) within (\S+)")


def files(is_selected):
    """The programs to run, by name."""
    programs = (path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED)
    names = sorted(name for name in programs if is_selected(name))
    return sorted(names, key=lambda name: SLOWEST.index(name) if name in SLOWEST else len(SLOWEST))


def run_file(name, way, wrap, folder, deadline):
    """Runs one file one way. Caches of compiled kernels are its own, so that each way compiles for itself."""
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as caches:
        environment = {
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TRITON_CACHE_DIR": os.path.join(caches, "triton"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(caches, "inductor"),
            "CUPY_CACHE_DIR": os.path.join(caches, "cupy"),
        }
        limit = min(FILE_LIMIT_S, max(1, deadline - time.monotonic()))
        outcome = run(wrap([sys.executable, FOLDER / f"{name}.py"]), limit, environment)
    (folder / f"{name}.{way}.out").write_text(outcome.output)
    (folder / f"{name}.{way}.err").write_text(outcome.errors)
    return outcome


def result_of(outcome):
    """ok, skipped or FAIL."""
    if outcome.timed_out or outcome.status not in (0, SKIPPED):
        return "FAIL"
    return "skipped" if outcome.status == SKIPPED else "ok"


def compared(output):
    """The lines that two runs must agree on."""
    return [line for line in output.splitlines() if line and not line.startswith("#")]


def agree(one, other):
    """Whether two lines say the same; numbers of a value may differ as the line allows."""
    left, right = VALUE.fullmatch(one), VALUE.fullmatch(other)
    if left is None or right is None or left[1] != right[1]:
        return one == other
    a, b = float(left[2]), float(right[2])
    return abs(a - b) <= float(left[3]) * max(abs(a), abs(b))


def difference(native, remote):
    """The first line in which two outputs differ, in words; None when they agree."""
    left, right = compared(native.output), compared(remote.output)
    for one, other in zip(left, right, strict=False):
        if not agree(one, other):
            return f"natively `{one[:200]}`, remotely `{other[:200]}`"
    if len(left) != len(right):
        return f"natively {len(left)} lines, remotely {len(right)}"
    return None


def complaints_of(outcome):
    """Why a run failed: its tests' own words, or how it ended."""
    failed = [line for line in outcome.output.splitlines() if line.startswith("FAIL")]
    if failed and not outcome.timed_out and outcome.status == 1:
        return failed
    lines = [line for line in outcome.errors.splitlines() if line.strip()]
    return [*failed, f"{outcome.ending()}; {lines[-1][:300] if lines else 'nothing was printed'}"]


def notes(outcome):
    """What a run noted besides its results, without times."""
    lines = (line[2:] for line in outcome.output.splitlines() if line.startswith("# "))
    return [line for line in lines if not re.search(r" took [0-9.]+ s$", line)]


def not_supported(errors):
    """Driver functions that were asked for and are not supported, with the reason that the client gave."""
    text = (line for line in errors.splitlines() if line.startswith("causeway: ") and "not supported" in line)
    return {line.removeprefix("causeway: ") for line in text}


class Pair:
    """One file's runs, and what they came to."""

    def __init__(self, name, outcomes):
        self.name, self.outcomes = name, outcomes
        self.verdicts = {way: result_of(outcome) for way, outcome in outcomes.items()}
        both_ok = list(self.verdicts.values()) == ["ok", "ok"]
        self.difference = difference(outcomes["native"], outcomes["remote"]) if both_ok else None
        self.failed = "FAIL" in self.verdicts.values() or self.difference is not None
        # What is missing natively may be missing remotely, not the other way round.
        self.failed |= self.verdicts["remote"] == "skipped" and self.verdicts.get("native") == "ok"
        self.compared = "-" if not both_ok else "DIFFERS" if self.difference else "same"

    def cell(self, way):
        """How one way went."""
        return f"{self.verdicts[way]} {self.outcomes[way].seconds:.1f} s" if way in self.outcomes else "-"

    def remarks(self):
        """What a reader must know, a sentence each."""
        for way, outcome in self.outcomes.items():
            if self.verdicts[way] == "FAIL":
                yield from (f"{way}: {text}" for text in complaints_of(outcome))
            yield from (
                f"{way}: {line}" for line in outcome.output.splitlines() if line.startswith("skipped")
            )
        if self.difference:
            yield f"differs: {self.difference}"
        native = notes(self.outcomes["native"]) if "native" in self.outcomes else []
        others = [note for note in notes(self.outcomes["remote"]) if note not in native]
        yield from (f"remote: {note}" for note in others[:MAX_NOTES])

    def data(self):
        """What is kept of it."""
        return {
            way: {
                "verdict": self.verdicts[way],
                "seconds": round(outcome.seconds, 2),
                "output": outcome.output.splitlines(),
            }
            for way, outcome in self.outcomes.items()
        }

    def write_rows(self, report):
        """Reports whether it has passed."""
        seconds = sum(outcome.seconds for outcome in self.outcomes.values())
        report.check(self.name, "\n".join(self.remarks()) or "failed" if self.failed else None, seconds)


def list_refused(report, pairs):
    """A line for each driver function that was asked for and is not supported; returns them with who
    asked."""
    refused = {}
    for pair in pairs:
        for text in not_supported(pair.outcomes["remote"].errors):
            refused.setdefault(text, []).append(pair.name)
    report.line()
    report.line(f"Driver functions asked for and not supported: {len(refused) or 'none'}")
    report.line()
    for text, where in sorted(refused.items()):
        report.line(f"- {text} ({', '.join(where)})")
    return refused


def run_python(session):
    """Runs all files both ways."""
    report = session.report
    folder = report.folder / "python"
    folder.mkdir(exist_ok=True)
    deadline = time.monotonic() + PART_LIMIT_S
    names = files(session.is_selected)
    python = f"Python {sys.version.split()[0]}; {versions()}"
    report.line(f"Each file runs for {FILE_LIMIT_S} s at most, {AT_ONCE} at a time. {python}")
    report.table(file=28, native=16, remote=16, compared=10)
    pairs = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        paths = session.paths()
        started = {
            name: {way: pool.submit(run_file, name, way, wrap, folder, deadline) for way, wrap in paths}
            for name in names
        }
        for name in names:
            pair = Pair(name, {way: future.result() for way, future in started[name].items()})
            report.row(name, pair.cell("native"), pair.cell("remote"), pair.compared)
            pair.write_rows(report)
            pairs.append(pair)
    report.line()
    for pair in pairs:
        for remark in pair.remarks():
            report.line(f"- {pair.name}, {remark}")
    refused = list_refused(report, pairs)
    session.report_deaths()
    report.data["python"] = {"files": {pair.name: pair.data() for pair in pairs}, "not_supported": refused}


def versions():
    """The versions of the packages that matter here."""
    program = (
        "import importlib.metadata as m\n"
        f"for n in {PACKAGES!r}:\n"
        "    try: print(n, m.version(n))\n"
        "    except m.PackageNotFoundError: pass\n"
    )
    return ", ".join(run([sys.executable, "-c", program], 60).output.splitlines())
