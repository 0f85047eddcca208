"""Kernels that communicate (`device/`): that they do so rightly, and what it costs.

The examples, random programs, litmus tests and mistakes of crates/comm/tests/device run on the GPU, natively
and through Causeway. Then `causeway bench device` measures one kind of result after the other, natively and
through Causeway: each kind's table is written when it has been measured, and one that hangs costs itself
alone. Words choose: `gpu-test.sh device examples tests litmus` takes less than four minutes, `gpu-test.sh
device cost` as well, `gpu-test.sh device latency stencil` less than one, and `gpu-test.sh device sanitizer`,
which runs some of the tests under compute-sanitizer, a few."""

import json
import secrets
import sys

from gpu_test.bundle import BUNDLE, CAUSEWAY, RUNTIME, unpack
from gpu_test.commands import Running, run
from gpu_test.parts import beside

TESTS_S, EXAMPLE_S, LANGUAGE_S = 110, 30, 60

# How a program says that what it needs is not on this machine.
NOT_HERE = 77

# Tests that are not for kernels on a server: they share memory with a card of the program's machine.
RDMA_TESTS = ["verbs::operations", "verbs::faults", "verbs::crowd", "initiator_verbs"]
NOT_ON_SERVERS = [word for name in RDMA_TESTS for word in ("--skip", name)]

# What makes teams of kernels.
LIBRARY = "libcauseway_comm.so"

# What is measured, and for how many seconds runs of it begin: ten runs of most take less.
KINDS = {
    "latency": 25,
    "flight": 30,
    "bandwidth": 20,
    "rate": 20,
    "calls": 15,
    "verbs": 25,
    "barrier": 15,
    "stencil": 25,
    "energy": 20,
}

# One run natively or through Causeway: it takes some seconds, and one that hangs is ended.
RUN_S = 40

# Runs through Causeway, which are there to be compared with the native ones.
REMOTE_RUNS = 2


def run_device(session):
    """Correctness first, each test a row of its own; then the results."""
    folder, environment = programs()
    try_examples(session, folder, environment)
    try_verbs(session, folder, environment)
    try_tests(session, folder, environment)
    try_languages(session, folder, environment)
    if session.is_selected("sanitizer"):
        beside.run_sanitizer(session, folder, environment)
    chosen = [kind for kind in KINDS if session.is_selected(f"cost {kind}")]
    for kind in chosen:
        measure(session, kind, measuring())
    session.report.list_failures("- ")


def programs():
    """The folder of the programs, and what they are told."""
    folder, mpi = unpack("programs"), unpack("mpi")
    # Kernels that wait for each other: loaded before, and in queues of the device of their own.
    return folder, {
        "LD_LIBRARY_PATH": ":".join([str(mpi), RUNTIME["LD_LIBRARY_PATH"]]),
        "CUDA_MODULE_LOADING": "EAGER",
        "CUDA_DEVICE_MAX_CONNECTIONS": "32",
    }


def measuring():
    """What `causeway bench device` is told of where its program and library are."""
    return ["--program", unpack("programs") / "causeway_device_bench", "--library", unpack("mpi") / LIBRARY]


def try_examples(session, programs, environment):
    """The programs of examples/ whose kernels communicate."""
    for way, wrap in session.paths():
        for example in ("put_signal", "moe_dispatch"):
            if session.is_selected(f"examples {example}"):
                outcome = run(wrap([str(programs / example)]), EXAMPLE_S, environment)
                problem = None if outcome.status == 0 else outcome.reason()
                session.report.check(f"{example} {way}", problem, outcome.seconds)


def try_verbs(session, programs, environment):
    """Kernels that write the requests of a network card, natively: behind a server it is refused. The card in
    software checks them, and then counts them alone, for the time of a post."""
    folders = f"{programs / 'softcard'}:{environment['LD_LIBRARY_PATH']}"
    with_card = {**environment, "LD_LIBRARY_PATH": folders}
    counting = {**with_card, "SOFTCARD_COUNT": "1"}
    runs = (([], with_card), (["-b"], with_card), (["rate"], counting), (["rate", "-b"], counting))
    for way, wrap in session.native_way():
        for words, variables in runs:
            title = " ".join(["gpu_verbs", *words, way])
            if not session.is_selected(f"verbs {title}"):
                continue
            outcome = run(wrap([str(programs / "gpu_verbs"), *words]), EXAMPLE_S, variables)
            is_right = "rate" in words or "write after a reset: success" in outcome.output
            is_well = outcome.status == 0 and is_right
            session.report.check(title, None if is_well else outcome.reason(), outcome.seconds)
            for line in outcome.output.splitlines():
                session.report.line(f"- {title}: {line.strip()}")


def try_processes(session, programs, environment):
    """A team whose ranks are processes, with the GPUs in turn, which map each other's windows."""
    for way, wrap in session.paths():
        nonce = secrets.token_hex(16)
        program = [str(programs / "device_processes"), nonce]
        ranks = [Running(wrap([*program, str(rank), "2"]), environment) for rank in range(2)]
        outcomes = [rank.wait(EXAMPLE_S) for rank in ranks]
        wrong = [outcome.reason() for outcome in outcomes if outcome.status != 0]
        name = f"two processes, {way}"
        session.report.check(name, "; ".join(wrong) or None, sum(outcome.seconds for outcome in outcomes))
        session.report.line(f"- {name}: {' / '.join(outcomes[0].output.split(chr(10))).strip(' /')}")


def try_languages(session, programs, environment):
    """Kernels of Numba and of Triton that call the operations: both need their code in the bundle."""
    library = {**environment, "PYTHONPATH": str(BUNDLE / "team")}
    for language, code in (("numba", "causeway_device.ltoir"), ("triton", "causeway_device.bc")):
        if not session.is_selected(f"languages {language}"):
            continue
        if not (programs / code).exists():
            session.report.skipped(language, f"the bundle has no {code}")
            continue
        for way, wrap in session.paths():
            program = [sys.executable, "-B", BUNDLE / "team" / f"{language}_team.py", programs / code]
            outcome = run(wrap([str(word) for word in program]), LANGUAGE_S, library)
            if outcome.status == NOT_HERE:
                session.report.skipped(f"{language} {way}", outcome.reason())
                continue
            is_well = outcome.status == 0 and outcome.output.strip().endswith("ok")
            problem = f"{outcome.reason()}\n\n```\n{outcome.errors[-3000:]}\n```"
            session.report.check(f"{language} {way}", None if is_well else problem, outcome.seconds)


def try_tests(session, programs, environment, gpus="1"):
    """The tests of crates/comm/tests/device, and the litmus tests by themselves, of ranks that have so many
    GPUs in turn."""
    environment = {**environment, "CAUSEWAY_DEVICE_GPU": "cuda", "CAUSEWAY_PROGRAMS": str(programs)}
    environment["CAUSEWAY_DEVICE_GPUS"] = gpus
    alone = [str(programs / "device_tests"), "--test-threads", "1"]
    # Tests of several GPUs are a piece, which has been chosen as a whole.
    pieces = (("tests", ["--skip", "litmus"]), ("litmus", ["litmus", "--nocapture"]))
    for name, words in pieces:
        for way, wrap in session.paths():
            if gpus == "1" and not session.is_selected(name):
                continue
            skipped = NOT_ON_SERVERS if way == "remote" else []
            outcome = run(wrap([*alone, *words, *skipped]), TESTS_S, environment)
            is_well = outcome.status == 0 and "test result: ok" in outcome.output
            problem = f"{outcome.reason()}\n\n```\n{outcome.output[-6000:]}\n{outcome.errors[-3000:]}\n```"
            title = f"{name} {way}" if gpus == "1" else f"{name} {way}, {gpus} GPUs"
            session.report.check(title, None if is_well else problem, outcome.seconds)
            for line in outcome.output.splitlines():
                if name == "litmus" and " in order, " in line:
                    session.report.line(f"- {title}: {line.strip()}")


def measure(session, kind, program):
    """One kind of results, natively and through Causeway, as tables; what must hold on a GPU as verdicts."""
    paths = [("remote", ["--on", session.server.address], REMOTE_RUNS)]
    if session.native:
        paths.insert(0, ("native", ["--native"], 3 if session.quick else 10))
    for way, where, runs in paths:
        folder = session.report.folder / "device" / f"{kind}-{way}"
        command = [CAUSEWAY, "bench", "device", "--kind", kind, *where, *program, "--out", folder]
        command += ["--runs", runs, "--time", KINDS[kind], "--timeout", RUN_S]
        # The software GPU takes hours for what a GPU does in a second.
        command += [] if session.native else ["--quick"]
        session.server.revive()
        outcome = run(command, KINDS[kind] + 2 * RUN_S)
        written = folder / "device.json"
        results = json.loads(written.read_text()) if written.exists() else {"records": [], "verdicts": []}
        problem = None if outcome.status == 0 else f"{outcome.reason()}\n\n```\n{outcome.errors[-3000:]}\n```"
        session.report.check(f"cost {kind} {way}", problem, outcome.seconds)
        session.report.data.setdefault("device", {})[f"{kind} {way}"] = results["records"]
        report_results(session.report, f"{kind}, {way}", results)
        if way == "native":
            check(session.report, results)


def report_results(report, title, results):
    """A table of medians, written at once."""
    if not results["records"]:
        return
    report.line()
    report.line(f"{title}:")
    report.table(what=16, way=26, bytes=10, count=10, median=10, low=10, high=10, runs=4)
    for record in results["records"]:
        summary = record["summary"]
        results = [f"{summary[name]:.4g}" for name in ("median", "p5", "p95")]
        case = [record[name] for name in ("what", "way", "bytes", "count")]
        report.row(*case, *results, summary["count"])


def check(report, results):
    """What must hold, as `causeway bench device` has judged it."""
    if not results["verdicts"]:
        return
    report.table(must_hold=52, required=48, found=20, verdict=7)
    for verdict in results["verdicts"]:
        is_satisfied = verdict["is_satisfied"]
        what, required, found = (verdict[name] for name in ("what", "required", "found"))
        report.row(what, required, found, "met" if is_satisfied else "MISSED")
        report.check(f"{what}, {required}", None if is_satisfied else f"found: {found}")
