"""The yardstick: cuda_bench.cu and torch_bench.py, natively and through Causeway in turns, in one table.

Machines are shared and their speed varies from minute to minute, so each piece of the yardstick runs natively and at once
after it remotely, and pieces are repeated in such pairs while time is left. A figure is the median over its pairs."""

import importlib.util
import statistics
import sys
import time

from gpu_harness import BUNDLE, run

PART_LIMIT_S = 450
PIECE_LIMIT_S = 120
PAIRS = 7  # as many as a figure needs to be trusted; more are not run

FOLDER = BUNDLE / "yardstick"
CUDA_SECTIONS = ["init", "launch", "sync", "alloc", "event", "misc", "async", "copy"]
TORCH_PARTS = ["gpt_train", "conv_train", "gpt_generate", "start", "h2d"]


class Piece:
    """A command of the yardstick that prints figures, each as `name value unit`."""

    def __init__(self, title, command, environment=None):
        self.title, self.command, self.environment = title, command, environment
        self.pairs = 0
        self.failed = 0  # how many of its commands
        self.seconds = 0.0  # how long the last pair took

    def run(self, report, figures, server, native, deadline):
        """Runs one pair."""
        start = time.monotonic()
        for way, command in (("native", self.command), ("remote", server.command(self.command))):
            if way == "native" and not native:
                continue
            limit = min(PIECE_LIMIT_S, max(1, deadline - time.monotonic()))
            outcome = run(command, limit, self.environment)
            if outcome.status != 0:
                self.failed += 1
                report.line(f"FAIL {self.title}, {way}: {outcome.reason()}")
            for line in outcome.output.splitlines():
                words = line.split()
                if len(words) == 3 and not line.startswith("#"):
                    figures.add(way, words[0], float(words[1]), words[2])
                elif line.startswith(("# FAIL", "# WRONG")):
                    report.line(f"{self.title}, {way}: {line[2:]}")
        self.pairs += 1
        self.seconds = time.monotonic() - start


class Figures:
    """All values of all figures, in the order in which they were first seen."""

    def __init__(self):
        self.units = {}
        self.values = {}

    def add(self, way, name, value, unit):
        self.units.setdefault(name, unit)
        self.values.setdefault((way, name), []).append(value)

    def column(self, way, name):
        """The text of one figure and its value; verdicts count as their worst."""
        values = self.values.get((way, name))
        if not values:
            return "-", None
        value = min(values) if self.units[name] == "bool" else statistics.median(values)
        if len(values) < 3:
            return f"{value:.6g}", value
        return f"{value:.6g} ({min(values):.5g} to {max(values):.5g}, {len(values)})", value

    def write(self, report):
        report.line("Medians; in brackets the spread and the number of runs.")
        report.line(f"{'figure':40} {'native':38} {'remote':38} {'remote/native':>13}  unit")
        for name, unit in self.units.items():
            native, native_value = self.column("native", name)
            remote, remote_value = self.column("remote", name)
            ratio = f"{remote_value / native_value:.3f}" if native_value and remote_value is not None else "-"
            report.line(f"{name:40} {native:38} {remote:38} {ratio:>13}  {unit}")


def cuda_pieces():
    environment = {"LD_LIBRARY_PATH": str(BUNDLE / "lib")}
    return [Piece(f"cuda_bench {s}", [FOLDER / "cuda_bench", "--only", s], environment) for s in CUDA_SECTIONS]


def torch_pieces(report):
    if importlib.util.find_spec("torch") is None:
        report.line("skipped: torch_bench.py, since PyTorch is not installed here")
        return []
    return [Piece(f"torch_bench {p}", [sys.executable, FOLDER / "torch_bench.py", "--only", p]) for p in TORCH_PARTS]


def run_pieces(report, server, native, pieces):
    """Every piece once, then again those that work, the ones with the fewest pairs first, while there is time."""
    deadline = time.monotonic() + PART_LIMIT_S
    figures = Figures()
    while True:
        left = deadline - time.monotonic()
        ready = [p for p in pieces if p.pairs < PAIRS and not p.failed and p.seconds * 1.2 < left]
        if not ready or left < 0:
            break
        min(ready, key=lambda p: p.pairs).run(report, figures, server, native, deadline)
    never = [piece.title for piece in pieces if piece.pairs == 0]
    if never:
        report.line(f"FAIL not run, the part's time was up: {', '.join(never)}")
    figures.write(report)
    failed = sum(piece.failed for piece in pieces)
    runs = sum(piece.pairs for piece in pieces) * (2 if native else 1)
    return runs - failed, failed + len(never)


def run_all(report, server, native):
    return run_pieces(report, server, native, cuda_pieces() + torch_pieces(report))


def run_cuda(report, server, native):
    return run_pieces(report, server, native, cuda_pieces())


def run_torch(report, server, native):
    return run_pieces(report, server, native, torch_pieces(report))
