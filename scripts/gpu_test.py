#!/usr/bin/env python3
"""Tests Causeway on a machine with a GPU, from the bundle that this file lies in: no Rust, no network.

Every program runs natively and through Causeway, with client and server on this machine over loopback TCP. Each part takes
less than eight minutes; a program that hangs costs only itself. Results are appended to $OUT/gpu-results.txt, or to
build/gpu-results.txt beside the bundle."""

import argparse
import os
import pathlib
import sys
import time

import yardstick
from gpu_harness import BUNDLE, Report, Running, Server, machine, run

PROGRAM_LIMIT_S = 60
PART_LIMIT_S = 450


class Program:
    """One row of programs.txt in one variant."""

    def __init__(self, name, variant, needs, expects, arguments):
        self.name, self.needs, self.expects = name, needs, expects
        file = name if variant in ("static", "driver") else f"{name}.{variant}"
        self.command = [BUNDLE / "programs" / file, *arguments]
        self.title = " ".join([file, *arguments])

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
        return None


def read_programs():
    for line in (BUNDLE / "programs.txt").read_text().splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            name, variants, needs, expects, *arguments = words
            for variant in variants.split(","):
                yield Program(name, variant, needs, expects, arguments)


def library_path():
    """The runtimes of the bundle first, then the toolkit's folder for NVRTC."""
    folders = [str(BUNDLE / "lib"), "/usr/local/cuda/lib64"]
    return ":".join(folders + [f for f in [os.environ.get("LD_LIBRARY_PATH")] if f])


def has_nvrtc():
    folders = [pathlib.Path(folder) for folder in library_path().split(":")]
    return any(list(folder.glob("libnvrtc.so.1[23]")) for folder in folders)


def run_programs(report, server, native):
    """Runs all programs both ways; returns (passed, failed)."""
    environment = {"LD_LIBRARY_PATH": library_path()}
    deadline = time.monotonic() + PART_LIMIT_S
    passed, complaints = 0, []

    def judge(program, way, outcomes):
        nonlocal passed
        wrong = next((c for c in map(program.complaint, outcomes) if c), None)
        seconds = max(outcome.seconds for outcome in outcomes)
        if wrong is None:
            passed += 1
            return f"ok   {seconds:6.2f} s"
        complaints.append(f"{program.title}, {way}: {wrong}")
        return f"FAIL {seconds:6.2f} s"

    report.line(f"{'program':40} {'native':14} {'remote':14}")
    for program in read_programs():
        if time.monotonic() > deadline:
            complaints.append(f"{program.title}: not run, the part's time was up")
            continue
        if program.needs == "nvrtc" and not has_nvrtc():
            report.line(f"{program.title:40} skipped: there is no NVRTC on this machine")
            continue
        columns = []
        for way in ("native", "remote"):
            if way == "native" and (not native or program.needs == "causeway"):
                columns.append("-")
                continue
            wrap = server.command if way == "remote" else list
            limit = min(PROGRAM_LIMIT_S, max(1, deadline - time.monotonic()))
            columns.append(judge(program, way, [run(wrap(program.command), limit, environment)]))
        report.line(f"{program.title:40} {columns[0]:14} {columns[1]:14}")
        if program.needs == "twice":
            at_once = [Running(server.command(program.command), environment) for _ in range(2)]
            column = judge(program, "remote, two at once", [running.wait(PROGRAM_LIMIT_S) for running in at_once])
            report.line(f"{program.title + ' (two at once)':40} {'-':14} {column:14}")
    if server.deaths:
        complaints.append(f"the server died {server.deaths} times and was restarted")
    for complaint in complaints:
        report.line(f"FAIL {complaint}")
    return passed, len(complaints)


def main():
    parts = {
        "programs": run_programs,
        "yardstick": yardstick.run_all,
        "yardstick-cuda": yardstick.run_cuda,
        "yardstick-torch": yardstick.run_torch,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(parts)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of: {names} (default: $PARTS, or the first two)")
    parser.add_argument("--gpu", default="driver", help="the server's GPU: driver, or cpu to try this script without a GPU")
    arguments = parser.parse_args()
    chosen = arguments.parts or os.environ.get("PARTS", "").split() or ["programs", "yardstick"]
    unknown = [part for part in chosen if part not in parts]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; there are {names}")

    folder = pathlib.Path(os.environ.get("OUT") or BUNDLE.parent)
    report = Report(folder / "gpu-results.txt")
    server = Server(arguments.gpu, folder / "gpu-server.log")
    passed = failed = 0
    try:
        for part in chosen:
            report.line(f"== {part} == {machine()}")
            start = time.monotonic()
            part_passed, part_failed = parts[part](report, server, native=arguments.gpu == "driver")
            passed, failed = passed + part_passed, failed + part_failed
            report.line(f"== {part}: {part_passed} passed, {part_failed} failed, {time.monotonic() - start:.0f} s")
            report.line()
    finally:
        server.stop()
    report.line(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
