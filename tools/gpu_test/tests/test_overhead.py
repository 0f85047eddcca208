"""Tests of the arithmetic of the applications' report."""

import unittest

from gpu_test.apps.applications import APPLICATIONS
from gpu_test.apps.campaign import Results, differing_checksums
from gpu_test.apps.overhead import checks, markdown, mean_overhead, overheads


def run(way, number, seconds, app="cublas", size=1024, checksum=1.0):
    return {
        "app": app,
        "size": size,
        "way": way,
        "round": number,
        "seconds": seconds,
        "setup_seconds": 0.1,
        "checksum": checksum,
    }


class Overheads(unittest.TestCase):
    def test_are_of_pairs_within_a_round(self):
        # The machine was twice as slow in the second round, natively and remotely.
        runs = [
            run("native", 0, 1.0),
            run("tcp", 0, 1.1),
            run("tcp", 1, 2.2),
            run("native", 1, 2.0),
            run("tcp", 2, 9.0),
        ]
        self.assertEqual([round(value, 6) for value in overheads(runs, "cublas", 1024, "tcp")], [10.0, 10.0])

    def test_the_mean_weighs_all_sizes_alike(self):
        runs = [
            run("native", 0, 0.001),
            run("tcp", 0, 0.0012),
            run("native", 0, 10.0, size=2048),
            run("tcp", 0, 10.0, size=2048),
        ]
        self.assertAlmostEqual(mean_overhead(runs, "cublas", "tcp"), 10.0)

    def test_there_is_none_without_a_native_run_of_every_size(self):
        runs = [run("native", 0, 1.0), run("tcp", 0, 1.0), run("tcp", 0, 1.0, size=2048)]
        self.assertIsNone(mean_overhead(runs, "cublas", "tcp"))

    def test_requirements_are_judged_by_way(self):
        runs = [run("native", 0, 1.0), run("tcp", 0, 1.09), run("shm", 0, 1.01)]
        verdicts = {way: met for _, way, _, _, met in checks(Results(["native", "tcp", "shm"], 1, runs))}
        self.assertEqual(verdicts, {"tcp": True, "shm": False})

    def test_what_was_not_measured_is_unknown(self):
        verdicts = [met for *_, met in checks(Results(["tcp"], 1, [run("tcp", 0, 1.0)]))]
        self.assertEqual(verdicts, [None])


class Reports(unittest.TestCase):
    def test_results_that_differ_are_told(self):
        runs = [run("native", 0, 1.0, checksum=-5.0), run("tcp", 0, 1.0, checksum=-5.1)]
        self.assertEqual(len(differing_checksums(runs)), 1)
        self.assertEqual(
            differing_checksums([run("native", 0, 1.0, checksum=-5.0), run("tcp", 0, 1.0, checksum=-5.0001)]),
            [],
        )

    def test_tables_hold_what_there_is(self):
        results = Results(
            ["native", "tcp"],
            1,
            [run("native", 0, 0.5), run("tcp", 0, 0.6)],
            ["cufft, tcp: ended with status 1"],
        )
        lines = markdown(results, APPLICATIONS, check=True)
        self.assertTrue(any("500.00" in line and "+20.0 %" in line for line in lines), lines)
        self.assertTrue(any("MISSED" in line for line in lines))
        self.assertEqual(lines[-1], "FAIL cufft, tcp: ended with status 1")
