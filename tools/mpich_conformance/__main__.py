#!/usr/bin/env python3
"""Runs MPICH's own tests of MPI with the interposer, on the host's memory and on the GPU's.

    python3 tools/mpich_conformance SOURCES --causeway TARGET/debug [--mpi openmpi,mpich] [--only coll,pt2pt/bsend]

SOURCES is a folder with MPICH's sources, of which test/mpi is needed; they are not part of Causeway, and are
got by `git clone --depth 1 --branch v4.0.2 https://github.com/pmodels/mpich`. Of the branch's
newest commit the folder test/mpi/session can be put beside the others. The folder that --causeway names
has the program `causeway` and its libraries, as `cargo build` makes them.

Each test is run with the interposer (`host`), and with each buffer that it gives to the MPI moved to the GPU
(`gpu`, by on_gpu/). What does not pass is run by the MPI alone (`bare`): what that does not pass either says
nothing of the interposer. Results are added to
BUILD/results.json, test by test; --table writes what they come to.
"""

import argparse
import json
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import builder
import report
import run
import server
import suite


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--causeway", type=Path, required=True)
    parser.add_argument("--build", dest="folder", type=Path, default=builder.TREE / "build/mpich-conformance")
    parser.add_argument("--mpi", default="openmpi,mpich")
    parser.add_argument("--gpu", default="cpu", help="cpu is the software GPU, driver NVIDIA's")
    parser.add_argument("--memory", default="device", choices=["device", "mixed"], help="where buffers are moved to")
    parser.add_argument("--only", default="", help="folders, or beginnings of FOLDER/PROGRAM")
    parser.add_argument("--ways", default="host,gpu")
    parser.add_argument("--again", action="store_true", help="tests that have results, too")
    parser.add_argument("--limit", type=int, default=60, help="seconds that a test may take")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    parser.add_argument("--most-ranks", type=int, default=10)
    parser.add_argument("--most-memory", type=float, default=2.0, help="GB that a test may want")
    parser.add_argument("--table", type=Path, help="only write what the results come to, as Markdown")
    return parser.parse_args()


def is_selected(test, only):
    name = f"{test.folder}/{test.program}"
    selected = [word for word in only.split(",") if word]
    return not selected or any(name == word or name.startswith(f"{word}/") or test.folder == word for word in selected)


class Session:
    """Runs tests and keeps their results, some at a time."""

    def __init__(self, options, root, path, results):
        self.options, self.root, self.path, self.results = options, root, path, results
        self.lock = threading.Lock()

    def run(self, mpi, tests, on, client):
        options = self.options
        made = builder.Builder(self.root, mpi, options.folder.resolve(), options.causeway.resolve())
        made.prepare()
        runner = run.Runner(made, on, client, options.limit, options.memory)
        entries = self.results.setdefault(mpi, {})
        for test in tests:
            entries.setdefault(test.name, {})["ranks"] = test.ranks
        with ThreadPoolExecutor(options.jobs) as pool:
            # Whatever goes wrong in a thread is raised here.
            list(pool.map(lambda test: self.try_test(made, runner, test, entries[test.name]), tests))
        self.write()

    def try_test(self, made, runner, test, entry):
        ways = self.options.ways.split(",")
        if test.skipped:
            entry["skipped"] = test.skipped
            return
        if not self.options.again and all(way in entry for way in ways):
            return
        try:
            program = made.build(test)
        except builder.Failed as failed:
            entry["not built"] = str(failed)[:600]
            return
        for way in ways:
            entry[way] = asdict(runner.run(test, program, way))
        # What the MPI does not do by itself says nothing of the interposer.
        if not report.has_passed(entry):
            entry["bare"] = asdict(runner.run(test, program, "bare"))
        self.write()
        verdicts = [f"{way} {entry[way]['verdict']}" for way in run.WAYS if way in entry]
        print(f"{made.mpi} {test.name}: {', '.join(verdicts)}", flush=True)

    def write(self):
        """Whoever reads meanwhile sees all of it."""
        with self.lock:
            self.path.with_suffix(".new").write_text(json.dumps(self.results, indent=1))
            self.path.with_suffix(".new").replace(self.path)


def main():
    options = arguments()
    root = options.sources.resolve() / "test/mpi"
    if not (root / "util/mtest.c").exists():
        sys.exit(f"{root} does not have MPICH's tests. They come with MPICH's sources:\n"
                 "    git clone --depth 1 --branch v4.0.2 https://github.com/pmodels/mpich")
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder.resolve() / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    if options.table:
        options.table.write_text(report.table(results))
        return
    tests = [test for folder in suite.FOLDERS
             for test in suite.read_tests(root, folder, options.most_ranks, options.most_memory)
             if is_selected(test, options.only)]
    session = Session(options, root, path, results)
    with tempfile.TemporaryDirectory() as client:
        server.link_client(options.causeway.resolve(), Path(client))
        with server.Server(options.causeway.resolve(), options.gpu, options.folder / "server.log") as gpu:
            for mpi in options.mpi.split(","):
                session.run(mpi, tests, gpu.on, client)


if __name__ == "__main__":
    main()
