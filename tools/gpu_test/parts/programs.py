"""The programs of tests/cuda, natively and through Causeway: each must do what its row in programs.txt
says."""

import os
import pathlib
import re
import time

from gpu_test.bundle import BUNDLE
from gpu_test.commands import Running, run

PROGRAM_LIMIT_S = 60
# So many answers that differ are shown.
MAX_EXPORTED = 20
PART_LIMIT_S = 450


class Program:
    """One row of programs.txt in one variant."""

    def __init__(self, name, variant, needs, expects, arguments):
        self.name, self.needs, self.expects = name, needs, expects
        file = name if variant in ("static", "driver") else f"{name}.{variant}"
        self.command = [BUNDLE / "programs" / file, *arguments]
        self.title = " ".join([file, *arguments])
        self.native_results = None

    def complaint(self, outcome):
        """Why the outcome is not what programs.txt expects; None when it is."""
        kind, _, number = self.expects.partition("=")
        if kind == "exit":
            right = outcome.status == int(number)
        elif kind == "signal":
            # A shell's way to report a signal is right, too.
            right = outcome.status in (-int(number), 128 + int(number))
        else:
            right = outcome.status == 0 and outcome.output.splitlines()[-1:] == [f"PASS {self.name}"]
        if outcome.timed_out or not right:
            return outcome.reason()
        if kind == "output" and outcome.output != (BUNDLE / "expected" / f"{self.name}.txt").read_text():
            return f"its output is not that of expected/{self.name}.txt:\n{outcome.output}"
        # Without a native run there is nothing to compare with.
        if kind == "answers" and self.native_results is not None:
            return differing(self.native_results, outcome.output, allowed_to_differ(self.name))
        return None


def allowed_to_differ(name):
    """The patterns of what may be answered in another way than natively."""
    lines = (BUNDLE / "expected" / f"{name}.differ").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def matches(what, pattern):
    """Whether `what` is the pattern, in which each `*` is any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), what) is not None


def differing(native, remote, patterns):
    """The first lines of `what = answer` that differ and may not; None when there are none."""
    native, remote = native.splitlines(), remote.splitlines()
    if len(native) != len(remote):
        return f"it gave {len(remote)} answers, and {len(native)} natively"
    wrong = []
    for here, there in zip(native, remote, strict=True):
        what = here.split(" = ")[0]
        if here != there and not any(matches(what, pattern) for pattern in patterns):
            wrong.append(f"natively {here!r}, through Causeway {there!r}")
    return "\n".join(wrong[:MAX_EXPORTED]) or None


def parse_programs(text):
    """The rows of programs.txt, a program for each variant."""
    for line in text.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            name, variants, needs, expects, *arguments = words
            for variant in variants.split(","):
                yield Program(name, variant, needs, expects, arguments)


def library_path():
    """The runtimes of the bundle first, then the toolkit's folder for NVRTC."""
    folders = [str(BUNDLE / "lib"), "/usr/local/cuda/lib64", os.environ.get("LD_LIBRARY_PATH")]
    return ":".join(filter(None, folders))


# What programs may need of NVIDIA's that is no part of the bundle, and the files that it is in.
LIBRARIES = {"nvrtc": ["libnvrtc.so.1[23]"], "nvjitlink": ["libnvJitLink.so.13", "libnvrtc.so.13"]}


def lacks(needs):
    """Whether a program needs a library that is not there."""
    folders = [pathlib.Path(folder) for folder in library_path().split(":")]
    return not all(any(list(folder.glob(name)) for folder in folders) for name in LIBRARIES.get(needs, []))


def run_programs(session):
    """Runs all programs both ways."""
    report, server = session.report, session.server
    environment = {"LD_LIBRARY_PATH": library_path()}
    deadline = time.monotonic() + PART_LIMIT_S

    def check(program, way, outcomes):
        wrong = next(filter(None, map(program.complaint, outcomes)), None)
        seconds = max(outcome.seconds for outcome in outcomes)
        good = report.check(f"{program.title}, {way}", wrong, seconds)
        return f"{'ok' if good else 'FAIL'} {seconds:.2f} s"

    report.table(program=36, native=12, remote=12)
    for program in parse_programs((BUNDLE / "programs.txt").read_text()):
        if not session.is_selected(program.title):
            continue
        if time.monotonic() > deadline:
            report.failed(program.title, "not run, the part's time was up")
            continue
        if program.needs == "software":
            report.row(program.title, "for the software GPU", "skipped")
            continue
        if lacks(program.needs):
            report.row(program.title, f"no {program.needs} here", "skipped")
            report.skipped(program.title, f"there is no {program.needs} here")
            continue
        columns = {"native": "-"}
        for way, wrap in session.paths():
            if way == "native" and program.needs == "causeway":
                continue
            limit = min(PROGRAM_LIMIT_S, max(1, deadline - time.monotonic()))
            outcome = run(wrap(program.command), limit, environment)
            if way == "native":
                program.native_results = outcome.output
            columns[way] = check(program, way, [outcome])
        report.row(program.title, columns["native"], columns["remote"])
        if program.needs == "twice":
            at_once = [Running(server.command(program.command), environment) for _ in range(2)]
            outcomes = [running.wait(PROGRAM_LIMIT_S) for running in at_once]
            report.row(f"{program.title}, two at once", "-", check(program, "remote, two at once", outcomes))
    session.report_deaths()
    report.list_failures()
    passed, _ = report.counts("programs")
    failed = [f"{case.name}: {case.failure}" for case in report.failures()]
    report.data["programs"] = {"passed": passed, "failed": failed}
