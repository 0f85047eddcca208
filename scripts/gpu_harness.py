"""What the parts of the GPU test share: running commands with a time limit, a Causeway server, and the results files."""

import datetime
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

BUNDLE = pathlib.Path(__file__).resolve().parent
CAUSEWAY = BUNDLE / "bin" / "causeway"


@dataclass
class Outcome:
    """How one command ended."""

    status: int  # exit status; negative: the number of the signal that ended it
    output: str  # its standard output
    errors: str  # its standard error
    seconds: float
    timed_out: bool

    def ending(self):
        """How it ended, in words."""
        if self.timed_out:
            return f"still running after {self.seconds:.0f} s, killed"
        if self.status < 0:
            return f"ended by {signal.Signals(-self.status).name}"
        return f"exit status {self.status}"

    def reason(self):
        """Why it failed, in one line: how it ended, and its own last word."""
        lines = (self.output.strip() or self.errors.strip()).splitlines()
        return f"{self.ending()}; {lines[-1]}" if lines else self.ending()


class Running:
    """A command under way in a process group of its own, so that nothing of it outlives its time."""

    def __init__(self, command, environment=None):
        self.start = time.monotonic()
        self.process = subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def wait(self, limit):
        """The outcome, after `limit` seconds at most."""
        timed_out = False
        try:
            output, errors = self.process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            timed_out = True
            kill_group(self.process)
            output, errors = self.process.communicate()
        seconds = time.monotonic() - self.start
        kill_group(self.process)  # children that it left behind
        return Outcome(self.process.returncode, output, errors, seconds, timed_out)


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(command, limit, environment=None):
    return Running(command, environment).wait(limit)


class Server:
    """`causeway serve` on a free port of this machine; restarted when it is found dead. Both ends prove that they hold this user's
    key, and over TCP nothing is encrypted: figures over TCP are those of the clear."""

    def __init__(self, gpu, log_path, environment=None):
        self.gpu = gpu
        self.log_path = log_path
        self.environment = environment or {}
        self.deaths = 0
        self.lock = threading.Lock()  # parts run several programs at a time
        self._start()

    def _start(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            listen = f"127.0.0.1:{probe.getsockname()[1]}"
        self.address = f"causeway://{listen}?clear"
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(
                [str(CAUSEWAY), "serve", "--listen", listen, "--clear", "--gpu", self.gpu],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | self.environment,
            )
        host, port = listen.split(":")
        deadline = time.monotonic() + 30
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the server ended with status {self.process.returncode}; see {self.log_path}")
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    self.stop()
                    sys.exit(f"the server did not listen on {listen} within 30 s; see {self.log_path}")
                time.sleep(0.1)

    def revive(self):
        """Starts the server again if it has died."""
        with self.lock:
            if self.process.poll() is not None:
                self.deaths += 1
                self._start()

    def command(self, command, via="auto"):
        """The command that runs `command` on this server's GPU; `via` names what joins the two."""
        self.revive()
        return [CAUSEWAY, "run", "--on", self.address, "--via", via, "--", *command]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            print("the server did not end within 10 s of SIGTERM", file=sys.stderr)
        kill_group(self.process)
        self.process.wait()


class Report:
    """Markdown for the screen and for gpu-results.md, to which every run appends; numbers for gpu-results.json."""

    def __init__(self, folder):
        self.folder = folder
        self.file = open(folder / "gpu-results.md", "a")
        self.data = {}
        self.widths = []

    def line(self, text=""):
        print(text, flush=True)
        self.file.write(text + "\n")
        self.file.flush()

    def table(self, **columns):
        """Begins a table: its columns with their widths on a screen."""
        self.widths = list(columns.values())
        self.line()
        self.row(*(name.replace("_", " ") for name in columns))
        self.row(*("-" * width for width in self.widths))

    def row(self, *cells):
        """One row, written at once, so that a long run shows how far it is."""
        padded = (str(cell).replace("|", "/").ljust(width) for cell, width in zip(cells, self.widths, strict=True))
        self.line("| " + " | ".join(padded) + " |")

    def save(self):
        """Writes the numbers, part by part."""
        (self.folder / "gpu-results.json").write_text(json.dumps(self.data, indent=1) + "\n")


# Modules of the fabric that two ends on one machine can use.
MODULES = ("tcp", "shm")


@dataclass
class Session:
    """What a part is given."""

    report: Report
    server: Server
    native: bool  # whether this machine has a GPU of its own to compare with
    quick: bool  # fewer repetitions, for a short look
    chosen: list[str] = field(default_factory=list)  # words of which a title must contain one; empty for all
    modules: tuple[str, ...] = MODULES  # what is measured over each module of the fabric is measured over these
    limit_s: float = 560  # a part that repeats what it measures does so for as long as this
    interrupted: Callable[[], bool] = lambda: False  # whether it is to end at once, and to say what it has

    def wants(self, title):
        """Whether something with this title was asked for."""
        return not self.chosen or any(word in title for word in self.chosen)

    def ways(self):
        """Pairs of a name and the function that makes a command run that way."""
        return [*self.native_way(), ("remote", self.server.command)]

    def ways_by_module(self):
        """As `ways`, with one remote way for each module, named by it."""
        return [*self.native_way(), *((via, functools.partial(self.server.command, via=via)) for via in self.modules)]

    def native_way(self):
        return [("native", list)] if self.native else []

    def gpus(self):
        """How many GPUs this machine has."""
        return len(run(["nvidia-smi", "-L"], 30).output.splitlines()) if self.native else 0


def unpack_programs():
    """The folder of the test programs, unpacked from the bundle by whoever comes first."""
    folder = BUNDLE / "programs"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=BUNDLE) as beside:
            with tarfile.open(BUNDLE / "programs.tar.xz") as packed:
                packed.extractall(beside)
            try:
                os.rename(pathlib.Path(beside) / "programs", folder)
            except OSError:
                if not folder.exists():  # else another run of this script was faster
                    raise
    return folder


def machine():
    """One line about this machine."""
    gpu = "no nvidia-smi here"
    if shutil.which("nvidia-smi"):
        outcome = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], 30)
        gpu = "; ".join(outcome.output.strip().splitlines()) or outcome.reason()
    return f"GPU and driver: {gpu}; {os.cpu_count()} cores; Linux {os.uname().release}"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
