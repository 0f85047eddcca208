"""Does `pytest --gpu` put the GPU in place that it names, and does the marker skip what needs one? Environment: as `test_wheel`."""

import json
import unittest

from test_wheel import PACKAGES, PYTHON, SERVER, Wheel

# Loads the driver as early as a conftest.py can, and keeps which one that was.
CONFTEST = """
import ctypes
try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError:
    driver = None
"""

TESTS = """
import ctypes, pathlib, pytest

def test_of_the_processor():
    assert True

@pytest.mark.gpu
def test_of_a_gpu():
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    assert driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    assert count.value >= 1
    assert "causeway" in pathlib.Path("/proc/self/maps").read_text()

@pytest.mark.gpu(2)
def test_of_two():
    assert False, "there is one"
"""


@unittest.skipUnless(PACKAGES, "`make python-packages` installs pytest")
class Pytest(Wheel):
    def setUp(self):
        super().setUp()
        (self.home / "conftest.py").write_text(CONFTEST)
        (self.home / "test_gpu.py").write_text(TESTS)

    def run_pytest(self, *arguments: str, on: str | None = None, code: int = 0, **more: str) -> str:
        """What pytest prints, run with these arguments."""
        command = [PYTHON, "-m", "pytest", "-rs", "-p", "no:cacheprovider", *arguments]
        return self.run_command(command, on, code, **more).stdout

    def test_the_software_gpu_is_there_before_any_conftest(self):
        printed = self.run_pytest("--gpu", "software", "--strict-markers")
        self.assertIn("gpu: Causeway software GPU (--gpu software)", printed)
        self.assertIn("2 passed, 1 skipped", printed)
        self.assertIn("needs 2 GPUs, and there is 1", printed)
        two = {"CAUSEWAY_SOFTWARE_GPU_DEVICES": "2"}
        self.assertIn("1 failed, 2 passed", self.run_pytest("--gpu=software", code=1, **two))

    def test_warnings_that_are_errors_are_none_of_ours(self):
        printed = self.run_pytest("--gpu", "software", "-W", "error")
        self.assertIn("2 passed, 1 skipped", printed)

    def test_processes_of_xdist_use_the_same_gpu_and_options_of_a_file_count(self):
        (self.home / "pytest.ini").write_text("[pytest]\naddopts = --gpu software -n 2\n")
        printed = self.run_pytest()
        self.assertIn("gpu: Causeway software GPU (--gpu software)", printed)
        self.assertIn("2 passed, 1 skipped", printed)

    def test_a_server_is_named_or_configured(self):
        printed = self.run_pytest("--gpu", SERVER)
        self.assertIn(f"gpu: Causeway software GPU (--gpu {SERVER})", printed)
        self.assertIn("2 passed, 1 skipped", printed)
        self.assertIn("gpu: Causeway software GPU (CAUSEWAY_ON)", self.run_pytest(on=SERVER))
        command = [PYTHON, "-m", "pytest", "--gpu", "127.0.0.1:1"]
        refused = self.run_command(command, None, 125)
        self.assertIn("127.0.0.1:1", refused.stderr)

    def test_tests_are_skipped_where_there_is_no_gpu(self):
        for arguments, on in ((("--gpu", "none"), SERVER), (("--gpu", "none", "-n", "2"), None)):
            printed = self.run_pytest(*arguments, on=on)
            self.assertIn("gpu: none (--gpu none)", printed)
            self.assertIn("1 passed, 2 skipped", printed)
        # Nothing is configured: nothing is said, and what is there counts (on a machine with a GPU that one).
        printed = self.run_pytest(CUDA_VISIBLE_DEVICES="")
        self.assertNotIn("gpu: ", printed.split("test session starts")[1].split("collected")[0])
        self.assertIn("1 passed, 2 skipped", printed)

    def test_a_pytest_within_another_program_says_what_to_do(self):
        program = self.home / "program.py"
        program.write_text("import pytest, sys\nsys.exit(pytest.main(['--gpu', 'software']))\n")
        done = self.run_command([PYTHON, program], None, 4)
        self.assertIn("causeway run --on software -- PROGRAM", done.stderr)
        # Started as it says, there is a GPU.
        program.write_text("import pytest, sys\nsys.exit(pytest.main([]))\n")
        causeway = PYTHON.parent / "causeway"
        done = self.run_command([causeway, "run", "--on", "software", "--", PYTHON, program], None)
        self.assertIn("2 passed, 1 skipped", done.stdout)

    def test_the_marker_is_known_and_the_option_explained(self):
        self.assertIn("@pytest.mark.gpu(count=1)", self.run_pytest("--markers"))
        self.assertIn("--gpu=SERVER", self.run_pytest("--help"))

    def test_nothing_is_loaded_where_no_gpu_is_asked_for(self):
        (self.home / "conftest.py").unlink()
        script = (
            "import json, pytest, sys\n"
            "pytest.main(['-q', '-k', 'processor'])\n"
            "print(json.dumps(['ctypes' in sys.modules, 'causeway' in open('/proc/self/maps').read()]))\n"
        )
        printed = self.run_python(script, None).stdout
        self.assertFalse(json.loads(printed.splitlines()[-1])[1], printed)


if __name__ == "__main__":
    unittest.main()
