"""Two GPUs of one machine: messages, collective calls, copies and kernels between them, beside UCX and NCCL.

Words behind the part choose pieces, which come in this order: messages, one-server, kernels, litmus, jacobi,
calls, plugin, two-servers, copies, nccl. Each takes at most eight minutes and writes its results at once. On
a machine with one GPU, or with none (`--gpu cpu`, and CAUSEWAY_SOFTWARE_GPU_DEVICES=2), pieces that are named
can be tried."""

import os
import secrets
import sys
from concurrent.futures import ThreadPoolExecutor

from gpu_test.bundle import BUNDLE, CAUSEWAY, RUNTIME, unpack
from gpu_test.commands import run
from gpu_test.mps import started
from gpu_test.parts import beside, collectives, device
from gpu_test.parts.model import run_model
from gpu_test.parts.mpi import (
    KIB,
    LARGE,
    MIB,
    SIZES,
    Mpi,
    Results,
    at_least,
    at_most,
    check_all,
    check_choice,
    check_ratio,
    close,
    first,
    keep,
    measure,
    try_messages,
)

NATIVE = "native"
MESSAGES_S, SERVER_S, NCCL_S, COPIES_S, PLUGIN_S = 240, 90, 120, 60, 120

# What messages must reach of a copy between the GPUs: from 16 MiB on, and from 256 KiB on for memory that
# cannot be exported, which isolated ranks move by way of memory that can.
SHARE_LARGE, SHARE_BOUNCED = 0.95, 0.75
# Of NCCL's rate from 16 MiB on; up to 8 KiB calls must be faster than its.
SHARE_OF_NCCL = 0.9
SHORT = 8 * KIB
# Where calls are short enough that they may be staged.
SHORT_SIZES = [8, KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB]

# What lets NCCL go from GPU to GPU, whatever it knows of how they are joined, and do without memory of the
# host that its processes share by virtual memory management.
NCCL_BETWEEN_GPUS = {"NCCL_P2P_LEVEL": "SYS", "NCCL_CUMEM_HOST_ENABLE": "0"}


def requirements(results):
    """What must hold of messages: sentences, how many sizes were compared, and where it does not hold."""
    for memory in ("gpu", "exportable"):
        copies = (NATIVE, "same", "auto", "copy_bandwidth", memory)
        for place in ("same", "isolated"):
            for quantity in ("latency", "bandwidth", "bidirectional"):
                text = f"{place}, {memory}, {quantity}: chosen within 5 % or 0.3 us of the best"
                yield text, *check_choice(results, NATIVE, place, memory, quantity)
            rate = (NATIVE, place, "auto", "bandwidth", memory)
            large = [size for size in SIZES if size >= LARGE]
            text = f"{place}, {memory}, from 16 MiB: at least {SHARE_LARGE} of a copy from GPU to GPU"
            yield text, *check_ratio(results, "a copy", rate, copies, large, at_least(SHARE_LARGE))
            ours, theirs = ((NATIVE, place, way, "latency", memory) for way in ("auto", "none"))
            text = f"{place}, {memory}: latency below UCX's"
            yield text, *check_ratio(results, "UCX", ours, theirs, SIZES, at_most(1))
    near, apart = ((NATIVE, place, "auto", "bandwidth", "exportable") for place in ("same", "isolated"))
    text = "exportable, bandwidth: isolated within 5 % of one place"
    yield text, *check_ratio(results, "in one place", apart, near, SIZES, close("bandwidth"))
    near, apart = ((NATIVE, place, "auto", "latency", "exportable") for place in ("same", "isolated"))
    text = "exportable, latency: isolated within 5 % of one place"
    yield text, *check_ratio(results, "in one place", apart, near, SIZES, close("latency"))
    bounced = [size for size in SIZES if size >= 256 * KIB]
    rate, copies = (
        (NATIVE, place, "auto", quantity, "gpu")
        for place, quantity in (("isolated", "bandwidth"), ("same", "copy_bandwidth"))
    )
    text = f"isolated, gpu, from 256 KiB: at least {SHARE_BOUNCED} of a copy from GPU to GPU"
    yield text, *check_ratio(results, "a copy", rate, copies, bounced, at_least(SHARE_BOUNCED))


def run_messages(session, mpi):
    """Two ranks with a GPU each, by every channel and by choice, in one place and isolated."""
    results = Results()
    try_messages(session, mpi, None)
    kinds = "latency,bandwidth,bidirectional,copy"
    arguments = ["--native", "--channel", "auto,ipc,vmm,staged,none"]
    if session.native:
        seconds = int(min(MESSAGES_S, session.limit_s))
        keep(session, results, NATIVE, measure(session, mpi, NATIVE, arguments, {}, seconds, kinds))
        pairs = ["--native", "--channel", "auto,none", "--pairs", "2"]
        with started() as (mps, why_not):
            if why_not:
                session.report.skipped("two pairs", why_not)
            else:
                name = "two pairs"
                keep(session, Results(), name, measure(session, mpi, name, pairs, mps, SERVER_S, "bandwidth"))
    check_all(session.report, requirements(results))


def run_on(session, mpi, name, addresses):
    """Messages between ranks whose GPUs are those of servers."""
    arguments = ["--on", ",".join(addresses), "--via", ",".join(session.modules)]
    arguments += ["--channel", "auto,vmm,staged"]
    keep(session, Results(), name, measure(session, mpi, name, arguments, {}, SERVER_S))


def nccl_rates(session):
    """Microseconds of NCCL's calls by name and bytes; nothing where there are no two GPUs or no NCCL."""
    report = session.report
    if session.gpus() < 2:
        report.skipped("NCCL", "there are no two GPUs")
        return {}
    sizes = collectives.SIZES if not session.quick else [size for size in collectives.SIZES if size <= MIB]
    program = [sys.executable, BUNDLE / "gpu_test" / "nccl_rates.py", ",".join(map(str, [8, *sizes]))]
    outcome = run(program, NCCL_S)
    problem = None if outcome.status == 0 else f"{outcome.reason()}; {first(outcome.errors)}"
    report.check("NCCL is measured", problem, outcome.seconds)
    rows = [line.split("\t") for line in outcome.output.splitlines() if line.startswith("row\t")]
    return {(name, int(size)): float(found) for _, name, size, found in rows}


def run_plugin(session):
    """Messages by the network plugin for NCCL, between processes with a GPU and namespaces each."""
    report = session.report
    program = [sys.executable, BUNDLE / "gpu_test" / "nccl_net.py"]
    arguments = ["--plugin", BUNDLE / "nccl" / "libnccl-net-causeway.so", "--channels", "2"]
    for memory in ("host", "gpu", "plain"):
        isolated = ["--memory", memory, "--isolate", "net,ipc,uts,pid,mount"]
        outcome = run([*program, *arguments, *isolated], PLUGIN_S)
        problem = None if outcome.status == 0 else f"{outcome.reason()}; {first(outcome.errors)}"
        report.check(f"NCCL's plugin, isolated, {memory}", problem, outcome.seconds)
        for line in outcome.output.splitlines():
            report.line(f"    {line}")
    plugin = {"LD_LIBRARY_PATH": str(BUNDLE / "nccl"), "NCCL_NET_PLUGIN": "causeway"}
    direct = {**plugin, "NCCL_NET_GDR_LEVEL": "SYS", "CAUSEWAY_NCCL_SPEED": "400000"}
    rows = (("its own sockets", {}), ("the plugin", plugin), ("the plugin, GPU to GPU", direct))
    for name, settings in rows:
        run_nccl_pair(session, name, [dict(settings, NCCL_HOSTID=host) for host in ("one", "other")])


def run_nccl_pair(session, name, settings):
    """NCCL itself between two processes that it takes for those of two hosts."""
    report = session.report
    if session.gpus() < 2:
        report.skipped(f"NCCL by {name}", "there are no two GPUs")
        return
    port = str(20_000 + secrets.randbelow(10_000))
    program = [sys.executable, BUNDLE / "gpu_test" / "nccl_rank.py"]
    with ThreadPoolExecutor(len(settings)) as pool:
        ranks = [
            pool.submit(run, [*program, str(rank), port], NCCL_S, environment)
            for rank, environment in enumerate(settings)
        ]
        outcomes = [rank.result() for rank in ranks]
    failed = [outcome for outcome in outcomes if outcome.status != 0]
    problem = f"{failed[0].reason()}; {first(failed[0].errors)}" if failed else None
    report.check(f"NCCL by {name}", problem, max(outcome.seconds for outcome in outcomes))
    for line in outcomes[0].output.splitlines():
        report.line(f"    {line}")


def run_collectives(session, mpi):
    """Collective calls of two ranks with a GPU each, beside NCCL's, whose results it gives."""
    report = session.report
    report.table(calls=52, outcome=60)
    collectives.try_calls(session, mpi, {}, 2)
    run_short_calls(session, mpi)
    ours, theirs = collectives.measure(session, mpi, {}, 2), nccl_rates(session)
    report.data["two-gpus collectives"] = {
        name: [[*key, value] for key, value in found.items()]
        for name, found in (("ours", ours), ("NCCL", theirs))
    }
    report.line()
    report.line("Microseconds of a call: ours, NCCL's, and ours by way of pinned memory of the host.")
    report.table(call=30, ours=12, nccl=12, by_host=12, nccl_over_ours=16)
    for call, size in sorted(ours):
        own, nccl_rate = ours[call, size], theirs.get((call, size))
        by_host = ours.get((f"{call}_by_host", size))
        if by_host is None:
            continue
        ratio = f"{nccl_rate / own:.2f}" if nccl_rate else "-"
        nccl = f"{nccl_rate:.4g}" if nccl_rate else "-"
        report.row(f"{call}, {size} B", f"{own:.4g}", nccl, f"{by_host:.4g}", ratio)
        if not nccl_rate or SHORT < size < LARGE:
            continue
        required = 1 if size <= SHORT else SHARE_OF_NCCL
        problem = None if nccl_rate >= required * own else f"{own:.4g} us, and NCCL {nccl_rate:.4g}"
        report.check(f"{call} of two GPUs, {size} B: at least {required} x NCCL", problem)
    return theirs


def run_graphs(session, nccl):
    """Calls of libcauseway_comm in graphs, of two ranks with a GPU each: that they are right, and what they
    take beside NCCL's."""
    report = session.report
    libraries = {"LD_LIBRARY_PATH": str(unpack("mpi"))}
    seed = f"0x{secrets.token_hex(4)}"
    program = [sys.executable, BUNDLE / "team" / "python_graphs.py", "2", seed, "200"]
    outcome = run(program, COPIES_S * 2, libraries)
    is_well = outcome.status == 0 and outcome.output.endswith("ok\n")
    problem = None if is_well else f"python_graphs.py 2 {seed}: {outcome.reason()}; {outcome.errors[-2000:]}"
    report.check("random calls in graphs, two GPUs", problem, outcome.seconds)
    sizes = [8, *collectives.SIZES] if not session.quick else [8, 4096, MIB]
    program = [sys.executable, BUNDLE / "gpu_test" / "graph_rates.py", ",".join(map(str, sizes))]
    outcome = run(program, COPIES_S * 2, libraries)
    problem = None if outcome.status == 0 else f"{outcome.reason()}; {outcome.errors[-2000:]}"
    report.check("calls in graphs are measured", problem, outcome.seconds)
    report.line()
    report.line("Microseconds of a call, of twenty in a graph: ours, and NCCL's.")
    report.table(call=30, ours=12, nccl=12, nccl_over_ours=16)
    for line in outcome.output.splitlines():
        if line.startswith("row\t"):
            _, name, size, found = line.split("\t")
            nccl_us = nccl.get((f"captured {name}", int(size)))
            ratio = f"{nccl_us / float(found):.2f}" if nccl_us else "-"
            report.row(f"{name}, {size} B", found, f"{nccl_us:.4g}" if nccl_us else "-", ratio)


def run_short_calls(session, mpi):
    """Short calls from GPU to GPU, and staged: where CAUSEWAY_COMM_COLLECTIVE_THRESHOLD should lie."""
    direct, staged = (
        collectives.measure(session, mpi, {"CAUSEWAY_COMM_COLLECTIVE_THRESHOLD": threshold}, 2, SHORT_SIZES)
        for threshold in ("1", "1G")
    )
    session.report.line()
    session.report.line("Microseconds of a short call: from GPU to GPU, and staged.")
    session.report.table(call=30, direct=12, staged=12)
    for (call, size), found in sorted(direct.items()):
        if not call.endswith("_by_host") and (call, size) in staged:
            session.report.row(f"{call}, {size} B", f"{found:.4g}", f"{staged[call, size]:.4g}")


def run_nccl_through(session, addresses, name, settings=None):
    """What NCCL does through Causeway: what it says of itself goes into the report."""
    program = [sys.executable, BUNDLE / "python" / "nccl_two_gpus.py"]
    command = [CAUSEWAY, "run", "--on", ",".join(addresses), "--", *program] if addresses else program
    outcome = run(command, COPIES_S * 2, {"NCCL_DEBUG": "INFO", **(settings or {})})
    problem = None if outcome.status == 0 else outcome.reason()
    session.report.check(f"NCCL, {name}", problem, outcome.seconds)
    lines = (outcome.output + outcome.errors).splitlines()
    for line in ("", f"NCCL, {name}, {outcome.seconds:.0f} s", "", "```", *lines[-40:], "```"):
        session.report.line(line)


def run_copies(session, addresses):
    """Programs that copy between devices, and random ones, on one server and on two."""
    report = session.report
    for name in ("peer_copies", "peer_copies.shared", "peers"):
        program = BUNDLE / "programs" / name
        if program.exists():
            command = [CAUSEWAY, "run", "--on", session.server.address, "--", program]
            outcome = run(command, COPIES_S, RUNTIME)
            problem = None if outcome.status == 0 else outcome.reason()
            report.check(f"{name} on one server", problem, outcome.seconds)
    run_model(session)
    model = [BUNDLE / "programs" / "causeway-model", "--seeds", "0..1000000", "--jobs", "4"]
    model += ["--seconds", "10" if session.quick else str(COPIES_S), "--without", "host-sources"]
    command = [CAUSEWAY, "run", "--on", ",".join(addresses), "--", *model]
    outcome = run(command, COPIES_S * 5)
    lines = outcome.output.splitlines()
    report.line(f"two servers: {lines[-1] if lines else outcome.reason()}")
    problem = f"{outcome.reason()}\n\n```\n{outcome.output[-6000:]}\n```"
    report.check("model on two servers", None if outcome.status == 0 else problem, outcome.seconds)


def run_kernels(session):
    """Kernels that communicate, of ranks that have the GPUs in turn, beside NVSHMEM."""
    for kind in ("latency", "barrier", "rate", "calls", "stencil", "bandwidth", "flight", "energy"):
        device.measure(session, kind, ["--devices", "2", *device.measuring()])
        session.report.save()
    beside.run_nvshmem(session, beside.direct_results(session.report))


def run_two_gpus(session):
    """Requirements that are met and programs that are right have passed."""
    report = session.report
    if session.native and session.gpus() < 2 and not session.chosen:
        report.skipped("two GPUs", "this machine has one")
        return
    mpi = Mpi()
    # NCCL's multicast can put the GPUs of a host out of service where it is off, as it then is set.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    if session.is_selected("messages"):
        run_messages(session, mpi)
        report.save()
    if session.is_selected("one-server"):
        session.server.revive()
        run_on(session, mpi, "one server", [session.server.address])
        report.save()
    if session.is_selected("kernels"):
        run_kernels(session)
        report.save()
    if session.is_selected("litmus"):
        device.try_processes(session, *device.programs())
        device.try_tests(session, *device.programs(), "2")
        report.save()
    if session.is_selected("jacobi"):
        beside.run_jacobi(session, mpi)
        report.save()
    if session.is_selected("calls"):
        theirs = run_collectives(session, mpi)
        report.save()
        run_graphs(session, theirs)
        report.save()
    if session.is_selected("plugin") and session.native:
        run_plugin(session)
        report.save()
    with session.two_servers() as addresses:
        if session.is_selected("two-servers"):
            run_on(session, mpi, "two servers", addresses)
            report.save()
        if session.is_selected("copies"):
            run_copies(session, addresses)
            report.save()
        if session.is_selected("nccl"):
            if session.native:
                run_nccl_through(session, [], "natively")
            run_nccl_through(session, [session.server.address], "through one server")
            name = "through one server, from GPU to GPU"
            run_nccl_through(session, [session.server.address], name, NCCL_BETWEEN_GPUS)
            run_nccl_through(session, addresses, "through two servers")
    report.list_failures("- ")
    session.report_deaths()
