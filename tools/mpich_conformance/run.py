"""How is a test run, and has it passed?"""

import os
import re
import secrets
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

# How a test is run: with the interposer; with its buffers on the GPU; by the MPI alone.
WAYS = ("host", "gpu", "bare")


@dataclass
class Result:
    """`verdict` is passed, failed or hung; `words` are the last that a test has said."""

    verdict: str
    words: str = ""
    moved: int = 0
    stayed: int = 0


class Runner:
    """Runs tests of one MPI on the GPU that `on` names."""

    def __init__(self, builder, on, client, limit, memory):
        self.builder, self.on, self.client = builder, on, client
        self.limit, self.memory = limit, memory

    def command(self, way, ranks, report):
        """The launcher with its options, and the environment."""
        is_open = self.builder.is_open
        preload = {"bare": [], "host": [self.builder.preload], "gpu": [self.builder.mover, self.builder.preload]}
        libraries = ":".join(map(str, [*preload[way], *self.builder.yielding]))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CAUSEWAY_", "CUDA_"))}
        environment["LD_LIBRARY_PATH"] = f"{self.client}:{self.builder.libraries}"
        environment["CAUSEWAY_CACHE_DIR"] = ""
        environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
        environment["MPITEST_RETURN_WITH_CODE"] = "yes"
        # Tests with random types take buffers of up to 1 GiB, most of which are gaps.
        environment["MPITEST_MAXBUFFER"] = str(1 << 24)
        command = [self.builder.program("mpirun")]
        if is_open:
            command += ["--oversubscribe", "--bind-to", "none"]
        if way != "bare":
            environment["CAUSEWAY_ON"] = self.on
            environment["CAUSEWAY_COMM_JOB"] = secrets.token_hex(16)
            environment["ON_GPU_MEMORY"] = self.memory
            environment["ON_GPU_REPORT"] = str(report)
        if libraries:
            command += ["-x", f"LD_PRELOAD={libraries}"] if is_open else ["-genv", "LD_PRELOAD", libraries]
        return [*map(str, command), "-n", str(ranks)], environment

    def run(self, test, program, way):
        """Has a test run one way."""
        with tempfile.TemporaryDirectory() as folder:
            report, output = Path(folder) / "report", Path(folder) / "output"
            command, environment = self.command(way, test.ranks, report)
            # Tests of processes start themselves again.
            (Path(folder) / test.program).symlink_to(program)
            with open(output, "w") as lines:
                process = subprocess.Popen([*command, str(program), *test.run_arguments], stdin=subprocess.DEVNULL,
                                           stdout=lines, stderr=subprocess.STDOUT, env=environment, cwd=folder,
                                           start_new_session=True)
                try:
                    status = process.wait(timeout=self.limit)
                except subprocess.TimeoutExpired:
                    status = None
            end_group(process)
            text = output.read_text(errors="replace")
            result = Result(judge(status, text), last_words(text))
            for line in report.read_text().splitlines() if report.exists() else ():
                moved, stayed = map(int, line.split())
                result.moved += moved
                result.stayed += stayed
        return result


def judge(status, text):
    if status is None:
        return "hung"
    # What the suite's own script asks for: this line, and an end without an error.
    return "passed" if status == 0 and re.search(r"^\s*(No Errors|Test Passed)", text, re.I | re.M) else "failed"


def last_words(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[:12])


def end_group(process):
    """Ends a launcher and its ranks. Those of Open MPI's are groups of their own, which end with it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
