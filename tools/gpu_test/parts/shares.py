"""Shares of a GPU's time: two clients with shares of 3 and 1 that always have kernels to run, and one alone.

The kernels wait by the device's clock, so that two programs that ran at the same time would both be as fast
as one alone: what is counted is who was let onto the device."""

import contextlib
import pathlib
import re
import subprocess
import tempfile
import time

from gpu_test.bundle import BUNDLE, CAUSEWAY
from gpu_test.commands import kill_group
from gpu_test.server import Server

SHARES = {"ada": 3, "bob": 1}
# The kernels' length in milliseconds, and for how many seconds they are counted.
LENGTHS = ((5, 8), (100, 20))
# How many kernels a program launches ahead; with one it waits for each.
AHEAD = (64, 1)
START_LIMIT_S = 60
# Part of the time in which the device runs kernels of programs that launch ahead.
MIN_USED = 0.9


class NoKernelsError(Exception):
    """A program ran none; the message says how it ended."""


class Counted:
    """A program that prints a line for each kernel that has ended."""

    def __init__(self, command, folder, name):
        self.output, self.errors = folder / f"{name}.out", folder / f"{name}.err"
        with open(self.output, "w") as output, open(self.errors, "w") as errors:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def kernels(self):
        """How many have ended."""
        return self.output.read_text().count("kernel ")

    def wait_for(self, kernels):
        """Waits until so many have ended."""
        until = time.monotonic() + START_LIMIT_S
        while self.kernels() < kernels:
            if self.process.poll() is not None or time.monotonic() > until:
                lines = (self.output.read_text() + self.errors.read_text()).strip().splitlines()
                raise NoKernelsError(lines[-1] if lines else f"status {self.process.poll()}")
            time.sleep(0.05)

    def stop(self):
        """Ends it."""
        kill_group(self.process)
        self.process.wait()


def count(commands, seconds):
    """How many kernels each of these commands ran in so many seconds in which all did."""
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as folder, contextlib.ExitStack() as running:
        programs = []
        for number, command in enumerate(commands):
            programs.append(Counted(command, pathlib.Path(folder), str(number)))
            running.callback(programs[-1].stop)
        for program in programs:
            program.wait_for(4)
        before = [program.kernels() for program in programs]
        time.sleep(seconds)
        return [program.kernels() - first for program, first in zip(programs, before, strict=True)]


def problem_of(counts, milliseconds, seconds, is_ahead):
    """What is wrong with the kernels of two clients with shares of 3 and 1, or of one alone, if anything."""
    used = sum(counts) * milliseconds / 1000 / seconds
    if used > 1.1:
        return f"kernels took {used:.2f} of the time: they ran at the same time"
    if is_ahead and used < MIN_USED:
        return f"kernels took {used:.2f} of the time, not {MIN_USED} or more"
    if len(counts) == 2 and not 2.7 <= counts[0] / max(counts[1], 1) <= 3.3:
        return f"{counts[0]} kernels beside {counts[1]}: {counts[0] / max(counts[1], 1):.2f} to 1, not 3 to 1"
    return None


def clients_of(server, key):
    """Connect strings of the clients, by their names."""
    address = re.search(r"127\.0\.0\.1:\d+", server.address).group()
    strings = {}
    for name, share in SHARES.items():
        command = [CAUSEWAY, "client", "--key-file", key, "add", name, "--share", share, "--address", address]
        added = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
        strings[name] = added.stdout.strip()
    return strings


def cases_of(session):
    """What is measured: title, kernels, transport, launches ahead and the names of the clients."""
    for length in LENGTHS:
        for via in session.modules:
            for ahead in AHEAD:
                title = f"{length[0]} ms {via} {ahead} ahead"
                for names in (("ada", "bob"), ("bob",)):
                    if session.is_selected(title) and (len(names) == 2 or ahead > 1):
                        yield title, length, via, ahead, names


def run_shares(session):
    """Each length of kernels, over each transport, launched ahead and one by one."""
    report = session.report
    report.table(case=30, clients=8, kernels=14, ratio=8, used=8, result=60)
    with tempfile.TemporaryDirectory(prefix="gpu-test-") as folder:
        key = pathlib.Path(folder) / "key"
        log = report.folder / "gpu-server-shares.log"
        with Server(CAUSEWAY, session.server.gpu, log, arguments=("--key-file", str(key))) as server:
            clients = clients_of(server, key)
            for title, (milliseconds, seconds), via, ahead, names in cases_of(session):
                if session.quick:
                    seconds /= 2
                program = [BUNDLE / "programs" / "kernel_turns", milliseconds, 3600, ahead]
                commands = [
                    [CAUSEWAY, "run", "--on", clients[name], "--via", via, "--", *program] for name in names
                ]
                try:
                    counts = count(commands, seconds)
                    problem = problem_of(counts, milliseconds, seconds, ahead > 1)
                except NoKernelsError as reason:
                    counts, problem = [], str(reason)
                case = f"{title}, {len(names)}"
                report.check(f"{case} clients", problem)
                ratio = f"{counts[0] / max(counts[1], 1):.2f}" if len(counts) == 2 else "-"
                used = f"{sum(counts) * milliseconds / 1000 / seconds:.3f}"
                result = "met" if problem is None else f"FAIL {problem}"
                report.row(title, len(names), ":".join(map(str, counts)) or "-", ratio, used, result)
                report.data.setdefault("shares", {})[case] = {"kernels": counts, "seconds": seconds}
    report.list_failures()
