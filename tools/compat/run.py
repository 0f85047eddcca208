#!/usr/bin/env python3
"""Runs programs with a client of one release and a server of another, both ways.

    tools/compat/run.py [COMMIT]

COMMIT is a tag or a commit; if not given, the one that `tools/compat/release` names. What it builds is kept in
`build/compat`, and is built there once, with the crates of others that this tree's build has compiled already.
The CUDA programs of `build/cuda` know nothing of Causeway, so both releases run the same ones.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["causeway-cli", "causeway-client", "causeway-nvml", "causeway-stubs"]
BUILT = ["causeway", "libcuda.so", "libcauseway_nvml.so", "libcauseway_stubs.so"]
# Copies of every kind, launches, streams, events, graphs, modules and what the driver answers.
PROGRAMS = [
    "first_kernel",
    "vector_add",
    "driver_api",
    "random_copies",
    "copies_2d_3d",
    "streams_events",
    "graphs",
    "mapped_memory",
    "module_management",
    "nvml",
]
TIMEOUT = 300


def build(tree, out):
    """Builds program and libraries of a tree, and copies them into the folder `out`."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target))
    command = ["cargo", "build", "--locked", *(f"-p{name}" for name in PACKAGES)]
    subprocess.run(command, cwd=tree, env=environment, check=True)
    shutil.rmtree(out, ignore_errors=True)
    beside = out.with_suffix(".making")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    for name in BUILT:
        shutil.copy(target / "debug" / name, beside)
    beside.rename(out)
    return out


def earlier(commit):
    """The folder with what `commit` builds."""
    found = subprocess.run(["git", "rev-parse", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, text=True)
    if found.returncode:
        sys.exit(f"there is no commit {commit} here ({found.stderr.strip()}): fetch it, or name another one")
    out = ROOT / "build/compat" / found.stdout.strip()
    if out.exists():
        return out
    # A folder of its own for each commit, for cargo tells sources of one folder apart by their age.
    tree = ROOT / "build/compat" / f"{found.stdout.strip()}.tree"
    tree.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(["git", "archive", found.stdout.strip()], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], cwd=tree, input=packed.stdout, check=True)
    return build(tree, out)


def clean():
    """This process's environment without what sets Causeway or CUDA up; no configuration file is read."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CAUSEWAY_", "CUDA_"))}
    return {**kept, "CAUSEWAY_CONFIG": ""}


def run(client, server, program, via, folder):
    """Runs one program, and returns what went wrong, if anything."""
    arguments = ["serve", "--gpu", "cpu", "--no-cache", "--insecure-no-key", "--listen", "127.0.0.1:0"]
    with open(Path(folder) / "log", "w+") as log:
        serving = subprocess.Popen(
            [server / "causeway", *arguments], stdout=subprocess.PIPE, stderr=log, text=True, env=clean()
        )
        try:
            on = serving.stdout.readline().strip()
            environment = dict(clean(), CAUSEWAY_CACHE_DIR="")
            command = [client / "causeway", "run", "--on", on, "--via", via, "--", ROOT / "build/cuda" / program]
            try:
                done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                return f"it takes longer than {TIMEOUT} s"
            if done.returncode or f"PASS {program}" not in done.stdout:
                log.seek(0)
                return f"exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}-- server\n{log.read()[-2000:]}"
            return None
        finally:
            serving.terminate()
            serving.wait(timeout=60)


def main():
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    commit = sys.argv[1] if sys.argv[1:] else (ROOT / "tools/compat/release").read_text().split()[0]
    then = earlier(commit)
    now = build(ROOT, ROOT / "build/compat/now")
    commit, failed = commit[:12], 0
    with tempfile.TemporaryDirectory() as folder:
        for client, server, words in [
            (then, now, f"a client of {commit}, a server of this tree"),
            (now, then, f"a client of this tree, a server of {commit}"),
        ]:
            for via in ("tcp", "shm"):
                for program in PROGRAMS:
                    if not (ROOT / "build/cuda" / program).exists():
                        sys.exit(f"build/cuda/{program} is not there: `make programs` builds it")
                    trouble = run(client, server, program, via, folder)
                    print(f"{'FAILED' if trouble else 'passed'}  {program} via {via}: {words}", flush=True)
                    if trouble:
                        print(trouble)
                        failed += 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
