"""NVIDIA's MPS, started for a while: with it the processes that share a GPU run on it at the same time."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from gpu_test.commands import kill_group

CONTROL = "nvidia-cuda-mps-control"

# What its daemon may take to answer, and to end.
START_S, END_S = 10, 10


@contextlib.contextmanager
def started(control=CONTROL):
    """The environment by which programs reach an MPS of their own, and None; or no environment, and why there
    is no MPS. Programs have ended when this does."""
    program = shutil.which(control)
    if program is None:
        yield {}, f"there is no {control}"
        return
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        environment = {}
        for name, inner in (("CUDA_MPS_PIPE_DIRECTORY", "pipe"), ("CUDA_MPS_LOG_DIRECTORY", "log")):
            environment[name] = str(Path(folder, inner))
            Path(folder, inner).mkdir()
        daemon = subprocess.Popen(
            [program, "-f"],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            why_not = wait(program, daemon, environment)
            yield ({}, why_not) if why_not else (environment, None)
        finally:
            send_command(program, "quit", environment)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(END_S)
            kill_group(daemon)
            daemon.wait()


def wait(program, daemon, environment):
    """Waits until the daemon answers; the reason if it does not."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if daemon.poll() is not None:
            return f"{CONTROL} ended with {daemon.returncode}"
        if send_command(program, "get_server_list", environment):
            return None
        time.sleep(0.1)
    return f"{CONTROL} did not answer in {START_S} s"


def send_command(program, word, environment):
    """Whether the daemon took a command."""
    try:
        outcome = subprocess.run(
            [program],
            input=word + "\n",
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return outcome.returncode == 0
