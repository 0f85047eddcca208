#!/usr/bin/env python3
"""Breaks the order of copies on purpose, one way after the other, and checks that the model test finds each.

Each file of the folder `mutations` is a fault as a unified diff. It is applied to a copy of the tree, which is built, and the model test
runs on that: `--first`, over TCP, and over shared memory if it has not been found by then, for so many seconds each. Before all of them
the tree as it is must pass.

    tests/model/mutate.py                          all mutations
    tests/model/mutate.py --only legacy            those with `legacy` in their name
    tests/model/mutate.py --both                   over shared memory too when TCP has found one
    tests/model/mutate.py --check                  only whether all patches apply; builds nothing

Above the diff a patch says in a sentence what it breaks. A second line may say what it takes to see that:

    needs: servers=2, over=shm

servers and devices: how many, and of each (else one server with two devices); over: tcp or shm, if it can be found over one of them only.

The status is 1 if a mutation was not found or a patch does not apply, and 2 if the tree as it is fails or anything cannot be built."""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
MUTATIONS = pathlib.Path(__file__).resolve().parent / "mutations"
PACKAGES = ["causeway-cli", "causeway-client", "causeway-model"]
DELAYS = "60:2000"
# A program that hangs is as good as found, and need not be waited for long.
HANG_S = 10
SERVER_START_S = 30
# The first program in each session waits for a connection, and the reports come at the end.
GRACE_S = 60

FOUND = re.compile(r"^(wrong|hung|failed|died): seed (\d+) \(([\w-]+)\)")


class Unusable(Exception):
    """Something that must work for any answer to mean anything does not."""


@dataclass(frozen=True)
class Needs:
    """What a mutation takes to be seen."""

    servers: int = 1
    devices: int = 2
    over: tuple[str, ...] = ("tcp", "shm")

    @staticmethod
    def read(line):
        words = dict(word.strip().split("=", 1) for word in line.removeprefix("needs:").split(",") if word.strip())
        servers = int(words.pop("servers", 1))
        devices = int(words.pop("devices", 1 if servers > 1 else 2))
        over = tuple(words.pop("over", "tcp shm").split())
        if words:
            raise ValueError(f"nobody knows what `{', '.join(words)}` means")
        return Needs(servers, devices, over)


class Mutation:
    """A fault, and what is said of it above its diff."""

    def __init__(self, path):
        self.path, self.name = path, path.stem
        lines = path.read_text().splitlines()
        self.sentence = lines[0]
        self.needs = Needs.read(lines[1] if lines[1].startswith("needs:") else "")


class Tree:
    """A copy of the tree. It lies where it lay the last time and keeps its files, so that little has to be built again."""

    def __init__(self, target):
        self.folder, self.target = target / "tree", target / "build"
        self.driver = target / "driver"
        self.driver.mkdir(parents=True, exist_ok=True)
        link = self.driver / "libcuda.so.1"
        link.unlink(missing_ok=True)
        link.symlink_to(self.target / "debug" / "libcuda.so")

    def restore(self):
        """Makes it the same as what the repository tracks, with the changes that are not committed."""
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        tracked = {name for name in os.fsdecode(listed).split("\0") if (ROOT / name).is_file()}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = pathlib.Path(folder, name)
                if str(path.relative_to(self.folder)) not in tracked:
                    path.unlink()
        for name in tracked:
            original, copy = ROOT / name, self.folder / name
            content = original.read_bytes()
            # What is the same keeps its time, and what is not gets a new one, by which cargo goes.
            if not copy.is_file() or copy.read_bytes() != content:
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(content)
                shutil.copymode(original, copy)

    def apply(self, mutation):
        """Applies a patch; the complaint if that cannot be done."""
        # The copy may lie in the repository, whose own files no patch may reach.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        command = ["git", "apply", "--verbose", str(mutation.path)]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]

    def build(self):
        command = ["cargo", "build", "--quiet", "--locked", "--message-format", "short"]
        command += [word for package in PACKAGES for word in ("-p", package)]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(self.target)}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            raise Unusable("it cannot be built: " + "\n  ".join(errors or [done.stderr]))

    def program(self, name):
        return self.target / "debug" / name


def environment(**variables):
    """This process's environment without what it says to Causeway, and with these variables."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("CAUSEWAY_")}
    return {**own, "CAUSEWAY_CACHE_DIR": "", "CAUSEWAY_TEST_DELAYS": DELAYS, **variables}


def end(process):
    """Ends a process and all that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
            return


@contextlib.contextmanager
def server(tree, devices, log):
    """A server of the tree, as the address where it listens."""
    command = [tree.program("causeway"), "serve", "--gpu", "cpu", "--listen", "127.0.0.1:0", "--insecure-no-key", "--no-cache"]
    variables = environment(CAUSEWAY_SOFTWARE_GPU_DEVICES=str(devices))
    process = subprocess.Popen(
        command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
    )
    try:
        late = threading.Timer(SERVER_START_S, end, [process])
        late.start()
        line = process.stdout.readline().strip()
        late.cancel()
        if not line:
            raise Unusable("no server can be started")
        yield line.split()[-1]
    finally:
        end(process)


def look(tree, needs, over, seconds):
    """Runs the model test: what it has found, or nothing; and after how many seconds."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile(mode="w+"))
        addresses = [stack.enter_context(server(tree, needs.devices, log)) for _ in range(needs.servers)]
        command = [tree.program("causeway-model"), "--first", "--reduce", "0", "--seeds", "0..1000000"]
        command += ["--seconds", str(seconds), "--limit", str(HANG_S)]
        variables = environment(LD_LIBRARY_PATH=str(tree.driver), CAUSEWAY_ON=",".join(addresses), CAUSEWAY_VIA=over)
        start = time.monotonic()
        process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        try:
            output, _ = process.communicate(timeout=seconds + GRACE_S)
        except subprocess.TimeoutExpired:
            raise Unusable(f"the model test does not end over {over}") from None
        finally:
            end(process)
        elapsed = time.monotonic() - start
        for line in output.splitlines():
            if found := FOUND.match(line):
                verdict, seed, kind = found.groups()
                return f"seed {seed} ({kind}{'' if verdict == 'wrong' else ', ' + verdict})", elapsed, line
        if process.returncode != 0:
            log.seek(0)
            raise Unusable(f"the model test cannot be run over {over}: {log.read().strip()[-1000:]}")
        return None, elapsed, output.strip()


def check_unmutated(tree, needed, seconds):
    """The tree as it is must pass in every way in which a mutation is looked for."""
    tree.restore()
    tree.build()
    ways = {(needs.servers, needs.devices, over) for needs in needed for over in needs.over}
    for servers, devices, over in sorted(ways):
        needs = Needs(servers, devices)
        found, _, line = look(tree, needs, over, seconds)
        if found:
            raise Unusable(f"the tree as it is fails over {over}: {line}")
        counted = line.splitlines()[-1].split(",")[0].removeprefix("model: ")
        print(f"{'unmutated':28} {counted} passed over {over}, servers: {needs.servers}, devices: {needs.devices}", flush=True)


def run(tree, mutation, seconds, both):
    """Builds a mutation and looks for it; whether it was found. One line."""
    title = f"{mutation.name:28} "
    tree.restore()
    if complaint := tree.apply(mutation):
        print(f"{title}DOES NOT APPLY and must be renewed: {complaint}", flush=True)
        return False
    tree.build()
    places = []
    for over in mutation.needs.over:
        found, elapsed, _ = look(tree, mutation.needs, over, seconds)
        if found:
            places.append(f"found in {elapsed:.1f} s over {over}: {found}")
        if found and not both:
            break
    print(title + ("; ".join(places) or f"NOT FOUND: {mutation.sentence}"), flush=True)
    return bool(places)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target" / "mutate", help="where the copy of the tree is and is built")
    parser.add_argument("--seconds", type=int, default=60, help="how long to look for a mutation over each module")
    parser.add_argument("--unmutated", type=int, help="the same for the tree as it is; 0 trusts it")
    parser.add_argument("--only", default="", help="only mutations with this in their name")
    parser.add_argument("--both", action="store_true", help="look over every module, wherever it is found first")
    parser.add_argument("--check", action="store_true", help="only see whether the patches apply")
    arguments = parser.parse_args()
    mutations = [Mutation(path) for path in sorted(MUTATIONS.glob("*.patch")) if arguments.only in path.stem]
    if not mutations:
        parser.error("no mutation is called so")
    tree = Tree(arguments.target.resolve())
    if arguments.check:
        failed = 0
        for mutation in mutations:
            tree.restore()
            if complaint := tree.apply(mutation):
                failed += 1
                print(f"{mutation.name:28} DOES NOT APPLY and must be renewed: {complaint}")
        return 1 if failed else 0
    # So that servers end with this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        trial = arguments.seconds if arguments.unmutated is None else arguments.unmutated
        if trial:
            check_unmutated(tree, [mutation.needs for mutation in mutations], trial)
        missed = []
        for mutation in mutations:
            try:
                if not run(tree, mutation, arguments.seconds, arguments.both):
                    missed.append(mutation.name)
            except Unusable as problem:
                raise Unusable(f"{mutation.name}: {problem}") from None
    except Unusable as problem:
        print(problem, file=sys.stderr)
        return 2
    print(f"{len(mutations) - len(missed)} of {len(mutations)} mutations found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
