"""Kernels that communicate (`device/`): that they do so rightly, and what it costs.

The examples, random programs, litmus tests and mistakes of crates/comm/tests/device run on the GPU, natively
and through Causeway. Then `causeway bench device` measures one kind of figure after the other, natively and
through Causeway: each kind's table is written when it has been measured, and one that hangs costs itself
alone. Words choose: `gpu-test.sh device examples tests litmus` takes less than four minutes, `gpu-test.sh
device cost` as well, `gpu-test.sh device latency stencil` less than one."""

import json

from gpu_test.bundle import CAUSEWAY, RUNTIME, unpack
from gpu_test.commands import run

TESTS_S, EXAMPLE_S = 110, 30

# What makes teams of kernels.
LIBRARY = "libcauseway_comm.so"

# What is measured, and for how many seconds runs of it begin: ten runs of most take less.
KINDS = {
    "latency": 25,
    "flight": 30,
    "bandwidth": 20,
    "rate": 20,
    "calls": 15,
    "barrier": 15,
    "stencil": 25,
    "energy": 20,
}

# One run natively or through Causeway: it takes some seconds, and one that hangs is ended.
RUN_S = 40

# Runs through Causeway, which are there to be compared with the native ones.
REMOTE_RUNS = 2


def run_device(session):
    """Correctness first, each test a row of its own; then the figures."""
    programs, mpi = unpack("programs"), unpack("mpi")
    # Kernels that wait for each other: loaded before, and in queues of the device of their own.
    environment = {
        "LD_LIBRARY_PATH": ":".join([str(mpi), RUNTIME["LD_LIBRARY_PATH"]]),
        "CUDA_MODULE_LOADING": "EAGER",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    }
    try_examples(session, programs, environment)
    try_tests(session, programs, environment)
    chosen = [kind for kind in KINDS if session.wants(f"cost {kind}")]
    for kind in chosen:
        measure(session, kind, measuring())
    session.report.list_failures("- ")


def measuring():
    """What `causeway bench device` is told of where its program and library are."""
    return ["--program", unpack("programs") / "causeway_device_bench", "--library", unpack("mpi") / LIBRARY]


def try_examples(session, programs, environment):
    """The programs of examples/ whose kernels communicate."""
    for way, wrap in session.ways():
        for example in ("put_signal", "moe_dispatch"):
            if session.wants(f"examples {example}"):
                outcome = run(wrap([str(programs / example)]), EXAMPLE_S, environment)
                problem = None if outcome.status == 0 else outcome.reason()
                session.report.judge(f"{example} {way}", problem, outcome.seconds)


def try_tests(session, programs, environment):
    """The tests of crates/comm/tests/device, and the litmus tests by themselves."""
    environment = {**environment, "CAUSEWAY_DEVICE_GPU": "cuda", "CAUSEWAY_PROGRAMS": str(programs)}
    alone = [str(programs / "device_tests"), "--test-threads", "1"]
    for name, words in (("tests", ["--skip", "litmus"]), ("litmus", ["litmus", "--nocapture"])):
        for way, wrap in session.ways():
            if not session.wants(name):
                continue
            outcome = run(wrap([*alone, *words]), TESTS_S, environment)
            is_well = outcome.status == 0 and "test result: ok" in outcome.output
            said = f"{outcome.reason()}\n\n```\n{outcome.output[-6000:]}\n{outcome.errors[-3000:]}\n```"
            session.report.judge(f"{name} {way}", None if is_well else said, outcome.seconds)


def measure(session, kind, program):
    """One kind of figures, natively and through Causeway, as tables; what must hold on a GPU as verdicts."""
    ways = [("remote", ["--on", session.server.address], REMOTE_RUNS)]
    if session.native:
        ways.insert(0, ("native", ["--native"], 3 if session.quick else 10))
    for way, where, runs in ways:
        folder = session.report.folder / "device" / f"{kind}-{way}"
        command = [CAUSEWAY, "bench", "device", "--kind", kind, *where, *program, "--out", folder]
        command += ["--runs", runs, "--time", KINDS[kind], "--limit", RUN_S]
        # The software GPU takes hours for what a GPU does in a second.
        command += [] if session.native else ["--quick"]
        session.server.revive()
        outcome = run(command, KINDS[kind] + 2 * RUN_S)
        written = folder / "device.json"
        results = json.loads(written.read_text()) if written.exists() else {"records": [], "verdicts": []}
        problem = None if outcome.status == 0 else f"{outcome.reason()}\n\n```\n{outcome.errors[-3000:]}\n```"
        session.report.judge(f"cost {kind} {way}", problem, outcome.seconds)
        session.report.data.setdefault("device", {})[f"{kind} {way}"] = results["records"]
        tell(session.report, f"{kind}, {way}", results)
        if way == "native":
            judge(session.report, results)


def tell(report, title, results):
    """A table of medians, written at once."""
    if not results["records"]:
        return
    report.line()
    report.line(f"{title}:")
    report.table(what=16, way=26, bytes=10, count=10, median=10, low=10, high=10, runs=4)
    for record in results["records"]:
        summary = record["summary"]
        figures = [f"{summary[name]:.4g}" for name in ("median", "p5", "p95")]
        case = [record[name] for name in ("what", "way", "bytes", "count")]
        report.row(*case, *figures, summary["count"])


def judge(report, results):
    """What must hold, as `causeway bench device` has judged it."""
    if not results["verdicts"]:
        return
    report.table(must_hold=52, wanted=48, found=20, verdict=7)
    for verdict in results["verdicts"]:
        is_met = verdict["is_met"]
        what, wanted, found = (verdict[name] for name in ("what", "wanted", "found"))
        report.row(what, wanted, found, "met" if is_met else "MISSED")
        report.judge(f"{what}, {wanted}", None if is_met else f"found: {found}")
