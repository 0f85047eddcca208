"""The yardstick: cuda_bench.cu and torch_bench.py, natively and through Causeway in turns, in one table with
what is required.

Machines are shared and their speed varies from minute to minute, so each piece of the yardstick runs natively
and at once after it remotely, over each module, and pieces are repeated in such rounds while time is left. A
metric is the median over its rounds."""

import importlib.util
import statistics
import sys
import time

from gpu_test import requirements
from gpu_test.bundle import BUNDLE, RUNTIME
from gpu_test.commands import run

PIECE_LIMIT_S = 120

FOLDER = BUNDLE / "yardstick"

# How many rounds each piece gets: as many as its metrics need to be trusted, and for a short look. Pieces
# with no requirement run last, once; `start` takes the median of three processes by itself.
ROUNDS = {
    "launch": (7, 3),
    "sync": (7, 3),
    "alloc": (7, 3),
    "event": (7, 3),
    "misc": (3, 1),
    "init": (3, 1),
    "gpt_train": (7, 3),
    "gpt_generate": (7, 3),
    "conv_train": (7, 3),
    "start": (2, 1),
    "async": (1, 0),
    "copy": (1, 0),
    "h2d": (1, 0),
}
CUDA_SECTIONS = ["launch", "sync", "alloc", "event", "misc", "init", "async", "copy"]
TORCH_PARTS = ["gpt_train", "gpt_generate", "conv_train", "start", "h2d"]


class Piece:
    """A command of the yardstick that prints metrics, each as `name value unit`."""

    def __init__(self, name, program, command, quick, environment=None):
        self.title = f"{program} {name}"
        self.command, self.environment = command, environment
        self.required = ROUNDS[name][1 if quick else 0]
        self.rounds = 0
        self.failed = False  # whether any of its commands has
        self.seconds = 0.0  # how long the last round took

    def share(self):
        """How much of what is wanted has been run."""
        return self.rounds / self.required

    def run(self, session, metrics, deadline):
        """Runs one round."""
        start = time.monotonic()
        for way, wrap in session.paths_by_module():
            limit = min(PIECE_LIMIT_S, max(1, deadline - time.monotonic()))
            outcome = run(wrap(self.command), limit, self.environment)
            problem = None if outcome.status == 0 else outcome.reason()
            name = f"{self.title}, {way}"
            if not session.report.check(name, problem, outcome.seconds):
                self.failed = True
                session.report.line(f"FAIL {name}: {problem}")
            of_this_run = {}
            for line in outcome.output.splitlines():
                fields = line.split()
                if len(fields) == 3 and not line.startswith("#"):
                    of_this_run[fields[0]] = float(fields[1])
                    metrics.add(way, fields[0], float(fields[1]), fields[2])
                elif line.startswith(("# FAIL", "# WRONG")):
                    session.report.line(f"{self.title}, {way}: {line[2:]}")
            if "start_to_first_tensor" in of_this_run:
                without_import = of_this_run["start_to_first_tensor"] - of_this_run["start_import_torch"]
                metrics.add(way, requirements.START_WITHOUT_IMPORT, without_import, "ms")
        self.rounds += 1
        self.seconds = time.monotonic() - start


class Metrics:
    """All values of all metrics, in the order in which they were first seen."""

    def __init__(self):
        self.units = {}
        self.values = {}

    def add(self, way, name, value, unit):
        """Takes one value."""
        self.units.setdefault(name, unit)
        self.values.setdefault(name, {}).setdefault(way, []).append(value)

    def of(self, name, way):
        """The values of one metric."""
        return self.values.get(name, {}).get(way, [])

    def median(self, name, way):
        """One number for a metric; verdicts count as their worst."""
        values = self.of(name, way)
        if not values:
            return None
        return min(values) if self.units[name] == "bool" else statistics.median(values)

    def cell(self, name, way):
        """A metric with its spread, for people."""
        values, median = self.of(name, way), self.median(name, way)
        if median is None:
            return "-"
        if len(values) < 3:
            return f"{median:.6g}"
        return f"{median:.6g} ({min(values):.5g} to {max(values):.5g}, {len(values)})"

    def ratio(self, name, way):
        """Remote over native."""
        native, remote = self.median(name, "native"), self.median(name, way)
        return f"{remote / native:.3f}" if native and remote is not None else "-"


def write_requirements(report, metrics, modules):
    """A table of what must hold over each module."""
    report.line()
    report.line("What must hold. Medians; in brackets the spread and the number of runs.")
    for module in modules:
        report.table(**{"metric": 32, "native": 34, module: 34, "ratio": 7, "required": 32, "verdict": 8})
        for requirement in requirements.BY_MODULE[module]:
            name = requirement.metric
            if not metrics.of(name, module):
                continue
            verdict = requirement.verdict(metrics.of(name, "native"), metrics.of(name, module))
            native, remote = metrics.cell(name, "native"), metrics.cell(name, module)
            report.row(name, native, remote, metrics.ratio(name, module), requirement.text, verdict)
            if verdict == "unknown":
                report.skipped(f"{name}, {module}", "there is nothing to compare with")
            else:
                problem = f"{remote}, natively {native}; required is {requirement.text}"
                report.check(f"{name}, {module}", None if verdict == "met" else problem)


def write_others(report, metrics, modules):
    """A table of the metrics of which nothing is required."""
    report.line()
    report.line("Other metrics.")
    columns = dict.fromkeys(("native", *modules), 34)
    report.table(metric=34, **columns, unit=9)
    required = {requirement.metric for module in modules for requirement in requirements.BY_MODULE[module]}
    for name, unit in metrics.units.items():
        if name not in required:
            report.row(name, *(metrics.cell(name, way) for way in columns), unit)


def pieces(session):
    """All pieces that can be run here."""
    bench, torch_bench = FOLDER / "cuda_bench", FOLDER / "torch_bench.py"
    of_cuda = [
        Piece(name, "cuda_bench", [bench, "--only", name], session.quick, RUNTIME) for name in CUDA_SECTIONS
    ]
    if importlib.util.find_spec("torch") is None:
        sentence = "PyTorch is not installed here"
        session.report.line(f"skipped: torch_bench.py, since {sentence}")
        session.report.skipped("torch_bench", sentence)
        return of_cuda
    command = [sys.executable, torch_bench, "--only"]
    of_torch = [Piece(name, "torch_bench", [*command, name], session.quick) for name in TORCH_PARTS]
    return of_cuda + of_torch


def run_yardstick(session):
    """Every piece once, then again those that work, the ones furthest from their number of rounds first,
    while there is time. Commands that succeed and required metrics that are met have passed."""
    report = session.report
    required = [piece for piece in pieces(session) if session.is_selected(piece.title) and piece.required > 0]
    deadline = time.monotonic() + session.limit_s
    metrics = Metrics()
    while not session.interrupted():
        left = deadline - time.monotonic()
        unfinished = [piece for piece in required if piece.rounds < piece.required and not piece.failed]
        ready = [piece for piece in unfinished if piece.seconds * 1.2 < left]
        if not ready or left < 0:
            break
        min(ready, key=Piece.share).run(session, metrics, deadline)
    never = [piece.title for piece in required if piece.rounds == 0]
    for title in never:
        report.failed(title, "not run, the part's time was up")
    if never:
        report.line(f"FAIL not run, the part's time was up: {', '.join(never)}")
    write_requirements(report, metrics, session.modules)
    write_others(report, metrics, session.modules)
    report.data["yardstick"] = {"units": metrics.units, "values": metrics.values}
