"""Tests of what is said to have passed and failed."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest
from xml.etree import ElementTree

from gpu_test.commands import Outcome, run
from gpu_test.report import Case, Report, junit


class Reports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.report = Report(self.folder)
        self.addCleanup(self.report.file.close)

    def test_counts_are_of_a_part_or_of_all(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.report.begin("programs", [])
            self.report.passed("one", 1.0)
            self.assertFalse(self.report.check("two", "it hung"))
            self.report.skipped("three", "no NVRTC here")
            self.report.begin("nvml", [])
            self.assertTrue(self.report.check("list", None))
        self.assertEqual(self.report.counts("programs"), (1, 1))
        self.assertEqual(self.report.counts(), (2, 1))
        self.assertEqual(self.report.failures(), [])

    def test_all_files_are_written(self):
        self.report.data["x"] = 1
        with contextlib.redirect_stdout(io.StringIO()) as screen:
            self.report.table(program=8, native_run=4)
            self.report.row("a|b", 1)
        self.report.save()
        self.assertIn("| a/b      | 1    |", screen.getvalue())
        self.assertEqual(screen.getvalue(), (self.folder / "gpu-results.md").read_text())
        self.assertEqual(json.loads((self.folder / "gpu-results.json").read_text()), {"x": 1})
        ElementTree.parse(self.folder / "gpu-results.xml")


class Junit(unittest.TestCase):
    def test_each_part_is_a_suite_with_its_counts(self):
        cases = [
            Case("programs", "a", 1.5),
            Case("nvml", "c", skipped="no nvidia-smi"),
            Case("programs", "b", 0.5, failure="line one\nline two"),
        ]
        root = ElementTree.fromstring(junit(cases))
        suites = {suite.get("name"): suite for suite in root}
        self.assertEqual(list(suites), ["programs", "nvml"])
        programs = suites["programs"]
        counts = [programs.get(name) for name in ("tests", "failures", "skipped", "time")]
        self.assertEqual(counts, ["2", "1", "0", "2.000"])
        failure = programs.find("testcase[@name='b']/failure")
        self.assertEqual((failure.get("message"), failure.text), ("line one", "line one\nline two"))
        self.assertIsNotNone(suites["nvml"].find("testcase/skipped"))

    def test_what_xml_cannot_hold_is_replaced(self):
        root = ElementTree.fromstring(
            junit([Case("p", "a<&\"'>", failure="bell \x07, escape \x1b[31m, \ufffe")])
        )
        self.assertEqual(root.find(".//failure").text, "bell \ufffd, escape \ufffd[31m, \ufffd")
        self.assertEqual(root.find(".//testcase").get("name"), "a<&\"'>")


class Endings(unittest.TestCase):
    def test_the_last_word_of_a_program_is_its_reason(self):
        self.assertEqual(Outcome(3, "one\ntwo\n", "err", 1.0).reason(), "exit status 3; two")
        self.assertEqual(Outcome(-11, "", "err\n", 1.0).reason(), "ended by SIGSEGV; err")
        self.assertEqual(Outcome(-9, "", "", 2.0, timed_out=True).reason(), "still running after 2 s, killed")

    def test_a_command_that_hangs_is_killed_with_what_it_started(self):
        outcome = run(["sh", "-c", "echo begun; sleep 60 & sleep 60"], 0.3)
        self.assertTrue(outcome.timed_out)
        self.assertEqual(outcome.output, "begun\n")
        self.assertLess(outcome.seconds, 30)
