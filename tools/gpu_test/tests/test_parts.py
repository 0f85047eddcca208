"""Tests of what the parts conclude from what programs say."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from gpu_test import requirements
from gpu_test.cli import read_parts
from gpu_test.commands import Outcome
from gpu_test.parts import everyday, mpi, two_gpus
from gpu_test.parts.bench import MIB, Checker, Results, check_all
from gpu_test.parts.counts import waiting_calls
from gpu_test.parts.programs import differing, matches, parse_programs
from gpu_test.parts.python import Pair, difference, result_of
from gpu_test.parts.servers import rates
from gpu_test.parts.shares import problem_of
from gpu_test.parts.suites import in_sample_order
from gpu_test.parts.yardstick import Metrics
from gpu_test.report import Report


def ended(status=0, output="", errors=""):
    return Outcome(status, output, errors, 0.1)


class CommandLine(unittest.TestCase):
    def test_words_behind_a_part_choose_from_it(self):
        parts = read_parts(["programs", "errors", "streams", "nvml"])
        self.assertEqual(parts, [("programs", ["errors", "streams"]), ("nvml", [])])
        with self.assertRaisesRegex(ValueError, "no part is called errors"):
            read_parts(["errors"])


class Shares(unittest.TestCase):
    def test_three_to_one_and_no_two_at_the_same_time(self):
        self.assertIsNone(problem_of([1440, 470], 5, 10, True))
        self.assertIn("2.56 to 1", problem_of([1370, 535], 5, 10, True))
        self.assertIn("same time", problem_of([1900, 1900], 5, 10, True))
        self.assertIn("0.48", problem_of([720, 240], 5, 10, True))
        self.assertIsNone(problem_of([720, 240], 5, 10, False))
        self.assertIsNone(problem_of([1990], 5, 10, True))
        self.assertIn("3 to 1", problem_of([100, 0], 100, 10, True))


class Suites(unittest.TestCase):
    def test_a_sample_has_nothing_to_do_with_the_names(self):
        names = [f"test_{number:03}" for number in range(100)]
        order = in_sample_order(names)
        self.assertEqual(in_sample_order(reversed(names)), order)
        self.assertEqual(sorted(order), names)
        self.assertTrue({int(name[5:]) // 25 for name in order[:20]} == {0, 1, 2, 3}, order[:20])


class Programs(unittest.TestCase):
    def program(self, row):
        return next(parse_programs(row))

    def test_a_row_is_a_program_for_each_variant(self):
        text = "# name variants needs expects arguments\n\nadd static,shared - pass 3 4\n"
        self.assertEqual([p.title for p in parse_programs(text)], ["add 3 4", "add.shared 3 4"])

    def test_each_expectation_is_told_from_its_opposite(self):
        passing = self.program("add static - pass")
        self.assertIsNone(passing.complaint(ended(output="x\nPASS add\n")))
        self.assertIsNotNone(passing.complaint(ended(output="PASS add\nx\n")))
        self.assertIsNotNone(passing.complaint(ended(1, "PASS add\n")))
        self.assertIsNotNone(passing.complaint(Outcome(0, "PASS add\n", "", 1.0, timed_out=True)))
        signal = self.program("add static - signal=6")
        self.assertIsNone(signal.complaint(ended(-6)))
        self.assertIsNone(signal.complaint(ended(134)))
        self.assertIsNotNone(signal.complaint(ended(0)))
        self.assertIsNone(self.program("add static - exit=3").complaint(ended(3)))

    def test_answers_may_differ_where_a_pattern_says_so(self):
        self.assertTrue(matches("clock of device 0", "clock*"))
        self.assertFalse(matches("a clock", "clock*"))
        native, remote = "clock = 1\nname = x\n", "clock = 2\nname = y\n"
        self.assertEqual(
            differing(native, remote, ["clock"]), "natively 'name = x', through Causeway 'name = y'"
        )
        self.assertIsNone(differing(native, remote, ["*"]))
        self.assertIn("1 answers, and 2 natively", differing(native, "clock = 2\n", ["*"]))


class PythonFiles(unittest.TestCase):
    def test_values_agree_within_what_they_allow(self):
        native = ended(output="# a note\nvalue loss 1.00 within 0.01\nok\n")
        self.assertIsNone(difference(native, ended(output="value loss 1.005 within 0.01\nok\n")))
        self.assertIn("loss", difference(native, ended(output="value loss 1.2 within 0.01\nok\n")))
        self.assertEqual(
            difference(native, ended(output="value loss 1 within 0.01\n")), "natively 2 lines, remotely 1"
        )

    def test_a_file_fails_that_is_skipped_remotely_alone(self):
        self.assertEqual([result_of(ended(status)) for status in (0, 77, 1)], ["ok", "skipped", "FAIL"])
        self.assertTrue(Pair("f", {"native": ended(), "remote": ended(77)}).failed)
        self.assertFalse(Pair("f", {"native": ended(77), "remote": ended(77)}).failed)
        self.assertFalse(Pair("f", {"remote": ended()}).failed)
        self.assertTrue(Pair("f", {"native": ended(output="1"), "remote": ended(output="2")}).failed)


class Everyday(unittest.TestCase):
    def test_launches_of_a_trace_are_those_of_the_program_in_its_order(self):
        output = "busy 10: 1.5\nbusy 20: 3.0\nbusy 10: 1.7\nPASS kernel_times\n"
        self.assertEqual(everyday.own_times(output), {10: [1.5, 1.7], 20: [3.0]})
        spans = [
            {"cat": "device", "name": "_Z4busyPffi", "ts": at, "dur": took} for at, took in ((9, 3), (1, 2))
        ]
        other = {"cat": "call", "name": "busy", "ts": 0, "dur": 100}
        traced = {"traceEvents": [*spans, other, {"name": "process_name", "ph": "M"}]}
        self.assertEqual(everyday.traced_times(traced, [10, 20]), {10: [2], 20: [3]})
        with self.assertRaisesRegex(everyday.Wrong, "2 of 3 launches"):
            everyday.traced_times(traced, [10, 20, 10])

    def test_a_time_in_a_trace_is_held_to_the_native_one(self):
        self.assertTrue(everyday.fits(1000, 1200, 1000) and everyday.fits(900, 1200))
        self.assertFalse(everyday.fits(800, 1000, 1000) or everyday.fits(1200, 1300, 1000))
        self.assertFalse(everyday.fits(1200, 1000))

    def test_samples_of_all_labels_are_added(self):
        page = '# TYPE a counter\na{x="1"} 2\na{x="2"} 3\nab 7\n'
        self.assertEqual(everyday.sample(page, "a{"), 5)
        self.assertEqual(everyday.sample(page, "nothing"), 0)


class Figured(unittest.TestCase):
    def test_rates_leave_out_the_first_line(self):
        output = "to_device_0 1 to_device_1 1\n" + "to_device_0 3000 to_device_1 4000\n" * 3
        self.assertEqual(rates(output), [3.0, 4.0])
        self.assertIsNone(rates(""))

    def test_calls_that_wait_are_counted(self):
        counts = {"calls": {"cuInit": {"called": 2, "local": 1}, "cuLaunchKernel": {"posted": 5}}}
        self.assertEqual(waiting_calls(counts), {"cuInit": 2})

    def test_requirements_compare_medians(self):
        more = requirements.at_most_more("x", 3)
        self.assertEqual(more.verdict([10, 11, 90], [14, 14, 15]), "met")
        self.assertEqual(more.verdict([10, 11, 90], [15]), "MISSED")
        self.assertEqual(more.verdict([], [15]), "unknown")
        self.assertEqual(requirements.at_most("x", 1).verdict([], [1]), "met")
        self.assertEqual(requirements.always_true("x").verdict([], [1, 0]), "MISSED")
        self.assertEqual(requirements.within_spread("x").verdict([1, 3], [2, 9, 0]), "met")
        self.assertEqual(requirements.at_least_times("x", 0.5).verdict([4], [1]), "MISSED")

    def test_a_verdict_counts_as_its_worst(self):
        metrics = Metrics()
        for value in (1, 0, 1):
            metrics.add("tcp", "all_correct", value, "bool")
            metrics.add("tcp", "time", value, "us")
        self.assertEqual((metrics.median("all_correct", "tcp"), metrics.median("time", "tcp")), (0, 1))
        self.assertEqual(metrics.ratio("time", "tcp"), "-")


class Bench(unittest.TestCase):
    def test_rates_are_judged_and_what_is_unknown_does_not_count(self):
        results = Results()
        for target, rate in (("native", 50.0), ("remote", 49.5)):
            results.medians["shm", target, "pinned_to_device", 16 * MIB, "gb_per_s"] = rate
            results.medians["shm", target, "pinned_to_device", 64 * MIB, "gb_per_s"] = (
                rate if target == "native" else 40
            )
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            report = Report(pathlib.Path(folder))
            report.table(metric=52, module=6, required=36, measured=14, verdict=8)
            check = Checker(report, results, None)
            check_all(check, ["shm"])
            report.file.close()
        self.assertEqual(report.counts(), (1, 1))
        verdicts = {row["metric"]: row["verdict"] for row in check.rows}
        self.assertEqual(verdicts["pinned copy to the device, 16 MiB"], "met")
        self.assertEqual(verdicts["pinned copy to the device, 64 MiB"], "MISSED")
        self.assertEqual(verdicts["launch, synchronise"], "unknown")


class Messages(unittest.TestCase):
    def results(self, rows):
        results = mpi.Results()
        results.medians = {("native", *key): value for key, value in rows.items()}
        return results

    def verdicts(self, results):
        return {text: misses for text, compared, misses in mpi.requirements(results) if compared}

    def test_the_choice_is_compared_with_the_best_channel_alone(self):
        alone = {("same", channel, "latency", "gpu", 8): value for channel, value in (("vmm", 9), ("ipc", 5))}
        for chosen, missed in ((5.29, 0), (5.31, 1)):
            results = self.results(alone | {("same", "auto", "latency", "gpu", 8): chosen})
            self.assertEqual(mpi.check_choice(results, "native", "same", "gpu", "latency")[0], 1)
            self.assertEqual(len(mpi.check_choice(results, "native", "same", "gpu", "latency")[1]), missed)

    def test_rates_and_times_are_judged_the_right_way_round(self):
        size = 16 * MIB
        rows = {
            ("same", "auto", "copy_bandwidth", "exportable", size): 1000,
            ("same", "auto", "bandwidth", "exportable", size): 960,
            ("isolated", "auto", "bandwidth", "exportable", size): 900,
            ("same", "auto", "latency", "gpu", 8): 3,
            ("same", "none", "latency", "gpu", 8): 4,
            ("same", "auto", "copy_latency", "gpu", 8): 2,
        }
        verdicts = self.verdicts(self.results(rows))
        text = "native, {}, exportable, from 16 MiB: at least 0.95 of bare copies"
        self.assertEqual(verdicts[text.format("same")], [])
        self.assertEqual(len(verdicts[text.format("isolated")]), 1)
        self.assertEqual(
            verdicts["native, exportable, bandwidth: isolated within 5 % of one place"],
            ["16777216 B: 900, and in one place 960"],
        )
        self.assertEqual(verdicts["native, same, gpu: latency below UCX's"], [])
        self.assertEqual(len(verdicts["native, gpu: 8 B take at most 1.3 x a bare copy"]), 1)

    def test_without_mps_nothing_is_judged_where_there_is_mps(self):
        row = ("same", "auto", "latency", "gpu", 8)
        copy = ("same", "auto", "copy_latency", "gpu", 8)
        results = self.results({row: 160, copy: 10})
        self.assertEqual(len(self.verdicts(results)), 1)
        results.medians |= {("native under MPS", *key[1:]): 12 for key in list(results.medians)}
        verdicts = self.verdicts(results)
        self.assertEqual(verdicts, {"native under MPS, gpu: 8 B take at most 1.3 x a bare copy": []})

    def test_two_gpus_are_judged_by_copies_between_them(self):
        size = 16 * MIB
        rows = {
            ("same", "auto", "copy_bandwidth", "gpu", size): 390,
            ("same", "auto", "bandwidth", "gpu", size): 371,
            ("isolated", "auto", "bandwidth", "gpu", size): 290,
            ("isolated", "auto", "latency", "gpu", 8): 16,
            ("isolated", "none", "latency", "gpu", 8): 15,
        }
        found = two_gpus.requirements(self.results(rows))
        misses = {text: misses for text, compared, misses in found if compared}
        self.assertEqual(misses["same, gpu, from 16 MiB: at least 0.95 of a copy from GPU to GPU"], [])
        self.assertEqual(
            misses["isolated, gpu, from 16 MiB: at least 0.95 of a copy from GPU to GPU"],
            ["16777216 B: 290, and a copy 390"],
        )
        bounced = "isolated, gpu, from 256 KiB: at least 0.75 of a copy from GPU to GPU"
        self.assertEqual(misses[bounced], ["16777216 B: 290, and a copy 390"])
        self.assertEqual(misses["isolated, gpu: latency below UCX's"], ["8 B: 16, and UCX 15"])
        self.assertNotIn("exportable, bandwidth: isolated within 5 % of one place", misses)

    def test_what_a_job_said_first_is_told(self):
        self.assertEqual(mpi.first("one\n\n two\n" + "farewell\n" * 9, 3), "one / two / farewell")
