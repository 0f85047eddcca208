"""Collective calls of 2, 4 and 8 ranks on one GPU: that they give what the MPI gives on memory of the host,
what they cost beside the same MPI where the program itself copies to pinned memory of the host, and what they
cost where each rank is in namespaces of its own.

Ranks run natively, with NVIDIA's MPS where it runs. Words behind the part choose pieces: right, cost, places.
The whole takes about five minutes."""

import contextlib
import secrets
import statistics

from gpu_test.commands import run
from gpu_test.mps import started
from gpu_test.parts.mpi import Mpi, first

RANKS = (2, 4, 8)

# What a job may take: one that hangs costs itself alone.
RIGHT_S, MEASURE_S = 60, 90

KIB, MIB = 1 << 10, 1 << 20
SIZES = [4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
CALLS = ["allreduce", "bcast", "allgather", "alltoall", "reduce"]

# Where memory of all ranks together would not fit beside each other's: a block of each rank for each rank.
MAX_BLOCK = 16 * MIB

# How many times as fast MPI_Allreduce of 64 MiB is to be.
LARGE_FACTOR = 5

# Isolated ranks beside ranks of one place: how many, at which sizes, how often in turns, and by how much the
# median may be longer.
RANKS_APART = (2, 4)
SIZES_APART = [8, KIB, *SIZES[:-1]]
TURNS, SHARE_APART, MICROSECONDS_APART = 5, 0.05, 0.5


def command(mpi, ranks, program, isolated=False):
    """So many ranks of a program with the interposer."""
    command = mpi.command(program, isolated)
    command[command.index("-n") + 1] = str(ranks)
    return command


def try_calls(session, mpi, extra, ranks):
    """Random calls and datatypes with all kinds of memory, from GPU to GPU and staged."""
    report = session.report
    for threshold, way in (("1", "from GPU to GPU"), ("1G", "staged")):
        for program, word in (
            (["collectives", f"0x{secrets.token_hex(7)}", str(4 * ranks), "3000"], "0 of "),
            (["datatypes", f"0x{secrets.token_hex(7)}", "60"], "0 of 60 rounds"),
        ):
            environment = {**mpi.environment, **extra, "CAUSEWAY_COMM_COLLECTIVE_THRESHOLD": threshold}
            outcome = run(command(mpi, ranks, program), RIGHT_S, environment)
            lines = outcome.output.splitlines()
            is_well = outcome.status == 0 and any(line.startswith(word) for line in lines)
            name = f"{program[0]}, {ranks} ranks, {way}"
            problem = None if is_well else f"{' '.join(program)}: {outcome.reason()}; {first(outcome.errors)}"
            report.check(name, problem, outcome.seconds)
            report.row(name, f"ok {outcome.seconds:.1f} s" if is_well else f"FAIL {problem}")


def results_of(output):
    """Microseconds by call and bytes, of the rows that the measuring program prints."""
    results = {}
    for line in output.splitlines():
        fields = line.split("\t")
        if len(fields) == 7 and fields[0] == "row":
            results[fields[1], int(fields[3])] = float(fields[4])
    return results


def measure(session, mpi, extra, ranks, all_sizes=None):
    """The results of so many ranks."""
    results = {}
    for call in CALLS:
        longest = MAX_BLOCK if call in ("allgather", "alltoall") else SIZES[-1]
        most = MIB if session.quick else longest
        sizes = ",".join(str(size) for size in all_sizes or SIZES if size <= most)
        program = ["causeway_mpi_bench", call, "gpu", sizes, "1000", "1", "0.3"]
        outcome = run(command(mpi, ranks, program), MEASURE_S, {**mpi.environment, **extra})
        problem = None if outcome.status == 0 else f"{outcome.reason()}; {first(outcome.errors)}"
        session.report.check(f"{call} of {ranks} ranks is measured", problem, outcome.seconds)
        results.update(results_of(outcome.output))
    return results


def check(report, ranks, results):
    """What must hold: never slower above 4 KiB, and Allreduce of 64 MiB five times as fast."""
    for (call, size), own in sorted(results.items()):
        by_host = results.get((f"{call}_by_host", size))
        if by_host is None:
            continue
        required = LARGE_FACTOR if (call, size) == ("allreduce", SIZES[-1]) else 1
        name = f"{call} of {ranks} ranks, {size} B: at least {required} x"
        is_satisfied = size <= 4 * KIB or by_host >= required * own
        report.check(name, None if is_satisfied else f"{own:.4g} us, and {by_host:.4g} by way of the host")
        report.row(f"{call}, {ranks} ranks, {size} B", f"{own:.4g}", f"{by_host:.4g}", f"{by_host / own:.2f}")


def compare_placements(session, mpi, extra, ranks):
    """What calls of so many ranks take in one place, and where each rank is in namespaces of its own."""
    report = session.report
    shared = report.folder / "mpi-shared"
    shared.mkdir(exist_ok=True)
    most = MIB if session.quick else MAX_BLOCK
    sizes = ",".join(str(size) for size in SIZES_APART if size <= most)
    # Memory of cudaMalloc is opened in one place alone.
    program = ["causeway_mpi_bench", ",".join(CALLS), "exportable", sizes, "1000", "1", "0.05"]
    found = {False: {}, True: {}}
    for turn in range(TURNS):
        for isolated, results in found.items():
            environment = {**mpi.settings(isolated, shared), **extra}
            outcome = run(command(mpi, ranks, program, isolated), MEASURE_S, environment)
            name = f"calls of {ranks} ranks, {'isolated' if isolated else 'in one place'}, turn {turn}"
            problem = None if outcome.status == 0 else f"{outcome.reason()}; {first(outcome.errors)}"
            report.check(name, problem, outcome.seconds)
            for key, value in results_of(outcome.output).items():
                results.setdefault(key, []).append(value)
    for call, size in sorted(found[False]):
        if call.endswith("_by_host") or (call, size) not in found[True]:
            continue
        near, apart = (statistics.median(found[isolated][call, size]) for isolated in (False, True))
        is_close = apart - near <= max(near * SHARE_APART, MICROSECONDS_APART)
        name = f"{call} of {ranks} ranks, {size} B: isolated within 5 % or 0.5 us"
        report.check(name, None if is_close else f"{apart:.4g} us, and {near:.4g} in one place")
        report.row(f"{call}, {ranks} ranks, {size} B", f"{near:.4g}", f"{apart:.4g}", f"{apart / near:.2f}")
    report.data.setdefault("collectives places", {})[str(ranks)] = {
        name: [[*key, values] for key, values in found[isolated].items()]
        for name, isolated in (("one place", False), ("isolated", True))
    }


def run_collectives(session):
    """Calls that give the right bytes and requirements that are met have passed."""
    report = session.report
    mpi = Mpi()
    with started() if session.native else contextlib.nullcontext(({}, None)) as (mps, why_not):
        if why_not:
            report.skipped("MPS", why_not)
        if session.is_selected("right"):
            report.table(calls=52, outcome=60)
            for ranks in RANKS:
                try_calls(session, mpi, mps, ranks)
        if session.is_selected("cost"):
            report.line()
            report.line("Microseconds of a call: ours, and by way of pinned memory of the host.")
            report.table(call=40, ours=12, by_host=12, times=8)
            for ranks in RANKS:
                check(report, ranks, measure(session, mpi, mps, ranks))
        if session.is_selected("places"):
            report.line()
            report.line("Microseconds of a call: in one place, and each rank in namespaces of its own.")
            report.table(call=40, one_place=12, isolated=12, times=8)
            for ranks in RANKS_APART:
                compare_placements(session, mpi, mps, ranks)
