"""Two servers on this machine and one program with devices of both: copies between them, their order and
their rate.

Each server has a GPU of its own where there are two; else both have the same one, which tries everything but
the rate."""

import statistics

from gpu_test.bundle import BUNDLE, CAUSEWAY, RUNTIME
from gpu_test.commands import run

LIMIT_S = 30
PROGRAMS = ["peer_copies", "peer_copies.shared"]
RATE = ["peer_rate", "1024", "12"]

# What carries copies between the servers, by CAUSEWAY_BETWEEN_SERVERS.
PATHS = {"auto": "device by itself", "link": "shared memory"}

# Of what cudaMemcpyPeer reaches natively.
REQUIRED = 0.9


def rates(output):
    """Median GB/s to device 0 and to device 1."""
    lines = [line.split() for line in output.splitlines() if line.startswith("to_device_0")][1:]
    return [statistics.median(float(words[at]) for words in lines) / 1000 for at in (1, 3)] if lines else None


def in_words(found):
    """Two rates."""
    return f"{found[0]:.4g} and {found[1]:.4g} GB/s" if found else "-"


def run_servers(session):
    """Runs the programs: those that succeed and rates that are as required have passed."""
    report = session.report
    gpus = session.gpus()
    two_gpus = gpus > 1

    def remote(addresses, command, between):
        on = ",".join(addresses)
        # Of two servers with one GPU each program sees the first one's and the second one's.
        devices = {} if two_gpus else {"CUDA_VISIBLE_DEVICES": f"0,{max(1, gpus)}"}
        environment = RUNTIME | devices | {"CAUSEWAY_BETWEEN_SERVERS": between}
        outcome = run([CAUSEWAY, "run", "--on", on, "--", *command], LIMIT_S, environment)
        problem = None if outcome.status == 0 else outcome.reason()
        report.check(f"{command[0].name} over two servers, {PATHS[between]}", problem, outcome.seconds)
        return outcome

    with session.two_servers() as addresses:
        report.table(program=24, between_the_servers=20, outcome=40)
        for name in filter(session.is_selected, PROGRAMS):
            for between, words in PATHS.items():
                outcome = remote(addresses, [BUNDLE / "programs" / name], between)
                report.row(name, words, f"{'ok' if outcome.status == 0 else 'FAIL'} {outcome.seconds:.2f} s")
        if session.is_selected(RATE[0]) and (two_gpus or not session.native):
            rate = [BUNDLE / "programs" / RATE[0], *RATE[1:]]
            native = rates(run(rate, LIMIT_S, RUNTIME).output) if session.native else None
            report.row(RATE[0], "natively", in_words(native))
            for between, words in PATHS.items():
                found = rates(remote(addresses, rate, between).output)
                report.row(RATE[0], words, in_words(found))
                if found and native:
                    good = all(own >= REQUIRED * theirs for own, theirs in zip(found, native, strict=True))
                    problem = None if good else f"less than {REQUIRED} x cudaMemcpyPeer"
                    report.check(f"rate of copies over two servers, {words}", problem)
    report.list_failures()
    passed, _ = report.counts("servers")
    failed = [f"{case.name}: {case.failure}" for case in report.failures()]
    report.data["servers"] = {"passed": passed, "failed": failed}
