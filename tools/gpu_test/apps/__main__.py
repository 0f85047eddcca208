"""Runs applications like those of the rCUDA papers natively and through Causeway, in turns, and reports the
overhead by size.

    gpu_test/apps                       all applications on this machine's GPU: natively, over tcp and shm
    gpu_test/apps --on HOST:PORT        the remote runs on that server; native ones here, if there is a GPU
    gpu_test/apps --quick cublas cufft  some applications, fewer sizes and rounds
    gpu_test/apps --small               tiny sizes and kernels of our own: does all work? Needs no GPU

`make apps` builds the programs. Without --on a server is started on this machine, with the software GPU where
there is no other. The report is written as REPORT.md and REPORT.json."""

import argparse
import contextlib
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

# `python3 FOLDER` puts the folder itself on the path, and not the one that the package lies in.
sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])

from gpu_test.apps.applications import APPLICATIONS, FULL, QUICK, SMALL  # noqa: E402
from gpu_test.apps.campaign import Way, remote_paths, run_campaign  # noqa: E402
from gpu_test.apps.overhead import markdown, summary  # noqa: E402
from gpu_test.bundle import BUNDLE, TREE, machine, now  # noqa: E402
from gpu_test.server import Server  # noqa: E402


def stop(sentence):
    """Ends the program with this sentence."""
    sys.exit(f"gpu_test/apps: {sentence}")


def find(what, candidates, hint):
    """The first of the files that is there."""
    for candidate in candidates:
        if candidate is not None and pathlib.Path(candidate).exists():
            return pathlib.Path(candidate).absolute()
    return stop(f"there is no {what}: {hint}")


def has_gpu():
    """Whether this machine's driver finds a GPU; asked in a process of its own, since drivers stay in a
    process."""
    question = (
        "import ctypes; driver = ctypes.CDLL('libcuda.so.1'); count = ctypes.c_int(); "
        "exit(bool(driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0))"
    )
    return (
        subprocess.run([sys.executable, "-c", question], stderr=subprocess.DEVNULL, check=False).returncode
        == 0
    )


def read_arguments():
    parser = argparse.ArgumentParser(
        prog="gpu_test/apps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    names = [application.name for application in APPLICATIONS]
    add("applications", nargs="*", metavar="APPLICATION", help=f"any of {', '.join(names)} (default: all)")
    add("--on", metavar="SERVER", help="the server of the remote runs (default: one started here)")
    transports = (
        "those of the remote runs, such as tcp,shm (default: both of a server started here, and for --on "
        "the one that Causeway chooses)"
    )
    add("--via", metavar="TRANSPORTS", help=transports)
    add("--gpu", choices=("auto", "driver", "cpu"), default="auto", help="the GPU of a server started here")
    add("--no-native", action="store_true", help="only the remote runs")
    scale = parser.add_mutually_exclusive_group()
    quick, small = "fewer sizes and rounds", "tiny sizes, kernels of our own"
    scale.add_argument("--quick", action="store_const", dest="scale", const=QUICK, default=FULL, help=quick)
    scale.add_argument("--small", action="store_const", dest="scale", const=SMALL, help=small)
    add(
        "--causeway",
        metavar="PROGRAM",
        help="the program causeway (default: the release build, or that of the PATH)",
    )
    add("--programs", metavar="FOLDER", help="the compiled applications (default: build/apps)")
    add(
        "--report",
        metavar="REPORT",
        default="apps-report",
        help="where the report goes (default: %(default)s)",
    )
    arguments = parser.parse_args()
    unknown = set(arguments.applications) - set(names)
    if unknown:
        parser.error(f"no application is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return arguments


def write_report(arguments, gpu, native, chosen, results):
    """Prints the report and writes it as Markdown and JSON."""
    date = now()
    where = "the server that --on names" if arguments.on else f"a server on this machine (--gpu {gpu})"
    # A connect string holds the server's key.
    command = shlex.join(["python3", "tools/gpu_test/apps", *sys.argv[1:]])
    command = re.sub("causeway://[^@ ]*@", "causeway://KEY@", command)
    lines = [
        f"# Applications on a remote GPU, {date}",
        "",
        f"{machine()}. Remote runs: {where}." + ("" if native else " No native runs."),
        "",
        f"Command: `{command}`",
        "",
        *markdown(results, chosen, check=native and arguments.scale is not SMALL),
        "",
    ]
    data = {
        "date": date,
        "machine": machine(),
        "command": command,
        "scale": arguments.scale.name,
        "ways": results.paths,
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
    """Measures and reports; the exit status says whether anything has failed."""
    arguments = read_arguments()
    chosen = [a for a in APPLICATIONS if not arguments.applications or a.name in arguments.applications]
    built = [TREE / "target/release/causeway", BUNDLE / "bin/causeway", shutil.which("causeway")]
    named = [arguments.causeway] if arguments.causeway else built
    causeway = find("program causeway", named, "name it with --causeway")
    built = [TREE / "build/apps", BUNDLE / "apps/programs"]
    programs = find(
        "folder of applications", [arguments.programs] if arguments.programs else built, "run `make apps`"
    )

    has_one = has_gpu()
    gpu = {"auto": "driver" if has_one else "cpu"}.get(arguments.gpu, arguments.gpu)
    # Beside a software GPU of our own a native run says nothing.
    native = has_one and not arguments.no_native and (bool(arguments.on) or gpu == "driver")
    if not has_one:
        print("No native runs: this machine has no GPU.")
    if not arguments.on and gpu == "cpu" and arguments.scale is not SMALL:
        stop(
            "on the software GPU there is only --small: it is too slow for these sizes and cannot run cuBLAS "
            "and cuFFT"
        )

    # A server started here is reached both ways; of another one Causeway knows best.
    transports = arguments.via.split(",") if arguments.via else [] if arguments.on else ["tcp", "shm"]
    with contextlib.ExitStack() as stack:
        address = arguments.on
        if not address:
            log = pathlib.Path(arguments.report).with_suffix(".log")
            log.parent.mkdir(parents=True, exist_ok=True)
            address = stack.enter_context(Server(causeway, gpu, log)).address
        paths = [Way("native")] if native else []
        paths += remote_paths(causeway, address, transports)
        results = run_campaign(chosen, arguments.scale, paths, programs)
    write_report(arguments, gpu, native, chosen, results)
    return 1 if results.failures else 0


sys.exit(main())
