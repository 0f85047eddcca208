"""Do the action for GitHub and the template for GitLab work: is their YAML right, and does each of their shell steps do its part
with the wheel? Environment: as `test_wheel`, and WHEEL_FILE, the wheel itself."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from test_wheel import LIMIT, PACKAGES, PROGRAMS, ROOT, SERVER, Wheel

WHEEL = os.environ.get("WHEEL_FILE", "")
ACTION = ROOT / "packaging/ci/github/action.yml"
TEMPLATE = ROOT / "packaging/ci/gitlab/causeway.yml"


def load(path: Path):
    """A YAML file."""
    sys.path.append(PACKAGES)
    try:
        import yaml
    finally:
        sys.path.remove(PACKAGES)
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def is_serving(process: int) -> bool:
    """Whether a process is a server."""
    try:
        return b"serve" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


@unittest.skipUnless(PACKAGES, "`make python-packages` installs PyYAML")
class Pipeline(Wheel):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.end_servers)

    def end_servers(self) -> None:
        """Ends the servers that steps have left running: those that listen beneath this test's folder."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and any(bytes(self.home) in word for word in words):
                os.kill(int(process.name), signal.SIGTERM)
                self.wait_for_end(int(process.name))

    def wait_for_end(self, server: int) -> None:
        """Waits until a server that was told to end has done so: until the system keeps but its number, at most."""
        deadline = time.monotonic() + LIMIT
        while is_serving(server):
            self.assertLess(time.monotonic(), deadline, "the server goes on")
            time.sleep(0.05)

    def shell(self, script: str, environment: dict[str, str], code: int = 0) -> str:
        """What a step prints; its standard error is with it."""
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT,
            cwd=self.home,
        )
        self.assertEqual(done.returncode, code, f"{script}\n{done.stdout}")
        return done.stdout

    def check_shell(self, script: str) -> None:
        """Whether a script is one; shellcheck looks at it where it is installed."""
        subprocess.run(["bash", "-n", "-c", script], check=True)
        if shutil.which("shellcheck"):
            command = ["shellcheck", "--shell", "bash", "-"]
            done = subprocess.run(command, input=script, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout)


class Github(Pipeline):
    def run_action(self, code: int = 0, **inputs: str) -> tuple[dict[str, str], dict[str, str], str]:
        """Runs the action's shell steps as a runner does: the environment of later steps, the outputs, what was printed."""
        action = load(ACTION)
        given = {name: str(value.get("default", "")) for name, value in action["inputs"].items()} | inputs
        environment = self.environment(None, RUNNER_TEMP=str(self.home))
        files = {name: self.home / name for name in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT")}
        printed = ""
        steps = [step for step in action["runs"]["steps"] if "run" in step]
        self.assertEqual(len(steps), 2)
        for step in steps:
            self.assertEqual(step["shell"], "bash")
            for file in files.values():
                file.touch()
            own = {
                name: re.sub(
                    r"\$\{\{ *([\w.]+) *\}\}", lambda match: self.expression(match[1], given), str(value)
                )
                for name, value in step["env"].items()
            }
            is_last = step is steps[-1] or code
            paths = {name: str(path) for name, path in files.items()}
            printed += self.shell(step["run"], environment | own | paths, code if is_last else 0)
            if code:
                return environment, {}, printed
        lines = files["GITHUB_ENV"].read_text().splitlines()
        environment |= dict(line.split("=", 1) for line in lines)
        folders = files["GITHUB_PATH"].read_text().split()
        environment["PATH"] = ":".join([*reversed(folders), environment["PATH"]])
        text = files["GITHUB_OUTPUT"].read_text()
        outputs = dict(re.findall(r"^(\w+)=(.*)$", text, re.M))
        outputs |= dict(re.findall(r"^(\w+)<<(?:\w+)\n(.*?)\nEND_OF_DEVICES$", text, re.M | re.S))
        for output in action["outputs"].values():
            step, name = re.search(r"steps\.(\w+)\.outputs\.(\w+)", output["value"]).groups()
            self.assertIn(step, [step.get("id") for step in steps])
            self.assertIn(name, outputs)
        return environment, outputs, printed

    def expression(self, name: str, inputs: dict[str, str]) -> str:
        """The value of an expression of GitHub's."""
        kind, _, name = name.partition(".")
        self.assertIn((kind, name), [("runner", "temp"), *(("inputs", known) for known in inputs)])
        return str(self.home) if kind == "runner" else inputs[name]

    def test_programs_of_later_steps_find_the_gpu(self):
        environment, outputs, printed = self.run_action(wheel=WHEEL)
        self.assertIn("software GPU", outputs["devices"])
        self.assertIn("software GPU", printed)
        self.assertIn("PASS vector_add", self.shell(str(PROGRAMS / "vector_add"), environment))
        self.assertIn(outputs["version"], self.shell("causeway --version", environment))
        # What an earlier run has installed is used again, and a server's key is not printed.
        marker = self.home / "causeway/marker"
        marker.touch()
        for file in self.home.glob("GITHUB_*"):
            file.unlink()
        environment, outputs, printed = self.run_action(
            wheel="/no/such/wheel", gpu=SERVER, version=outputs["version"]
        )
        self.assertTrue(marker.exists())
        self.assertIn(f"::add-mask::{SERVER}", printed)
        self.assertEqual(environment["CAUSEWAY_ON"], SERVER)
        self.assertIn("PASS vector_add", self.shell(str(PROGRAMS / "vector_add"), environment))
        _, _, printed = self.run_action(code=1, wheel="/no/such/wheel", version="99.0.0")
        self.assertIn("::error::", printed)
        self.assertIn("name the wheel of 99.0.0", printed)
        # Neither a package that somebody else may own is installed, nor the software GPU used for a lost secret.
        for inputs, said in (
            ({"wheel": ""}, "`wheel` is empty"),
            ({"wheel": WHEEL, "gpu": ""}, "`gpu` is empty"),
        ):
            self.assertIn(f"::error::{said}", self.run_action(code=1, **inputs)[2])

    def test_steps_are_shell_and_inputs_are_explained(self):
        action = load(ACTION)
        for step in action["runs"]["steps"]:
            self.assertTrue("run" in step or "@v" in step["uses"], step)
            if "run" in step:
                # Inputs come as variables: as text of a script they could be more than text.
                self.assertNotIn("${{", step["run"])
                self.check_shell(step["run"])
        for name, value in action["inputs"].items():
            self.assertTrue(isinstance(name, str) and value["description"], name)


class Gitlab(Pipeline):
    def test_programs_of_a_job_find_the_gpu(self):
        job = load(TEMPLATE)[".causeway"]
        program = str(PROGRAMS / "vector_add")
        variables = {name: str(value) for name, value in job["variables"].items()}
        number = str(os.getpid())
        environment = self.environment(None, **variables | {"GPU_WHEEL": WHEEL, "CI_JOB_ID": number})
        environment["PIP_CACHE_DIR"] = str(self.home / "pip")
        folder = Path(f"/tmp/causeway-{number}")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        end = "\n".join(job["after_script"])
        self.addCleanup(subprocess.run, ["bash", "-c", end], env=environment)
        # GitLab joins `before_script` and `script`; `after_script` is a shell of its own.
        printed = self.shell("\n".join([*job["before_script"], program, "causeway --version"]), environment)
        self.assertIn("software GPU", printed)
        self.assertIn("PASS vector_add", printed)
        server = int((folder / "server.pid").read_text())
        self.shell(end, environment)
        self.assertFalse(folder.exists())
        self.wait_for_end(server)

    def test_the_template_is_shell_and_a_wrong_version_is_named(self):
        job = load(TEMPLATE)[".causeway"]
        for script in [*job["before_script"], *job["after_script"]]:
            self.check_shell(script)
        self.assertEqual(set(job["variables"]), {"GPU_WHEEL", "GPU_VERSION", "GPU_ON", "PIP_CACHE_DIR"})
        self.assertIn("is wanted: name the wheel of $GPU_VERSION in GPU_WHEEL", job["before_script"][0])
        variables = {name: str(value) for name, value in job["variables"].items()}
        for wheel, on, said in (
            ("", "software", "GPU_WHEEL is empty"),
            *(("w", on, "GPU_ON names") for on in ("", "$SECRET")),
        ):
            environment = self.environment(
                None, **variables | {"GPU_WHEEL": wheel, "GPU_ON": on, "CI_JOB_ID": "0"}
            )
            self.assertIn(said, self.shell(job["before_script"][0], environment, code=1))


if __name__ == "__main__":
    unittest.main()
