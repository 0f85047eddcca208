#!/usr/bin/env python3
"""What being watched costs a session: launches and copies with and without, in turns.

    tools/watch_cost/run.py [--baseline FOLDER] [--gpu auto|cpu] [--via shm,tcp] [--rounds 9] FOLDER

FOLDER has the program `causeway` and the client libraries. On a machine with a GPU and nothing else to do it runs from
the folder that `make gpu-bundle` packs: `watch_cost.py --gpu driver bin`. Measured are

    quiet     a server that nobody asks
    watched   one whose metrics are scraped and whose sessions are asked for twice a second
    traced    the same quiet server with a program that is traced
    baseline  another build, such as one from before there were counts (--baseline)

Each round measures every variant once, in another order. A row's figure is the median of its rounds' medians; it
passes when it is at most 1 % slower than the reference (the baseline where there is one), or no further from it
than the reference's own rounds are from each other. Tracing is not held to that: it is for looking, not for work.
"""

import argparse
import csv
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections import defaultdict
from pathlib import Path

LIMIT = 1.01


class Server:
    """A server of one build, which ends with this."""

    def __init__(self, folder, gpu, log, metrics=False):
        self.causeway = Path(folder).resolve() / "causeway"
        command = [self.causeway, "serve", "--gpu", gpu, "--no-cache", "--insecure-no-key", "--listen", "127.0.0.1:0"]
        if metrics:
            command += ["--metrics", "127.0.0.1:0"]
        self.log = Path(log)
        with open(log, "w") as lines:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=lines, text=True, env=clean())
        self.on = self.process.stdout.readline().strip()
        if not self.on:
            sys.exit(f"the server does not start: {self.log.read_text()}")

    def metrics(self):
        text = self.log.read_text()
        return text.split("metrics: ")[1].split()[0]

    def end(self):
        self.process.terminate()
        self.process.wait(timeout=60)


def clean():
    return {name: value for name, value in os.environ.items() if not name.startswith(("CAUSEWAY_", "CUDA_"))}


def watch(server, ended):
    """Asks the server as Prometheus and somebody at a terminal do."""
    top = [server.causeway, "top", "--json", "--interval", "0.5", "--on", server.on]
    asking = subprocess.Popen(top, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean())
    try:
        while not ended.wait(0.5):
            urllib.request.urlopen(server.metrics(), timeout=10).read()
    finally:
        asking.kill()
        asking.wait()


def measure(server, part, via, extra, folder):
    """The medians of the rows of one part of `causeway bench`."""
    command = [server.causeway, "bench", part, "--on", server.on, "--via", via, "--quick", "--out", folder]
    if part == "copy":
        command += ["--sizes", "8,4K,64K,1M,16M", "--memory", "pinned"]
    environment = dict(clean(), **extra)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}")
    with open(Path(folder) / f"{part}.csv") as rows:
        for row in csv.DictReader(rows):
            if row["quantity"] == "done":
                yield (part, via, row["case"], row["arguments"] or row["bytes"]), float(row["median"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--baseline")
    parser.add_argument("--gpu", default="cpu")
    parser.add_argument("--via", default="shm,tcp")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    times = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as folder:
        quiet = Server(arguments.folder, arguments.gpu, f"{folder}/quiet.log")
        watched = Server(arguments.folder, arguments.gpu, f"{folder}/watched.log", metrics=True)
        variants = {
            "quiet": (quiet, {}),
            "watched": (watched, {}),
            "traced": (quiet, {"CAUSEWAY_TRACE": f"{folder}/%p.trace"}),
        }
        if arguments.baseline:
            variants["baseline"] = (Server(arguments.baseline, arguments.gpu, f"{folder}/baseline.log"), {})
        try:
            for number in range(arguments.rounds):
                order = list(variants)
                random.Random(number).shuffle(order)
                for name in order:
                    server, extra = variants[name]
                    ended = threading.Event()
                    watcher = threading.Thread(target=watch, args=(server, ended))
                    if name == "watched":
                        watcher.start()
                    try:
                        for via in arguments.via.split(","):
                            for part in ("launch", "copy"):
                                for row, median in measure(server, part, via, extra, f"{folder}/{name}"):
                                    times[row][name].append(median)
                    finally:
                        ended.set()
                        if name == "watched":
                            watcher.join()
                print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        finally:
            for server in {server for server, _ in variants.values()}:
                server.end()
    reference = "baseline" if arguments.baseline else "quiet"
    others = [name for name in variants if name != reference]
    print("| row | us, " + reference + " | spread | " + " | ".join(others) + " | |")
    print("| --- " * (4 + len(others)) + "|")
    failed = 0
    for row, by_variant in times.items():
        own = by_variant[reference]
        middle = statistics.median(own)
        # Half of the rounds lie within this part of the median.
        quarters = statistics.quantiles(own, n=4) if len(own) > 1 else [middle] * 3
        spread = (quarters[2] - quarters[0]) / middle
        ratios = {name: statistics.median(by_variant[name]) / middle for name in others}
        slow = [name for name in others if name != "traced" and ratios[name] > max(LIMIT, 1 + spread)]
        failed += bool(slow)
        cells = " | ".join(f"{ratios[name]:.3f}" for name in others)
        print(f"| {' '.join(row)} | {middle:.2f} | {spread:.1%} | {cells} | {'SLOWER' if slow else ''} |")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
