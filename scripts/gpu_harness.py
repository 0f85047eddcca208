"""What the parts of the GPU test share: running commands with a time limit, a Causeway server, and the results file."""

import datetime
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

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

    def reason(self):
        """Why it failed, in one line: its own last word, or how it ended."""
        if self.timed_out:
            ended = f"still running after {self.seconds:.0f} s, killed"
        elif self.status < 0:
            ended = f"ended by {signal.Signals(-self.status).name}"
        else:
            ended = f"exit status {self.status}"
        lines = (self.output.strip() or self.errors.strip()).splitlines()
        return f"{ended}; {lines[-1]}" if lines else ended


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
    """`causeway serve` on a free port of this machine; restarted when it is found dead."""

    def __init__(self, gpu, log_path):
        self.gpu = gpu
        self.log_path = log_path
        self.deaths = 0
        self._start()

    def _start(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(
                [str(CAUSEWAY), "serve", "--listen", self.address, "--gpu", self.gpu],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        host, port = self.address.split(":")
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
                    sys.exit(f"the server did not listen on {self.address} within 30 s; see {self.log_path}")
                time.sleep(0.1)

    def command(self, command):
        """The command that runs `command` on this server's GPU."""
        if self.process.poll() is not None:
            self.deaths += 1
            self._start()
        return [CAUSEWAY, "run", "--on", self.address, "--", *command]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            print("the server did not end within 10 s of SIGTERM", file=sys.stderr)
        kill_group(self.process)
        self.process.wait()


class Report:
    """Lines for the screen and for the one results file, to which every run appends."""

    def __init__(self, path):
        self.file = open(path, "a")

    def line(self, text=""):
        print(text, flush=True)
        self.file.write(text + "\n")
        self.file.flush()


def machine():
    """One line about this machine."""
    gpu = "no nvidia-smi here"
    if shutil.which("nvidia-smi"):
        outcome = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], 30)
        gpu = "; ".join(outcome.output.strip().splitlines()) or outcome.reason()
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"{now}; GPU: {gpu}; {os.cpu_count()} cores"
