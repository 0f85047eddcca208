#!/usr/bin/env python3
"""Runs built fuzz targets, each in several processes, and says how many inputs were tried and what was found.

It runs in a folder that `scripts/fuzz.sh` packed, on any machine with Python: nothing of Rust and no network is needed.

    run.py --seconds 60                          each target for a minute, in as many processes as there are cores
    run.py frames=1e8 ptx_run=1e6 --limit 480    so many inputs of these targets, all within 8 minutes

Exit status: 0 when nothing was found, 1 when something was, 2 when a target could not run or fell short of its inputs.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent

# A target that works on one input for longer has hung: the slowest kernels take some tenths of a second.
MAX_SECONDS = 60
# What one process may have in memory; the targets that reserve addresses for a GPU touch few of them.
MAX_MEMORY_MIB = 2048

# Exit statuses of libFuzzer, and what they mean (`-timeout_exitcode`, `-oom_exitcode`, `-error_exitcode`).
ENDINGS = {0: None, 70: "a hang", 71: "too much memory", 77: "a crash"}


@dataclass
class Share:
    """What one process has to do: so many inputs, or as many as it tries in so many seconds."""

    target: str
    number: int
    inputs: int | None


@dataclass
class Outcome:
    """How one process ended."""

    inputs: int
    seconds: float
    found: str | None
    text: str = ""


@dataclass
class Target:
    """All processes of one target."""

    name: str
    wanted: int | None
    outcomes: list[Outcome] = field(default_factory=list)
    findings: list[dict] = field(default_factory=list)

    def inputs(self):
        return sum(outcome.inputs for outcome in self.outcomes)

    def a_second(self):
        """Inputs a second and process."""
        return self.inputs() / max(sum(outcome.seconds for outcome in self.outcomes), 1e-9)

    def is_short(self):
        """Whether it tried fewer inputs than it was asked to, although nothing stopped it."""
        wanted = 1 if self.wanted is None else self.wanted
        return not self.findings and self.inputs() < wanted

    def line(self):
        found = "nothing found" if not self.findings else f"{len(self.findings)} FOUND"
        short = f", of {self.wanted:,} asked for" if self.wanted is not None and self.is_short() else ""
        return f"{self.name:<16} {self.inputs():>13,} inputs{short}, {self.a_second():>9,.0f} a second and process, {found}"

    def report(self):
        return {
            "target": self.name,
            "inputs": self.inputs(),
            "inputs_wanted": self.wanted,
            "inputs_a_second_and_process": round(self.a_second(), 1),
            "process_seconds": round(sum(outcome.seconds for outcome in self.outcomes), 1),
            "findings": self.findings,
        }


def shares_of(target, wanted, processes):
    """Divides a target's inputs among so many processes; without a number each runs until its time is up."""
    if wanted is None:
        return [Share(target, number, None) for number in range(processes)]
    processes = max(1, min(processes, wanted))
    each, rest = divmod(wanted, processes)
    return [Share(target, number, each + (number < rest)) for number in range(processes)]


def read_ending(status, log):
    """How many inputs a process tried, and what it found, from its exit status and what it printed."""
    executed = re.findall(r"^stat::number_of_executed_units:\s*(\d+)", log, re.MULTILINE)
    # One that was killed has printed no statistics; what it had counted stands at the beginning of a line.
    progress = re.findall(r"^#(\d+)\s", log, re.MULTILINE)
    inputs = int((executed or progress or ["0"])[-1])
    return inputs, ENDINGS.get(status, f"an end with status {status}")


def run_share(share, settings, seconds):
    """Runs one process to its end; returns the outcome, and the inputs that it saved as findings."""
    binary = settings.folder / "bin" / share.target
    with tempfile.TemporaryDirectory(prefix="causeway-fuzz-") as work:
        corpus, saved, log = Path(work, "corpus"), Path(work, "saved"), Path(work, "log")
        saved.mkdir()
        corpus.mkdir()
        known = settings.kept(share.target)
        for source in (settings.folder / "corpus" / share.target, known):
            if source.is_dir():
                shutil.copytree(source, corpus, dirs_exist_ok=True)
        command = [
            binary,
            f"-max_len={settings.targets[share.target]['longest_input']}",
            f"-seed={settings.seed + share.number}",
            f"-timeout={MAX_SECONDS}",
            f"-rss_limit_mb={MAX_MEMORY_MIB}",
            f"-artifact_prefix={saved}/",
            f"-max_total_time={max(1, round(seconds))}",
            "-print_final_stats=1",
            "-verbosity=1",
        ]
        if share.inputs is not None:
            command.append(f"-runs={share.inputs}")
        begun = time.monotonic()
        with open(log, "wb") as out:
            # The time limit of libFuzzer is looked at between inputs only.
            try:
                status = subprocess.run(
                    [*command, corpus], stdout=out, stderr=out, cwd=work, timeout=seconds + 2 * MAX_SECONDS
                ).returncode
            except subprocess.TimeoutExpired:
                status = 70
        elapsed = time.monotonic() - begun
        text = log.read_text(errors="replace")
        inputs, found = read_ending(status, text)
        if settings.keep is not None and found is None:
            shutil.copytree(corpus, known, dirs_exist_ok=True)
        findings = []
        if found is not None:
            folder = settings.output / "findings" / share.target
            folder.mkdir(parents=True, exist_ok=True)
            files = [shutil.copy(file, folder / file.name) for file in sorted(saved.iterdir())]
            (folder / f"process-{share.number}.log").write_text(text)
            last = [line for line in text.splitlines() if not line.startswith(("#", "stat::"))]
            findings.append({"what": found, "inputs": [str(file) for file in files], "log": last[-40:]})
        return Outcome(inputs, elapsed, found), findings


@dataclass
class Settings:
    """Where things are, and how targets are run."""

    folder: Path
    output: Path
    keep: Path | None
    targets: dict
    seed: int
    processes: int

    def kept(self, target):
        return (self.keep or self.output / "nothing") / target


def run_at_once(targets, settings, limit):
    """Runs numbers of inputs of all targets, in as many processes at a time as there may be, until `limit` seconds are over."""
    end = time.monotonic() + limit
    shares = [share for target in targets for share in shares_of(target.name, target.wanted, settings.processes)]

    def run(share):
        left = end - time.monotonic()
        return share, *(run_share(share, settings, left) if left > 0 else (Outcome(0, 0, None), []))

    by_name = {target.name: target for target in targets}
    with ThreadPoolExecutor(settings.processes) as pool:
        for share, outcome, findings in pool.map(run, shares):
            by_name[share.target].outcomes.append(outcome)
            by_name[share.target].findings.extend(findings)
    for target in targets:
        print(target.line(), flush=True)


def run_in_turn(targets, settings, seconds):
    """Runs each target for so many seconds, one after the other, each in as many processes as there may be."""
    for target in targets:
        with ThreadPoolExecutor(settings.processes) as pool:
            shares = shares_of(target.name, None, settings.processes)
            for outcome, findings in pool.map(lambda share: run_share(share, settings, seconds), shares):
                target.outcomes.append(outcome)
                target.findings.extend(findings)
        print(target.line(), flush=True)


def minimise(names, settings, into):
    """Writes, for each target, the fewest inputs of its corpora that reach all that these reach."""
    for name in names:
        folder = into / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        sources = [folder for folder in (settings.folder / "corpus" / name, settings.kept(name)) if folder.is_dir()]
        length = settings.targets[name]["longest_input"]
        command = [settings.folder / "bin" / name, "-set_cover_merge=1", "-use_counters=0", f"-max_len={length}", folder, *sources]
        with tempfile.TemporaryDirectory() as work:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=work, text=True)
        if done.returncode != 0:
            sys.exit(f"run.py: the corpus of {name} could not be minimised:\n{done.stdout[-2000:]}")
        # Short names, of what the input is: 12 digits of libFuzzer's hash tell them apart.
        for file in folder.iterdir():
            file.rename(folder / file.name[:12])
        files = list(folder.iterdir())
        print(f"{name:<16} {len(files)} inputs, {sum(file.stat().st_size for file in files):,} bytes")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET[=INPUTS]", help="which targets, and how many inputs; all without")
    parser.add_argument("--folder", type=Path, default=HERE, help="where bin/, corpus/ and targets.json are (default: here)")
    parser.add_argument("--seconds", type=float, default=60, help="for how long each target runs that has no number of inputs")
    parser.add_argument("--limit", type=float, default=3600, help="for how many seconds all that have one run at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="how many run at a time (default: one a core)")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000 + 1, help="of the first process of each target")
    parser.add_argument("--output", type=Path, default=Path("fuzz-report"), help="folder for report.json and what is found")
    parser.add_argument("--keep", type=Path, help="folder of grown corpora: processes start from it, and add to it")
    parser.add_argument("--minimise", type=Path, metavar="FOLDER", help="run nothing; write minimal corpora there")
    return parser.parse_args(arguments)


def unpack(binary):
    """Unpacks a target's program, if it is packed and that has not been done."""
    packed = binary.with_name(binary.name + ".gz")
    if packed.exists() and not binary.exists():
        with gzip.open(packed) as source, open(binary, "wb") as out:
            shutil.copyfileobj(source, out)
        binary.chmod(0o755)


def chosen(words, known):
    """The targets that the words name, with numbers of inputs where they have some."""
    targets = []
    for word in words or known:
        name, _, number = word.partition("=")
        if name not in known:
            sys.exit(f"run.py: there is no target {name}; there are {', '.join(known)}")
        try:
            targets.append(Target(name, int(float(number)) if number else None))
        except ValueError:
            sys.exit(f"run.py: {number} is no number of inputs; say {name}=1000000 or {name}=1e6")
    return targets


def main():
    options = parse(sys.argv[1:])
    known = json.loads((options.folder / "targets.json").read_text())
    targets = chosen(options.targets, known)
    for target in targets:
        binary = options.folder / "bin" / target.name
        unpack(binary)
        if not os.access(binary, os.X_OK):
            sys.exit(f"run.py: there is no program {binary}; scripts/fuzz.sh builds it")
    settings = Settings(
        options.folder.resolve(),
        options.output.resolve(),
        options.keep and options.keep.resolve(),
        known,
        options.seed,
        max(1, options.processes),
    )
    if options.minimise:
        return minimise([target.name for target in targets], settings, options.minimise.resolve())
    settings.output.mkdir(parents=True, exist_ok=True)
    run_at_once([target for target in targets if target.wanted is not None], settings, options.limit)
    run_in_turn([target for target in targets if target.wanted is None], settings, options.seconds)
    report = {"seed": settings.seed, "processes": settings.processes, "targets": [target.report() for target in targets]}
    (settings.output / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    for target in targets:
        for finding in target.findings:
            print(f"\n{target.name}: {finding['what']}; the input: {', '.join(finding['inputs']) or 'not saved'}")
            print("\n".join("    " + line for line in finding["log"]))
    if any(target.findings for target in targets):
        return 1
    return 2 if any(target.is_short() for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
