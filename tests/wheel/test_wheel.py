"""Does the wheel `causeway-gpu` work as people use it: installed into a new virtual environment, with
nothing else configured than a server?

`run` makes the environment, starts a server and names them: WHEEL_VENV, WHEEL_SERVER, WHEEL_PROGRAMS
(compiled CUDA programs), WHEEL_PACKAGES (a folder with CuPy and Numba, if they are to be tested) and
WHEEL_CUDA (the CUDA compiler for them).
"""

import ast
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

VENV = Path(os.environ["WHEEL_VENV"])
PYTHON = VENV / "bin/python"
SERVER = os.environ["WHEEL_SERVER"]
PROGRAMS = Path(os.environ["WHEEL_PROGRAMS"])
PACKAGES = os.environ.get("WHEEL_PACKAGES", "")
ROOT = Path(__file__).resolve().parents[2]

# Seconds: a limit for what hangs.
LIMIT = 300

# Prints what this process has of Causeway.
STATE = """
import json, os, sys
maps = open("/proc/self/maps").read()
print(json.dumps({
    "driver": sum("lib/causeway/libcuda.so.1" in line and " r-xp " in line for line in maps.splitlines()),
    "ctypes": "ctypes" in sys.modules,
    "path": os.environ.get("LD_LIBRARY_PATH"),
    "triton": os.environ.get("TRITON_LIBCUDA_PATH"),
}))
"""

# Uses the driver as libraries do: by its names.
INIT = """
import ctypes
first, second, nvml = (ctypes.CDLL(name) for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"))
status, count = second.cuInit(0), ctypes.c_int()
assert first.cuDeviceGetCount(ctypes.byref(count)) == 0, "the second name is another driver"
assert nvml.nvmlInit_v2() == 0
print(status, count.value)
"""


class Wheel(unittest.TestCase):
    def setUp(self):
        self.home = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.home)

    def environment(self, on: str | None, **more: str) -> dict[str, str]:
        """An environment in which at most the server is configured."""
        plain = {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        return plain | ({} if on is None else {"CAUSEWAY_ON": on}) | more

    def run_python(
        self, script: str, on: str | None = SERVER, code: int = 0, **more: str
    ) -> subprocess.CompletedProcess:
        """Runs a script in the virtual environment."""
        return self.run_command([str(PYTHON), "-c", script], on, code, **more)

    def run_command(
        self, command: list, on: str | None = SERVER, code: int = 0, **more: str
    ) -> subprocess.CompletedProcess:
        """Runs a command that must end with this code."""
        environment = self.environment(on, **more)
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT, cwd=self.home
        )
        self.assertEqual(done.returncode, code, f"{command}\n{done.stdout}\n{done.stderr}")
        return done

    def state(self, on: str | None = SERVER, **more: str) -> dict:
        """What a Python process has of Causeway."""
        return json.loads(self.run_python(STATE, on, **more).stdout)

    def configure(self, text: str) -> str:
        """Writes the user's configuration file."""
        path = self.home / ".config/causeway/config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)


class Pools(Wheel):
    def setUp(self):
        super().setUp()
        self.pool = self.home / "lab"
        self.pool.mkdir()
        (self.pool / "servers").write_text(f"{SERVER}\n")

    def status(self) -> str:
        """What `causeway pool status` says of the pool."""
        return self.run_command([str(VENV / "bin/causeway"), "pool", "status", str(self.pool)], None).stdout

    def test_connect_holds_a_gpu_of_a_pool_until_the_process_ends(self):
        pool = f"pool:{self.pool}"
        script = f"""
import os, subprocess, sys, causeway_gpu
pool = {pool!r}
assert len(causeway_gpu.connect(pool)) == 1
assert causeway_gpu.connect(pool) == causeway_gpu.devices(), "the same GPU the second time"
assert os.environ["CAUSEWAY_ON"] == {SERVER!r} and os.environ["CUDA_VISIBLE_DEVICES"] == "0"
{INIT}
held = subprocess.run([{str(VENV / "bin/causeway")!r}, "pool", "status", {str(self.pool)!r}], capture_output=True, text=True)
assert "0 of 1 GPUs free" in held.stdout, held
other = [sys.executable, "-c", "import causeway_gpu; causeway_gpu.connect({pool!r})"]
refused = subprocess.run(other, capture_output=True, text=True, env=os.environ | {{"CAUSEWAY_ON": ""}})
assert refused.returncode == 1 and "0 of 1 GPUs free" in refused.stderr, refused
print("ends")
"""
        self.assertIn("ends", self.run_python(script, None).stdout)
        for _ in range(100):
            if "1 of 1 GPUs free" in self.status():
                return
            time.sleep(0.1)
        self.fail(self.status())

    def test_a_pool_without_free_gpus_is_an_error(self):
        (self.pool / "servers").write_text("unix:/nowhere.sock\n")
        script = f'import causeway_gpu; causeway_gpu.connect("pool:{self.pool}")'
        self.assertIn("no server of the pool", self.run_python(script, None, 1).stderr)


class Startup(Wheel):
    def test_nothing_happens_unless_a_server_is_configured(self):
        nothing = {"driver": 0, "ctypes": False, "path": None, "triton": None}
        self.assertEqual(self.state(None), nothing)
        self.assertEqual(self.state(""), nothing, "an empty variable means none")
        self.configure("[serve]\nlisten = '0.0.0.0'\n[client]\nvia = 'tcp' # on = 'x'\n")
        self.assertEqual(self.state(None), nothing, "a server's own machine uses its own driver")

    def test_a_configured_process_has_one_driver_and_children_are_told(self):
        state = self.state()
        self.assertEqual(state["driver"], 1)
        self.assertTrue(state["path"].endswith("causeway_gpu/lib/causeway"), state)
        self.assertEqual(state["triton"], state["path"])
        kept = self.state(LD_LIBRARY_PATH="/elsewhere", TRITON_LIBCUDA_PATH="/mine")
        self.assertEqual((kept["path"], kept["triton"]), (state["path"] + ":/elsewhere", "/mine"))
        again = self.state(LD_LIBRARY_PATH=kept["path"])
        self.assertEqual(again["path"], kept["path"], "the folder is there once")

    def test_a_configuration_file_configures_as_well(self):
        path = self.configure("[client]\nvia = 'tcp'\non = 'gpu-box'  # mine\n")
        self.assertEqual(self.state(None)["driver"], 1)
        self.assertEqual(self.state("")["driver"], 0, "the environment comes first")
        self.assertEqual(self.state(None, CAUSEWAY_CONFIG="")["driver"], 0, "no file is read")
        moved = shutil.move(path, self.home / "other.toml")
        self.assertEqual(self.state(None)["driver"], 0)
        self.assertEqual(self.state(None, CAUSEWAY_CONFIG=str(moved))["driver"], 1)
        self.configure("this is no TOML [\n[client]\n")
        self.assertEqual(self.state(None)["driver"], 0)

    def test_older_pythons_find_the_server_in_a_file_by_its_lines(self):
        named = ('[client]\n on = "x" # y', '[client] # mine\non=["a"]')
        other = ('[server]\non = "x"', '[client]\non = ""', '[client]\n# on = "x"', 'on = "x"')
        ask = "import causeway_gpu.startup as s; print([s.names_a_server_by_line(text) for text in {}])"
        for texts, expected in ((named, True), (other, False)):
            answers = ast.literal_eval(self.run_python(ask.format(texts), None).stdout)
            self.assertEqual(answers, [expected] * len(texts))

    def test_python_starts_whatever_is_wrong_with_the_libraries(self):
        folder = Path(
            self.run_python("import causeway_gpu.startup as s; print(s.FOLDER)", None).stdout.strip()
        )
        library = folder / "libcuda.so.1"
        content = library.read_bytes()
        try:
            library.unlink()
            library.write_bytes(b"no library")
            done = self.run_python("print('started')")
        finally:
            library.unlink()
            library.write_bytes(content)
        self.assertEqual(done.stdout, "started\n")
        self.assertIn("causeway: this Python does not use Causeway: ", done.stderr)

    def test_newer_pythons_find_what_to_call(self):
        # Python 3.15 and later call what the lines of the .start file name, as pkgutil resolves it.
        site = Path(
            self.run_python("import sysconfig; print(sysconfig.get_path('platlib'))", None).stdout.strip()
        )
        [line] = [
            line
            for line in (site / "causeway_gpu.start").read_text().splitlines()
            if not line.startswith("#")
        ]
        self.assertTrue((site / "causeway_gpu.pth").is_file())
        sys.path.insert(0, str(site))
        self.addCleanup(sys.path.remove, str(site))
        self.assertEqual(pkgutil.resolve_name(line).__name__, "start")


class Processes(Wheel):
    def test_libraries_find_the_driver_by_each_of_its_names(self):
        self.assertEqual(self.run_python(INIT).stdout, "0 1\n")

    def test_children_of_every_kind_use_the_server(self):
        program = PROGRAMS / "vector_add"
        script = f"import subprocess; subprocess.run([{str(program)!r}], check=True)"
        self.assertIn("PASS vector_add", self.run_python(script).stdout)
        script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {INIT!r}], check=True)"
        self.assertEqual(self.run_python(script).stdout, "0 1\n")
        # A Python that knows nothing of this environment.
        script = f"import subprocess; subprocess.run([{sys.executable!r}, '-S', '-c', {INIT!r}], check=True)"
        self.assertEqual(self.run_python(script).stdout, "0 1\n")

    def test_multiprocessing_in_each_of_its_ways(self):
        path = self.home / "work.py"
        work = f"def work(number):\n    exec({INIT!r}, {{}})\n    return number\n"
        path.write_text(
            f"import multiprocessing, sys\n{work}if __name__ == '__main__':\n"
            "    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:\n"
            "        print(sorted(pool.map(work, range(4))))\n"
        )
        for way in ("spawn", "forkserver", "fork"):
            with self.subTest(way=way):
                done = self.run_command([str(PYTHON), str(path), way])
                self.assertEqual(done.stdout.splitlines()[-1], "[0, 1, 2, 3]")

    def test_the_program_is_installed(self):
        causeway = VENV / "bin/causeway"
        self.assertIn("causeway ", self.run_command([causeway, "--version"], None).stdout)
        done = self.run_command([causeway, "run", "--on", SERVER, "--", PROGRAMS / "vector_add"], None)
        self.assertIn("PASS vector_add", done.stdout)
        self.run_command([causeway, "run", "--on", SERVER, "--", "sh", "-c", "exit 42"], None, 42)


class Session(Wheel):
    def test_connect_devices_and_stats(self):
        script = (
            "import causeway_gpu, ctypes, json\n"
            "assert causeway_gpu.stats() == {}\n"
            f"found = causeway_gpu.connect({SERVER!r})\n"
            "assert found == causeway_gpu.devices()\n"
            "driver = ctypes.CDLL('libcuda.so.1')\n"
            "assert driver.cuInit(0) == 0\n"
            "report = causeway_gpu.stats()\n"
            "print(json.dumps([[str(d) for d in found], found[0].memory, found[0].uuid, report]))\n"
        )
        [names, memory, uuid, report] = json.loads(self.run_python(script, None).stdout)
        self.assertEqual(len(names), 1)
        self.assertIn("Causeway software GPU", names[0])
        self.assertGreater(memory, 1 << 20)
        self.assertRegex(uuid, "^GPU-[0-9a-f-]{36}$")
        self.assertEqual(report["calls"]["cuInit"], {"local": 1}, report)
        self.assertEqual(report["device"], "Causeway software GPU")

    def mistake(self, script: str, on: str | None = None) -> str:
        """What a script's CausewayError says."""
        catch = "except causeway_gpu.CausewayError as error:\n    print(error)"
        return self.run_python(f"import causeway_gpu\ntry:\n    {script}\n{catch}", on).stdout

    def test_mistakes_say_what_to_do(self):
        self.assertIn("call connect('gpu-box') first", self.mistake("causeway_gpu.devices()"))
        self.assertIn("needs the name of a server", self.mistake("causeway_gpu.connect(' ')"))
        nobody = self.mistake("causeway_gpu.connect('127.0.0.1:1')")
        self.assertIn("127.0.0.1:1", nobody)
        begin = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
        other = self.mistake(f"{begin}; causeway_gpu.connect('other')", SERVER)
        self.assertIn("start Python (or the kernel of the notebook) again", other)

    def test_connect_comes_too_late_where_another_driver_is_loaded(self):
        foreign = self.home / "libcuda.so.1"
        subprocess.run(["cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", foreign], check=True)
        said = self.mistake(f"import ctypes; ctypes.CDLL({str(foreign)!r}); causeway_gpu.connect({SERVER!r})")
        self.assertIn(f"another CUDA driver, {foreign}", said)


@unittest.skipUnless(PACKAGES, "`make python-packages` installs CuPy and Numba")
class Packages(Wheel):
    """Programs of tests/python on the software GPU, which runs kernels that NVRTC and Numba compile."""

    def run_tests(self, file: str, *names: str) -> None:
        program = ROOT / "tests/python" / file
        cuda = os.environ["WHEEL_CUDA"]
        more = {"CUDA_PATH": cuda, "CUDA_HOME": cuda, "LD_LIBRARY_PATH": f"{cuda}/lib"}
        done = self.run_command([PYTHON, program, *names], SERVER, **more)
        for name in names:
            self.assertIn(f"ok {name}", done.stdout)

    def test_cupy(self):
        self.run_tests("cupy_arrays.py", "elementwise_and_reductions", "kernels_from_source")

    def test_numba(self):
        self.run_tests("numba_kernels.py", "addition", "product_with_shared_memory", "streams_and_events")

    def test_a_notebook_has_a_kernel_on_the_server(self):
        jupyter = self.home / "jupyter"
        more = {"JUPYTER_DATA_DIR": str(jupyter)}
        causeway = VENV / "bin/causeway"
        install = [causeway, "jupyter", "install", "--on", SERVER, "--python", PYTHON, "--name", "far"]
        self.assertIn(
            str(jupyter / "kernels/far/kernel.json"), self.run_command(install, None, **more).stdout
        )
        script = (
            "import jupyter_client\n"
            "manager, client = jupyter_client.manager.start_new_kernel(kernel_name='far')\n"
            "code = 'import causeway_gpu as c, ctypes\\n'\n"
            "code += 'print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0), c.devices()[0])'\n"
            "printed = []\n"
            "hear = lambda message: printed.append(message['content'].get('text', message))\n"
            "try:\n"
            "    client.execute_interactive(code, timeout=120, output_hook=hear)\n"
            "    print(*printed)\n"
            "finally:\n"
            "    manager.shutdown_kernel()\n"
        )
        self.assertIn("0 0: Causeway software GPU", self.run_python(script, None, **more).stdout)


if __name__ == "__main__":
    unittest.main()
