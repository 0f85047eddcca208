"""Tests of what is concluded from programs that are measured beside ours."""

import contextlib
import io
import os
import pathlib
import random
import tempfile
import unittest
from unittest import mock

from gpu_test.parts import beside
from gpu_test.report import Report

SEED = random.randrange(1 << 30)


class Results(unittest.TestCase):
    def test_medians_are_those_of_each_case_whatever_the_order(self):
        drawn = random.Random(SEED)
        cases = {("latency", "nvshmem", 8, 1, "us"): None, ("jacobi", "MPI", 16, 1024, "us"): None}
        lines = ["what a launcher says", "skipped\tjacobi by NCCL\tno libnccl", "row\tshort"]
        for case in cases:
            values = [drawn.uniform(1, 100) for _ in range(2 * drawn.randrange(1, 6) + 1)]
            cases[case] = sorted(values)[len(values) // 2]
            what, way, size, count, unit = case
            lines += [f"row\t{what}\t{way}\t{size}\t{count}\t{value!r}\t{unit}" for value in values]
        drawn.shuffle(lines)
        results, skipped = beside.medians("\n".join(lines))
        self.assertEqual(results, cases, f"seed {SEED}")
        self.assertEqual(skipped, ["jacobi by NCCL: no libnccl"])

    def test_direct_results_are_the_native_ones(self):
        def record(way, median):
            return {"what": "latency", "way": way, "bytes": 8, "count": 1, "summary": {"median": median}}

        report = mock.Mock(data={"device": {"latency native": [record("direct", 2), record("proxy", 5)]}})
        report.data["device"]["latency remote"] = [record("direct", 9)]
        self.assertEqual(beside.direct_results(report), {("latency", 8, 1): 2})

    def test_what_sending_adds_is_told(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            report = Report(pathlib.Path(folder))
            steps = {"by the kernel": 12.0, "compute alone": 10.0, "MPI": 40.0}
            beside.report_jacobi(
                report, "native", {("jacobi", way, 16, 4, "us"): time for way, time in steps.items()}
            )
            report.file.close()
        rows = [
            [cell.strip() for cell in line.split("|")[1:-1]]
            for line in said.getvalue().splitlines()
            if line.startswith("| 16 B")
        ]
        self.assertIn(["16 B", "by the kernel", "12", "2"], rows)
        self.assertIn(["16 B", "MPI", "40", "30"], rows)


class Missing(unittest.TestCase):
    def test_a_program_is_found_where_cuda_is_and_told_where_it_is_not(self):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root, "compute-sanitizer")
            folder.mkdir()
            program = folder / "compute-sanitizer"
            program.touch(0o755)
            nothing = {"CUDA_HOME": root, "PATH": "/nowhere"}
            with mock.patch.dict(os.environ, nothing), mock.patch.object(beside, "CUDA_FOLDERS", ()):
                self.assertEqual(beside.cuda_program("compute-sanitizer"), str(program))
                self.assertIsNone(beside.cuda_program("nvcc"))
                with mock.patch.object(beside, "package_folder", return_value=None):
                    self.assertIn("no NVSHMEM", beside.nvshmem_program(root)[2])
                with mock.patch.object(beside, "package_folder", return_value=folder):
                    self.assertIn("no nvcc", beside.nvshmem_program(root)[2])

    def test_packages_that_are_not_there_are_none(self):
        self.assertIsNone(beside.package_folder("no_such_library"))
