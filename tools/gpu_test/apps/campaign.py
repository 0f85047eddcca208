"""Runs the applications each way in turns, and gathers what they print."""

import json
import os
import pathlib
import site
import time
from dataclasses import dataclass, field

from gpu_test.bundle import BUNDLE, TREE
from gpu_test.commands import run

# A program that runs longer than this hangs.
PROGRAM_LIMIT_S = 120

# Results of one size that differ by more than this share are not the same. The programs check their results
# themselves, and more sharply: this is to see that all ways were given the same work.
SAME_CHECKSUM = 1e-3


@dataclass(frozen=True)
class Way:
    """How programs are run: natively, or through Causeway over one of its transports."""

    name: str
    prefix: tuple[str, ...] = ()  # the words in front of the program's own


@dataclass
class Results:
    """What was measured: one entry for each size that a program measured, and a sentence for each thing that
    went wrong."""

    paths: list[str]
    rounds: int = 0
    runs: list[dict] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def remote_paths(causeway, address, transports):
    """The ways through Causeway: one for each transport, or one over that which Causeway chooses if none is
    named."""
    prefix = (str(causeway), "run", "--on", address)
    if not transports:
        return [Way("remote", (*prefix, "--"))]
    return [Way(via, (*prefix, "--via", via, "--")) for via in transports]


def environment():
    """The variables with which programs find the CUDA runtime, cuBLAS and cuFFT: beside them, in a toolkit,
    or in Python's packages."""
    folders = [TREE / "build/cuda/lib", BUNDLE / "lib", pathlib.Path("/usr/local/cuda/lib64")]
    for packages in [*site.getsitepackages(), site.getusersitepackages()]:
        folders += sorted(pathlib.Path(packages).glob("nvidia/*/lib"))
    path = [str(folder) for folder in folders if folder.is_dir()]
    return {"LD_LIBRARY_PATH": ":".join([*path, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])}


def run_program(command, variables):
    """The JSON lines that a program prints, and why it failed, or None."""
    try:
        outcome = run(command, PROGRAM_LIMIT_S, variables)
    except OSError as error:
        return [], f"cannot be started: {error.strerror}"
    if outcome.timed_out:
        return [], f"was still running after {PROGRAM_LIMIT_S} s"
    try:
        lines = [json.loads(line) for line in outcome.output.splitlines()]
    except ValueError:
        return [], f"printed what is not JSON: {outcome.output.strip()}"
    if outcome.status != 0:
        reason = outcome.errors.strip() or "it did not say why"
        return lines, f"ended with status {outcome.status}: {reason}"
    return lines, None


def run_campaign(applications, scale, paths, programs, log=print):
    """Runs all applications each way, round by round, until there are enough rounds or time is up; `tell`
    hears how far it is.

    In a round the ways of one application follow each other at once, since the speed of shared machines
    varies from minute to minute, and each round begins with another way. What has failed is not run again."""
    results = Results([way.name for way in paths])
    variables = environment()
    start = time.monotonic()
    broken = set()
    longest = 0.0
    for number in range(scale.rounds):
        began = time.monotonic()
        if number > 0 and began - start + longest > scale.seconds:
            log(f"{number} of {scale.rounds} rounds: the time is up")
            break
        for application in applications:
            for turn in range(len(paths)):
                way = paths[(number + turn) % len(paths)]
                if (application.name, way.name) in broken:
                    continue
                arguments = application.arguments[scale.name].split()
                command = [*way.prefix, programs / application.name, *arguments]
                lines, failure = run_program(command, variables)
                results.runs += [{**line, "way": way.name, "round": number} for line in lines]
                if failure:
                    broken.add((application.name, way.name))
                    results.failures.append(f"{application.name}, {way.name}: {failure}")
        longest = max(longest, time.monotonic() - began)
        results.rounds = number + 1
        log(f"round {number + 1} of {scale.rounds}: {time.monotonic() - began:.0f} s")
    results.failures += differing_checksums(results.runs)
    return results


def differing_checksums(runs):
    """A sentence for each application and size whose results are not the same every time."""
    by_size = {}
    for one in runs:
        by_size.setdefault((one["app"], one["size"]), []).append(one)
    sentences = []
    for (app, size), same in by_size.items():
        low, high = (choose(same, key=lambda one: one["checksum"]) for choose in (min, max))
        if high["checksum"] - low["checksum"] > SAME_CHECKSUM * abs(high["checksum"]):
            of_each = " and ".join(f"{one['checksum']} ({one['way']})" for one in (low, high))
            sentences.append(f"{app} at size {size}: the checksum is {of_each}")
    return sentences
