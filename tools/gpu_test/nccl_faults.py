"""Faults under NCCL: `nccl_faults.py CAUSEWAY [FAULT...]`, two ranks of all_reduce on the GPUs of one server.

Each fault comes while both ranks repeat an all_reduce. Printed are the time until both have ended, their exit
codes, and whether two more ranks come through on what is left. PyTorch's watchdog ends a rank whose peer is
gone some time after GROUP_TIMEOUT_S, natively, too."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gpu_test.commands import kill_group  # noqa: E402
from gpu_test.server import Server  # noqa: E402

GROUP_TIMEOUT_S = 10
START_LIMIT_S, END_LIMIT_S = 90, 90
PIECE = 1 << 18

RANK = f"""
import datetime, os, sys, torch
from torch import distributed
rank, rounds = int(sys.argv[1]), int(sys.argv[2])
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[3])
torch.cuda.set_device(rank % torch.cuda.device_count())
limit = datetime.timedelta(seconds={GROUP_TIMEOUT_S})
distributed.init_process_group("nccl", rank=rank, world_size=2, timeout=limit)
vector = torch.full((1 << 22,), 1.0, device="cuda")
for at in range(rounds):
    vector.fill_(at + rank)
    distributed.all_reduce(vector)
    if at % 20 == 0:
        assert vector[-1].item() == 2 * at + 1
        print(at, flush=True)
distributed.destroy_process_group()
print("done", flush=True)
"""


def free_port():
    """A port on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Forwarder:
    """A TCP forwarder in front of a server, which can cut or stall all its connections."""

    def __init__(self, port):
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets, self.flows = [], threading.Event()
        self.flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                inner, _ = self.listener.accept()
            except OSError:
                return
            outer = socket.create_connection(("127.0.0.1", self.target))
            for end in (inner, outer):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets += [inner, outer]
            for ends in ((inner, outer), (outer, inner)):
                threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source, target):
        try:
            while piece := source.recv(PIECE):
                self.flows.wait()
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def cut(self):
        """Ends every connection, and takes no more."""
        self.listener.close()
        for end in self.sockets:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def stall(self):
        """Leaves every connection open and carries nothing."""
        self.flows.clear()


class Ranks:
    """Two ranks, each with what it prints in a file."""

    def __init__(self, prefix, rounds, folder):
        self.logs = [pathlib.Path(folder, f"rank{rank}") for rank in (0, 1)]
        port, self.processes = str(free_port()), []
        for rank, log in enumerate(self.logs):
            command = [*prefix, sys.executable, "-c", RANK, str(rank), str(rounds), port]
            with open(log, "w") as out:
                self.processes.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                    )
                )

    def wait_for_work(self):
        """Waits until both have come some way; nothing if they do not."""
        until = time.monotonic() + START_LIMIT_S
        while not all(re.search("^40$", log.read_text(), re.M) for log in self.logs):
            if time.monotonic() > until or any(p.poll() is not None for p in self.processes):
                return False
            time.sleep(0.05)
        return True

    def wait(self, limit):
        """How each ended, and after how many seconds."""
        start, ends = time.monotonic(), {}
        while len(ends) < 2 and time.monotonic() - start < limit:
            for rank, process in enumerate(self.processes):
                if rank not in ends and process.poll() is not None:
                    ends[rank] = (process.returncode, time.monotonic() - start)
            time.sleep(0.05)
        return [f"{ends[r][0]} after {ends[r][1]:.1f} s" if r in ends else "HANGS" for r in (0, 1)]

    def last_error(self):
        """The first line of a Python error or of Causeway's, of either rank."""
        for log in self.logs:
            for line in log.read_text().splitlines():
                if re.search(r"Error: |causeway: ", line):
                    return line.strip()[:200]
        return "no error line"

    def stop(self):
        for process in self.processes:
            kill_group(process)
            process.wait()


def descendants(pid):
    """Processes that a process has started, and they."""
    found = []
    for name in os.listdir("/proc"):
        try:
            parent = int(re.search(r"\) \S (\d+)", pathlib.Path("/proc", name, "stat").read_text())[1])
        except (OSError, TypeError):
            continue
        if parent == pid:
            found += [int(name), *descendants(int(name))]
    return found


def fault(name, ranks, server, forwarder):
    """Does what is named."""
    if name == "rank":
        kill_group(ranks.processes[1])
    elif name == "server":
        workers = descendants(server.process.pid)
        for pid in (server.process.pid, *workers):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    elif name == "cut":
        forwarder.cut()
    elif name == "stall":
        forwarder.stall()


def case(causeway, name, via, folder):
    """One fault on one transport; a line of what came of it."""
    if via == "native":
        ranks, server, forwarder = Ranks([], 100_000, folder), None, None
    else:
        server = Server(causeway, os.environ.get("FAULTS_GPU", "auto"), pathlib.Path(folder, "server.log"))
        forwarder = Forwarder(int(server.address.rsplit(":", 1)[1].split("?")[0]))
        address = re.sub(r":\d+(?=\?|$)", f":{forwarder.port}", server.address)
        on = address if name in ("cut", "stall") else server.address
        prefix = [causeway, "run", "--on", on, "--via", via, "--"]
        ranks = Ranks(prefix, 100_000, folder)
    try:
        if not ranks.wait_for_work():
            return f"did not start: {ranks.last_error()} {ranks.logs[0].read_text()[-400:]}"
        fault(name, ranks, server, forwarder)
        ends = ranks.wait(END_LIMIT_S)
        error = ranks.last_error()
        ranks.stop()
        after = "native"
        if server is not None:
            server.revive()
            more = Ranks([causeway, "run", "--on", server.address, "--via", via, "--"], 60, folder)
            after = " / ".join(more.wait(END_LIMIT_S))
            more.stop()
        return f"{' / '.join(ends)}; then {after}; {error}"
    finally:
        ranks.stop()
        if server is not None:
            server.stop()


def main():
    """All faults on all transports, or those that are named as FAULT.TRANSPORT."""
    causeway = sys.argv[1]
    cases = ["rank.native", "rank.shm", "rank.tcp", "server.shm", "server.tcp", "cut.tcp", "stall.tcp"]
    for text in sys.argv[2:] or cases:
        name, via = text.split(".")
        with tempfile.TemporaryDirectory() as folder:
            print(f"{text}\t{case(causeway, name, via, folder)}", flush=True)


if __name__ == "__main__":
    main()
