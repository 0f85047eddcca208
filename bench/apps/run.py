#!/usr/bin/env python3
"""Runs applications like those of the rCUDA papers natively and through Causeway, in turns, and reports the overhead by size.

    run.py                           all applications on this machine's GPU: natively, over tcp and over shm
    run.py --on HOST:PORT            the remote runs on that server; native ones here, if there is a GPU
    run.py --quick cublas cufft      some applications, fewer sizes and rounds
    run.py --small                   tiny sizes and kernels of our own: to see that everything works, without a GPU too

`make apps` builds the programs. Without --on a server is started on this machine, with the software GPU where there is no other. The
report is written as REPORT.md and REPORT.json."""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

from applications import APPLICATIONS, FULL, QUICK, SMALL
from campaign import HERE, TREE, Way, remote_ways, run_campaign
from overhead import markdown, summary


def stop(sentence):
    sys.exit(f"run.py: {sentence}")


def find(what, candidates, hint):
    """The first of the files that is there."""
    for candidate in candidates:
        if candidate is not None and pathlib.Path(candidate).exists():
            return pathlib.Path(candidate).absolute()
    stop(f"there is no {what}: {hint}")


def has_gpu():
    """Whether this machine's driver finds a GPU; asked in a process of its own, since drivers stay in a process."""
    question = (
        "import ctypes; driver = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int(); "
        "exit(bool(driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0))"
    )
    return subprocess.run([sys.executable, "-c", question], stderr=subprocess.DEVNULL, check=False).returncode == 0


class Server:
    """`causeway serve` on a free port of this machine, for as long as the `with` block takes. Both ends prove that they hold this
    user's key, and over TCP nothing is encrypted: these figures are about what being remote costs."""

    def __init__(self, causeway, gpu):
        self.command = [str(causeway), "serve", "--listen", "127.0.0.1:0", "--clear", "--gpu", gpu, "--log-level", "warn"]
        if gpu == "auto":
            self.command.append("--allow-software")

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        address = self.process.stdout.readline().strip()
        if not address:
            stop(f"the server ended with status {self.process.wait()}: {shlex.join(self.command)}")
        return address

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def machine():
    """One line about this machine."""
    gpu = "no GPU"
    if shutil.which("nvidia-smi"):
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpu = "; ".join(subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")).strip("; ") or gpu
    return f"{os.uname().nodename}: {gpu}; {os.cpu_count()} cores; Linux {os.uname().release}"


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [application.name for application in APPLICATIONS]
    parser.add_argument("applications", nargs="*", metavar="APPLICATION", help=f"any of {', '.join(names)} (default: all)")
    parser.add_argument("--on", metavar="SERVER", help="the server of the remote runs (default: one started here)")
    parser.add_argument("--via", metavar="TRANSPORTS", help="those of the remote runs, such as tcp,shm (default: both of a server started "
                        "here, and for --on the one that Causeway chooses)")
    parser.add_argument("--gpu", choices=("auto", "driver", "cpu"), default="auto", help="the GPU of a server started here")
    parser.add_argument("--no-native", action="store_true", help="only the remote runs")
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument("--quick", action="store_const", dest="scale", const=QUICK, default=FULL, help="fewer sizes and rounds")
    scale.add_argument("--small", action="store_const", dest="scale", const=SMALL, help="tiny sizes, kernels of our own")
    parser.add_argument("--causeway", metavar="PROGRAM", help="the program causeway (default: the release build, or that of the PATH)")
    parser.add_argument("--programs", metavar="FOLDER", help="the compiled applications (default: build/apps)")
    parser.add_argument("--report", metavar="REPORT", default="apps-report", help="where the report goes (default: %(default)s)")
    arguments = parser.parse_args()
    unknown = set(arguments.applications) - set(names)
    if unknown:
        parser.error(f"no application is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return arguments


def write_report(arguments, gpu, native, chosen, results):
    """Prints the report and writes it as Markdown and JSON."""
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    where = "the server that --on names" if arguments.on else f"a server on this machine (--gpu {gpu})"
    # A connect string holds the server's key.
    command = re.sub("causeway://[^@ ]*@", "causeway://KEY@", shlex.join(["bench/apps/run.py", *sys.argv[1:]]))
    lines = [
        f"# Applications on a remote GPU, {date}",
        "",
        f"{machine()}. Remote runs: {where}." + ("" if native else " No native runs."),
        "",
        f"Command: `{command}`",
        "",
        *markdown(results, chosen, judge=native and arguments.scale is not SMALL),
        "",
    ]
    data = {
        "date": date,
        "machine": machine(),
        "command": command,
        "scale": arguments.scale.name,
        "ways": results.ways,
        "mean_overhead_percent": summary(results, chosen),
        "runs": results.runs,
        "failures": results.failures,
    }
    report = pathlib.Path(arguments.report)
    report.parent.mkdir(parents=True, exist_ok=True)
    report.with_suffix(".md").write_text("\n".join(lines))
    report.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    print("\n".join(["", *lines]))
    print(f"Written: {report.with_suffix('.md')} and {report.with_suffix('.json')}")


def main():
    arguments = read_arguments()
    chosen = [a for a in APPLICATIONS if not arguments.applications or a.name in arguments.applications]
    built = [TREE / "target/release/causeway", HERE.parent / "bin/causeway", shutil.which("causeway")]
    causeway = find("program causeway", [arguments.causeway] if arguments.causeway else built, "name it with --causeway")
    built = [TREE / "build/apps", HERE / "programs"]
    programs = find("folder of applications", [arguments.programs] if arguments.programs else built, "run `make apps`")

    has_one = has_gpu()
    gpu = {"auto": "driver" if has_one else "cpu"}.get(arguments.gpu, arguments.gpu)
    # Beside a software GPU of our own a native run says nothing.
    native = has_one and not arguments.no_native and (bool(arguments.on) or gpu == "driver")
    if not has_one:
        print("No native runs: this machine has no GPU.")
    if not arguments.on and gpu == "cpu" and arguments.scale is not SMALL:
        stop("on the software GPU there is only --small: it is too slow for these sizes and cannot run cuBLAS and cuFFT")

    # A server started here is reached both ways; of another one Causeway knows best.
    transports = arguments.via.split(",") if arguments.via else [] if arguments.on else ["tcp", "shm"]
    with contextlib.nullcontext(arguments.on) if arguments.on else Server(causeway, gpu) as address:
        ways = [Way("native")] if native else []
        ways += remote_ways(causeway, address, transports)
        results = run_campaign(chosen, arguments.scale, ways, programs)
    write_report(arguments, gpu, native, chosen, results)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
