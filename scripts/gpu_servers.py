"""Two servers on this machine and one program with devices of both: copies between them, their order and their rate.

Each server has a GPU of its own where there are two; else both have the same one, which tries everything but the rate."""

import os
import statistics

from gpu_harness import BUNDLE, CAUSEWAY, Server, run

LIMIT_S = 30
PROGRAMS = ["peer_copies", "peer_copies.shared"]
RATE = ["peer_rate", "1024", "12"]

# What carries copies between the servers, by CAUSEWAY_BETWEEN_SERVERS.
WAYS = {"auto": "device by itself", "link": "shared memory"}

# Of what cudaMemcpyPeer reaches natively.
REQUIRED = 0.9


def rates(output):
    """Median GB/s to device 0 and to device 1."""
    lines = [line.split() for line in output.splitlines() if line.startswith("to_device_0")]
    return [statistics.median(float(words[at]) for words in lines[1:]) / 1000 for at in (1, 3)] if len(lines) > 1 else None


def run_servers(session):
    """Runs the programs; returns (passed, failed): programs that pass and required rates that are met, and the others."""
    report = session.report
    two_gpus = session.gpus() > 1
    servers = [
        Server(session.server.gpu, report.folder / f"gpu-server-{number}.log", {"CUDA_VISIBLE_DEVICES": str(number)} if two_gpus else {})
        for number in range(2)
    ]
    environment = {"LD_LIBRARY_PATH": str(BUNDLE / "lib")}
    # Of two servers with one GPU each program sees the first one's and the second one's.
    environment |= {} if two_gpus else {"CUDA_VISIBLE_DEVICES": f"0,{max(1, session.gpus())}"}
    passed, complaints = 0, []

    def remote(command, between):
        on = ",".join(server.address for server in servers)
        outcome = run([CAUSEWAY, "run", "--on", on, "--", *command], LIMIT_S, environment | {"CAUSEWAY_BETWEEN_SERVERS": between})
        if outcome.status != 0:
            complaints.append(f"{command[0].name} over two servers, {WAYS[between]}: {outcome.reason()}")
        return outcome

    try:
        report.table(program=24, between_the_servers=20, outcome=40)
        for name in PROGRAMS:
            for between, words in WAYS.items():
                if session.wants(name):
                    outcome = remote([BUNDLE / "programs" / name], between)
                    passed += outcome.status == 0
                    report.row(name, words, f"{'ok' if outcome.status == 0 else 'FAIL'} {outcome.seconds:.2f} s")
        if session.wants(RATE[0]) and (two_gpus or not session.native):
            rate = [BUNDLE / "programs" / RATE[0], *RATE[1:]]
            native = rates(run(rate, LIMIT_S, {"LD_LIBRARY_PATH": str(BUNDLE / "lib")}).output) if session.native else None
            report.row(RATE[0], "natively", "-" if native is None else f"{native[0]:.4g} and {native[1]:.4g} GB/s")
            for between, words in WAYS.items():
                found = rates(remote(rate, between).output)
                cell = "-"
                if found:
                    cell = f"{found[0]:.4g} and {found[1]:.4g} GB/s"
                    good = native is None or all(own >= REQUIRED * theirs for own, theirs in zip(found, native, strict=True))
                    passed += good
                    if not good:
                        complaints.append(f"copies over two servers, {words}: less than {REQUIRED} x cudaMemcpyPeer")
                report.row(RATE[0], words, cell)
    finally:
        for server in servers:
            server.stop()
    report.line()
    for complaint in complaints:
        report.line(f"FAIL {complaint}")
    report.data["servers"] = {"passed": passed, "failed": complaints}
    return passed, len(complaints)
