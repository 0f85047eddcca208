"""The yardstick: cuda_bench.cu and torch_bench.py, natively and through Causeway in turns, in one table with what is required.

Machines are shared and their speed varies from minute to minute, so each piece of the yardstick runs natively and at once
after it remotely, over each module, and pieces are repeated in such rounds while time is left. A figure is the median over its
rounds."""

import importlib.util
import statistics
import sys
import time

import requirements
from gpu_harness import BUNDLE, run

PIECE_LIMIT_S = 120

FOLDER = BUNDLE / "yardstick"

# How many rounds each piece gets: as many as its figures need to be trusted, and for a short look. Pieces with no requirement
# run last, once; `start` takes the median of three processes by itself.
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
    """A command of the yardstick that prints figures, each as `name value unit`."""

    def __init__(self, name, program, command, quick, environment=None):
        self.title = f"{program} {name}"
        self.command, self.environment = command, environment
        self.wanted = ROUNDS[name][1 if quick else 0]
        self.rounds = 0
        self.failed = 0  # how many of its commands
        self.seconds = 0.0  # how long the last round took

    def share(self):
        """How much of what is wanted has been run."""
        return self.rounds / self.wanted

    def run(self, session, figures, deadline):
        """Runs one round."""
        start = time.monotonic()
        for way, wrap in ways(session):
            limit = min(PIECE_LIMIT_S, max(1, deadline - time.monotonic()))
            outcome = run(wrap(self.command), limit, self.environment)
            if outcome.status != 0:
                self.failed += 1
                session.report.line(f"FAIL {self.title}, {way}: {outcome.reason()}")
            of_this_run = {}
            for line in outcome.output.splitlines():
                words = line.split()
                if len(words) == 3 and not line.startswith("#"):
                    of_this_run[words[0]] = float(words[1])
                    figures.add(way, words[0], float(words[1]), words[2])
                elif line.startswith(("# FAIL", "# WRONG")):
                    session.report.line(f"{self.title}, {way}: {line[2:]}")
            if "start_to_first_tensor" in of_this_run:
                without_import = of_this_run["start_to_first_tensor"] - of_this_run["start_import_torch"]
                figures.add(way, requirements.START_WITHOUT_IMPORT, without_import, "ms")
        self.rounds += 1
        self.seconds = time.monotonic() - start


class Figures:
    """All values of all figures, in the order in which they were first seen."""

    def __init__(self):
        self.units = {}
        self.values = {}

    def add(self, way, name, value, unit):
        self.units.setdefault(name, unit)
        self.values.setdefault(name, {}).setdefault(way, []).append(value)

    def of(self, name, way):
        """The values of one figure."""
        return self.values.get(name, {}).get(way, [])

    def median(self, name, way):
        """One number for a figure; verdicts count as their worst."""
        values = self.of(name, way)
        if not values:
            return None
        return min(values) if self.units[name] == "bool" else statistics.median(values)

    def cell(self, name, way):
        values, median = self.of(name, way), self.median(name, way)
        if median is None:
            return "-"
        if len(values) < 3:
            return f"{median:.6g}"
        return f"{median:.6g} ({min(values):.5g} to {max(values):.5g}, {len(values)})"

    def ratio(self, name, way):
        native, remote = self.median(name, "native"), self.median(name, way)
        return f"{remote / native:.3f}" if native and remote is not None else "-"


def write_requirements(report, figures, modules):
    """A table of what must hold over each module; returns how many figures are met and missed."""
    counts = {"met": 0, "MISSED": 0}
    report.line()
    report.line("What must hold. Medians; in brackets the spread and the number of runs.")
    for module in modules:
        report.table(**{"figure": 32, "native": 34, module: 34, "ratio": 7, "required": 32, "verdict": 8})
        for requirement in requirements.BY_MODULE[module]:
            name = requirement.figure
            if not figures.of(name, module):
                continue
            verdict = requirement.verdict(figures.of(name, "native"), figures.of(name, module))
            if verdict in counts:
                counts[verdict] += 1
            cells = figures.cell(name, "native"), figures.cell(name, module), figures.ratio(name, module)
            report.row(name, *cells, requirement.text, verdict)
    return counts["met"], counts["MISSED"]


def write_others(report, figures, modules):
    report.line()
    report.line("Other figures.")
    columns = {way: 34 for way in ("native", *modules)}
    report.table(figure=34, **columns, unit=9)
    required = {requirement.figure for module in modules for requirement in requirements.BY_MODULE[module]}
    for name, unit in figures.units.items():
        if name not in required:
            report.row(name, *(figures.cell(name, way) for way in columns), unit)


def ways(session):
    """The ways in which each piece is run."""
    return session.ways_by_module()


def cuda_pieces(session):
    environment = {"LD_LIBRARY_PATH": str(BUNDLE / "lib")}
    return [Piece(s, "cuda_bench", [FOLDER / "cuda_bench", "--only", s], session.quick, environment) for s in CUDA_SECTIONS]


def torch_pieces(session):
    if importlib.util.find_spec("torch") is None:
        session.report.line("skipped: torch_bench.py, since PyTorch is not installed here")
        return []
    bench = FOLDER / "torch_bench.py"
    return [Piece(p, "torch_bench", [sys.executable, bench, "--only", p], session.quick) for p in TORCH_PARTS]


def run_yardstick(session):
    """Every piece once, then again those that work, the ones furthest from their number of rounds first, while there is time.

    Returns (passed, failed): commands that succeeded and required figures that are met, and the others."""
    pieces = [p for p in cuda_pieces(session) + torch_pieces(session) if session.wants(p.title) and p.wanted > 0]
    deadline = time.monotonic() + session.limit_s
    figures = Figures()
    while not session.interrupted():
        left = deadline - time.monotonic()
        ready = [p for p in pieces if p.rounds < p.wanted and not p.failed and p.seconds * 1.2 < left]
        if not ready or left < 0:
            break
        min(ready, key=lambda p: p.share()).run(session, figures, deadline)
    never = [piece.title for piece in pieces if piece.rounds == 0]
    if never:
        session.report.line(f"FAIL not run, the part's time was up: {', '.join(never)}")
    met, missed = write_requirements(session.report, figures, session.modules)
    write_others(session.report, figures, session.modules)
    session.report.data["yardstick"] = {"units": figures.units, "values": figures.values}
    failed = sum(piece.failed for piece in pieces)
    runs = sum(piece.rounds for piece in pieces) * len(ways(session))
    return runs - failed + met, failed + len(never) + missed
