"""Runs a module by unittest and appends a line of JSON to a file for each test.

    outcomes.py FILE MODULE [--only TEXT] [--without TEST]...
"""

import argparse
import json
import unittest


class Result(unittest.TextTestResult):
    """Notes the outcome of each test as it ends, so that those before a crash are known."""

    file = None

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "passed"

    def stopTest(self, test):
        super().stopTest(test)
        self.note(test.id(), self.outcome)

    def note(self, name, outcome):
        self.file.write(json.dumps([name, outcome]) + "\n")
        self.file.flush()

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.outcome = "failed"

    def addError(self, test, err):
        super().addError(test, err)
        self.outcome = "error"
        # A module that cannot be imported, or a fixture of a class.
        if not isinstance(test, unittest.TestCase):
            self.note(test.id(), "error")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.outcome = "failed" if issubclass(err[0], test.failureException) else "error"

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcome = "skipped"

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.outcome = "expected failure"

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.outcome = "unexpected success"


def each_test(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from each_test(test)
        else:
            yield test


def is_chosen(test, options):
    """Whether a test is to run; one that stands for a module that cannot be imported always does."""
    name = test.id().rpartition(".")[2]
    is_of_test = not type(test).__module__.startswith("unittest.")
    return not is_of_test or (options.only in name and name not in options.without)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("module")
    parser.add_argument("--only", default="", help="a text that the names of the tests contain")
    parser.add_argument("--without", action="append", default=[], help="the name of a test that is not run")
    options = parser.parse_args()
    with open(options.file, "a", encoding="utf-8") as file:
        Result.file = file
        tests = unittest.defaultTestLoader.loadTestsFromName(options.module)
        tests = unittest.TestSuite(test for test in each_test(tests) if is_chosen(test, options))
        unittest.TextTestRunner(verbosity=2, resultclass=Result).run(tests)


if __name__ == "__main__":
    main()
