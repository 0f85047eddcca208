"""`causeway bench` over each transport, each in turns with the native GPU and beside what plain
TCP carries, and which of the required metrics are met.

A program uses one module. Measured in turns with the other one, the threads that a copy over TCP leaves awake
for some milliseconds were in the way of the copy over shared memory behind it: 16 MiB to the device 51.7 GB/s
instead of 53.3 (2026-11-23)."""

import json
import os
import statistics

from gpu_test.bundle import BUNDLE, CAUSEWAY
from gpu_test.commands import run

# Each command is ended when it takes longer than it should; comparing plans over TCP takes some minutes.
COMMAND_LIMIT_S = 400

KIB, MIB = 1 << 10, 1 << 20
SIZES = [64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB]

# A short look compares the adaptive choice with these alone.
QUICK_PLANS = ["1x256K, 1 lane, 1 thread", "8x1M, 8 lanes, 8 threads", "8x8M, 8 lanes, 4 threads"]

# Single copies over TCP differ by a tenth, and five percent are to be told from none. The turns of the eleven
# targets of a module are balanced after every 22 repetitions.
PLAN_REPETITIONS = ["--repetitions", "176", "--budget", "5"]

# What Causeway uses for large copies over TCP, so that plain TCP is measured with the same.
TCP_LANES = 8
TCP_CHUNK = MIB


class Results:
    """What `causeway bench` wrote, by module, target, case and quantity; each module has native metrics of
    its own run."""

    def __init__(self):
        self.medians = {}

    def add(self, module, path):
        """Takes the medians of a file."""
        run = json.loads(path.read_text())
        names = ["remote" if target["place"] == "server" else "native" for target in run["targets"]]
        for case in run["cases"]:
            what = case.get("path") or case.get("wait") or case["case"]
            key = (what, case.get("bytes") or case.get("arguments"))
            for name, outcome in zip(names, case["outcomes"], strict=True):
                metrics = (outcome or {}).get("measured")
                for quantity in ("done_us", "returned_us", "gb_per_s") if metrics else ():
                    if metrics[quantity]:
                        self.medians[(module, name, *key, quantity)] = metrics[quantity]["median"]

    def get(self, module, target, what, size, quantity):
        """One median of a module's run, of the native GPU or the remote one; None where it was not measured.

        The time until the call returns is that until it is done where a call cannot return earlier."""
        value = self.medians.get((module, target, what, size, quantity))
        if value is None and quantity == "returned_us":
            return self.medians.get((module, target, what, size, "done_us"))
        return value


class Checker:
    """Rows of the table of what must hold."""

    def __init__(self, report, results, plain_tcp):
        self.report, self.results, self.plain_tcp = report, results, plain_tcp
        self.rows = []

    def row(self, metric, module, required, limit, measured, unit, at_least):
        """One row; `limit` is a number, or None where what it depends on was not measured."""
        verdict = "unknown"
        if limit is not None and measured is not None:
            verdict = "met" if (measured >= limit if at_least else measured <= limit) else "MISSED"
        shown = "-" if measured is None else f"{measured:.4g} {unit}"
        bound = required if limit is None else f"{required} = {limit:.4g} {unit}"
        self.report.row(metric, module, bound, shown, verdict)
        name = f"{metric}, {module}"
        if verdict == "unknown":
            self.report.skipped(name, "what it depends on was not measured")
        else:
            self.report.check(name, None if verdict == "met" else f"{shown}; required are {bound}")
        row = {"metric": metric, "module": module, "required": required, "limit": limit}
        self.rows.append({**row, "measured": measured, "verdict": verdict})

    def rate(self, metric, module, what, size, factor, of):
        """A rate that must be at least so many times the native one, or that of plain TCP."""
        base = (
            self.plain_tcp
            if of == "plain TCP"
            else self.results.get(module, "native", what, size, "gb_per_s")
        )
        limit = None if base is None else factor * base
        measured = self.results.get(module, "remote", what, size, "gb_per_s")
        self.row(metric, module, f">= {factor:g} x {of}", limit, measured, "GB/s", True)

    def more(self, metric, module, what, more):
        """The time of a call that must be at most so much longer than the native one."""
        native = self.results.get(module, "native", what, None, "returned_us")
        remote = self.results.get(module, "remote", what, None, "returned_us")
        limit = None if native is None else native + more
        self.row(metric, module, f"<= native + {more} us", limit, remote, "us", False)


def check_all(check, modules):
    """The required metrics that `causeway bench` can measure."""
    both = (("to the device", "to_device"), ("from the device", "from_device"))
    for module in modules:
        shm = module == "shm"
        for words, direction in both:
            for size in (size for size in SIZES if size >= 16 * MIB):
                what = f"pinned copy {words}, {size // MIB} MiB"
                required = (0.98, "native") if shm else (0.9, "plain TCP")
                check.rate(what, module, f"pinned_{direction}", size, *required)
            pageable = f"pageable_{direction}"
            check.rate(
                f"pageable copy {words}, 256 MiB", module, pageable, 256 * MIB, 2.0 if shm else 1.3, "native"
            )
            check.rate(f"pageable copy {words}, 1 MiB", module, pageable, MIB, 1.3 if shm else 0.5, "native")
            what = f"16 asynchronous pinned copies {words}, 16 MiB"
            asynchronous = f"async_{direction}"
            check.rate(
                what, module, asynchronous, 16 * MIB, *((0.98, "native") if shm else (0.85, "plain TCP"))
            )
            if shm:
                call = check.results.get(module, "remote", asynchronous, 16 * MIB, "returned_us")
                check.row(f"{what}, a call", module, "<= 0.5 us", 0.5, call, "us", False)
        call = check.results.get(module, "remote", "copy_pageable_to_device", None, "returned_us")
        check.row("8 B pageable to the device, call returns", module, "<= 1 us", 1.0, call, "us", False)
        more = 3 if shm else 20
        check.more("8 B pinned to the device", module, "copy_pinned_to_device", more)
        check.more("8 B from the device, pageable", module, "copy_pageable_from_device", more)
        check.more("8 B from the device, pinned", module, "copy_pinned_from_device", more)
        check.more("launch, synchronise", module, "launch_and_synchronize", more)


def check_pipeline(check, path):
    """Whether the adaptive choice of plans is as good as the best fixed one."""
    document = json.loads(path.read_text())
    for verdict in document.get("verdicts", []):
        module = document["targets"][verdict["adaptive"]]["via"]
        title = "adaptive against the best fixed plan"
        check.row(f"{title}, worst", module, ">= -5 %", -5.0, 100 * verdict["worst"], "%", True)
        check.row(f"{title}, on average", module, ">= 0 %", 0.0, 100 * verdict["mean"], "%", True)


def measure_plain_tcp(session):
    """GB/s that plain TCP carries over loopback with as many connections and the same chunks; None when it
    fails."""
    total = (1 if session.quick else 4) << 30
    outcome = run([BUNDLE / "yardstick" / "tcp_lanes", TCP_LANES, TCP_CHUNK, total], 120)
    if not session.report.check("plain TCP", None if outcome.status == 0 else outcome.reason()):
        session.report.line(f"FAIL plain TCP: {outcome.reason()}")
        return None
    session.report.line(f"Plain TCP: {'; '.join(outcome.output.splitlines())}")
    return float(outcome.output.split()[1])


def measure(report, arguments):
    """Runs `causeway bench` and reports what it says."""
    outcome = run([CAUSEWAY, "bench", *arguments], COMMAND_LIMIT_S, {"CAUSEWAY_CACHE_DIR": ""})
    for line in outcome.errors.splitlines():
        report.line(line)
    for line in ("", "```", outcome.output.rstrip(), "```"):
        report.line(line)
    name = f"causeway bench {' '.join(map(str, arguments))}"
    if not report.check(name, None if outcome.status == 0 else outcome.ending(), outcome.seconds):
        report.line(f"FAIL {name}: {outcome.ending()}")


def run_bench(session):
    """Measures and judges: commands that succeed and requirements that are met have passed."""
    report = session.report
    folder = report.folder / "bench"
    session.server.revive()
    common = ["--on", session.server.address]
    common += ["--native"] if session.native else []
    common += ["--quick"] if session.quick else []
    fixed = (
        [word for plan in QUICK_PLANS for word in ("--fixed", plan)] if session.quick else PLAN_REPETITIONS
    )
    sizes = ",".join(str(size) for size in SIZES)
    measurements = {
        "copy": ["copy", "--sizes", sizes, "--memory", "pageable,pinned,async,device", *common],
        "latency": ["latency", *common],
        "launch": ["launch", *common],
        "pipeline": ["pipeline", "--sizes", "64K,1M,4M,16M,64M", *fixed, *common],
    }
    chosen = {kind: arguments for kind, arguments in measurements.items() if session.is_selected(kind)}
    results, plain_tcps = Results(), []
    for module in session.modules:
        for kind, arguments in chosen.items():
            # What plain TCP carries on a shared machine has been seen to go from 41 to 29 GB/s within two
            # minutes: it is measured before and after what is compared with it.
            is_compared = (module, kind) == ("tcp", "copy")
            plain_tcps += [measure_plain_tcp(session)] if is_compared else []
            path = folder / module / f"{kind}.json"
            path.unlink(missing_ok=True)
            measure(report, [*arguments, "--via", module, "--out", folder / module])
            if path.exists() and kind != "pipeline":
                results.add(module, path)
            plain_tcps += [measure_plain_tcp(session)] if is_compared else []
    rates = [rate for rate in plain_tcps if rate is not None]
    plain_tcp = statistics.mean(rates) if rates else None
    report.line()
    report.line("What must hold, by medians.")
    report.table(metric=52, module=6, required=36, measured=14, verdict=8)
    check = Checker(report, results, plain_tcp)
    check_all(check, session.modules)
    for path in (folder / module / "pipeline.json" for module in session.modules):
        if path.exists() and "pipeline" in chosen:
            check_pipeline(check, path)
    requirements = {"plain_tcp_gb_per_s": plain_tcp, "cores": os.cpu_count(), "requirements": check.rows}
    report.data["bench"] = requirements
