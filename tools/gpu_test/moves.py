"""moves.py CAUSEWAY PROGRAMS [CASE...]: sessions that move between two servers, and into files, and servers
that are replaced under them.

By itself it needs the program `causeway` with the client's libraries beside it, and a folder with the test
programs."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gpu_test.commands import kill_group, run  # noqa: E402
from gpu_test.server import Server  # noqa: E402

LIMIT_S = 60
STEPS = 50
# At this step the program is moved, and at that one it goes into a file and back.
MOVE_AT, SAVE_AT = 15, 30


class Wrong(Exception):
    """Something is not as it must be; the text says what."""


class Fleet:
    """Two servers on one GPU."""

    def __init__(self, causeway, folder, gpu):
        self.causeway = causeway
        self.logs = [pathlib.Path(folder, f"server{number}.log") for number in (1, 2)]
        level = ["--log-level", os.environ.get("MOVES_LOG", "info")]
        # A program that runs `causeway serve` in a way of its own may stand in for it.
        serve = os.environ.get("MOVES_SERVE", causeway)
        self.servers = [Server(serve, gpu, log, arguments=level) for log in self.logs]
        self.folder = pathlib.Path(folder)

    def command(self, words, at):
        return run([self.causeway, *words, "--on", self.servers[at].address], LIMIT_S)

    def start(self, program, environment=None, at=0, via="tcp"):
        """A program at one of them."""
        environment = {"CAUSEWAY_RESUME_TIMEOUT": "60", **(environment or {})}
        command = [self.causeway, "run", "--on", self.servers[at].address, "--via", via, "--", *program]
        with open(self.folder / "output", "w") as output, open(self.folder / "errors", "w") as errors:
            return subprocess.Popen(
                [str(word) for word in command],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def output(self):
        return (self.folder / "output").read_text()

    def wait_for(self, process, text):
        """Waits until a program has printed something."""
        until = time.monotonic() + LIMIT_S
        while text not in self.output():
            if process.poll() is not None or time.monotonic() > until:
                errors = (self.folder / "errors").read_text()
                raise Wrong(f"it did not print `{text}`: {self.output()[-300:]} {errors[-600:]}")
            time.sleep(0.01)

    def session(self, at):
        sessions = json.loads(self.command(["sessions", "--json"], at).output)["sessions"]
        if len(sessions) != 1:
            raise Wrong(f"server {at + 1} has {len(sessions)} sessions")
        return sessions[0]["session"]

    def move(self, at):
        """Moves the one session of a server to the other one; what the command says."""
        outcome = self.command(["move", self.session(at), self.servers[1 - at].address], at)
        if outcome.status != 0:
            raise Wrong(f"it does not move: {outcome.ending()}; {outcome.errors.strip()[-600:]}")
        return outcome.output.strip()

    def through_file(self, at):
        """Puts the one session of a server into a file, and takes it up again."""
        file = self.folder / f"state-{time.monotonic_ns()}"
        saved = self.command(["checkpoint", self.session(at), file], at)
        if saved.status != 0:
            raise Wrong(f"it is not put into a file: {saved.errors.strip()[-600:]}")
        restored = self.command(["restore", file], at)
        size = file.stat().st_size
        file.unlink()
        if restored.status != 0:
            raise Wrong(f"it is not taken up: {restored.errors.strip()[-600:]}")
        return f"{saved.output.strip()}; {size} bytes; {restored.output.strip()}"

    def upgrade(self, at):
        """Puts the installed program in the place of a server; its sessions stay."""
        replaced = "a new server accepts connections"
        started = time.monotonic()
        os.kill(self.servers[at].process.pid, signal.SIGHUP)
        while replaced not in self.logs[at].read_text():
            if time.monotonic() > started + LIMIT_S:
                raise Wrong("no new server has taken the place of the old one")
            time.sleep(0.01)
        self.session(at)  # The new server knows it.
        return f"replaced in {time.monotonic() - started:.2f} s"

    def finish(self, process):
        """Waits for the end of a program, which must be a good one."""
        try:
            status = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Wrong(f"it has not ended: {self.output()[-300:]}") from None
        if status != 0:
            errors = (self.folder / "errors").read_text()
            raise Wrong(f"it ended with {status}: {self.output()[-400:]} {errors[-600:]}")
        return self.output()

    def stop(self):
        for server in self.servers:
            server.stop()


def stop(process):
    """Ends a program that has not ended."""
    kill_group(process)
    process.wait()


def program(name, how=""):
    """A test program that checks itself, moved to and fro and through a file."""

    def case(fleet, programs):
        end = fleet.folder / f"end-{name}-{how}"
        process = fleet.start([programs / name, end, how])
        try:
            fleet.wait_for(process, "running")
            steps = (
                lambda: fleet.move(0),
                lambda: fleet.move(1),
                lambda: fleet.through_file(0),
                lambda: fleet.move(0),
            )
            reports = [step() for step in steps]
            end.touch()
            fleet.finish(process)
        finally:
            end.touch()
            stop(process)
        return reports

    return case


def training(mode):
    """A training whose losses and parameters must be those of one that nothing disturbs."""

    def case(fleet, _):
        script = pathlib.Path(__file__).with_name("moved_training.py")
        digests = []
        environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "STEP_S": "0"}
        undisturbed = fleet.start([sys.executable, script, STEPS, mode], environment)
        digests.append(fleet.finish(undisturbed).splitlines()[-1])
        moved = fleet.start([sys.executable, script, STEPS, mode], environment | {"STEP_S": "0.1"})
        try:
            fleet.wait_for(moved, f"step {MOVE_AT} ")
            steps = (
                lambda: fleet.move(0),
                lambda: fleet.wait_for(moved, f"step {SAVE_AT} ") or "it goes on",
                lambda: fleet.through_file(1),
            )
            reports = [step() for step in steps]
            digests.append(fleet.finish(moved).splitlines()[-1])
        finally:
            stop(moved)
        if digests[0] != digests[1]:
            raise Wrong(f"another result: {digests}")
        return [*reports, digests[0]]

    return case


def upgraded(mode, via):
    """A training during which its server is replaced, and another program comes to the new server."""

    def case(fleet, _):
        script = pathlib.Path(__file__).with_name("moved_training.py")
        environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "STEP_S": "0"}
        undisturbed = fleet.start([sys.executable, script, STEPS, mode], environment, via=via)
        expected = fleet.finish(undisturbed).splitlines()[-1]
        slowly = environment | {"STEP_S": "0.1"}
        continued = fleet.start([sys.executable, script, STEPS, mode], slowly, via=via)
        try:
            fleet.wait_for(continued, f"step {MOVE_AT} ")
            report = fleet.upgrade(0)
            words = fleet.servers[0].command([sys.executable, script, "3", "mlp"], via)
            other = run([str(word) for word in words], LIMIT_S)
            if other.status != 0:
                raise Wrong(f"the new server serves nobody: {other.ending()}; {other.errors.strip()[-600:]}")
            digest = fleet.finish(continued).splitlines()[-1]
        finally:
            stop(continued)
        if digest != expected:
            raise Wrong(f"another result: {expected}, {digest}")
        return [report, digest]

    return case


CASES = {
    "session": program("moved_session"),
    "variables": program("moved_variables"),
    "pinned": program("moved_variables", "pinned"),
    "asked": program("moved_variables", "asked"),
    "stored": program("moved_variables", "stored"),
    "mlp": training("mlp"),
    "gpt": training("gpt"),
    "gpt pinned": training("gpt pin"),
    "gpt compiled": training("gpt compile"),
    "conv": training("conv"),
    "mlp with 10 GiB": training("mlp 10"),
    "mlp graph": training("mlp graph"),
    "gpt upgraded, tcp": upgraded("gpt", "tcp"),
    "conv graph upgraded, shm": upgraded("conv graph", "shm"),
}


def all_cases(causeway, programs, gpu, names=()):
    """The outcome of each case: its name, whether it went well, what there is to say."""
    for name, case in CASES.items():
        if names and name not in names:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            fleet = Fleet(causeway, folder, gpu)
            try:
                well, reports = True, "; ".join(case(fleet, programs))
            except (Wrong, OSError, ValueError) as why:
                well, reports = False, str(why)
            finally:
                fleet.stop()
            logs = [log.read_text() for log in fleet.logs]
        yield name, well, f"{reports} ({time.monotonic() - started:.1f} s)", logs


def main():
    causeway, programs = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    failed = 0
    for name, well, reports, logs in all_cases(
        causeway, programs, os.environ.get("MOVES_GPU", "auto"), sys.argv[3:]
    ):
        failed += not well
        print("ok    " if well else "FAILED", name, "::", reports, flush=True)
        for number, log in enumerate(logs):
            lines = log.splitlines()
            lines = lines if "MOVES_LOG" in os.environ else [] if well else lines[-12:]
            for line in lines[-200:]:
                print(f"    {number + 1}: {line[:400]}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
