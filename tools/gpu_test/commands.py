"""How does a command run with a time limit, and how did it end?"""

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass


@dataclass
class Outcome:
    """How one command ended."""

    status: int  # exit status; negative: the number of the signal that ended it
    output: str  # its standard output
    errors: str  # its standard error
    seconds: float
    timed_out: bool = False

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
    """A command under way in a process group of its own, so that nothing of it outlives its time.

    Raises OSError when it cannot be started."""

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
    """Ends a process that leads a group, and all that it has started in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(command, limit, environment=None):
    """Runs a command for `limit` seconds at most."""
    return Running(command, environment).wait(limit)
