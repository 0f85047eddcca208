"""Runs a module by unittest and appends a line of JSON to a file for each test: `outcomes.py FILE MODULE`."""

import json
import sys
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


def main():
    path, module = sys.argv[1:]
    with open(path, "a", encoding="utf-8") as file:
        Result.file = file
        tests = unittest.defaultTestLoader.loadTestsFromName(module)
        unittest.TextTestRunner(verbosity=2, resultclass=Result).run(tests)


if __name__ == "__main__":
    main()
