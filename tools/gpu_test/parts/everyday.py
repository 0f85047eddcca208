"""What people do besides running programs: doctor, `--on local`, a trace, watching a server, and the wheel.

A trace's times of kernels are compared with those that the program takes by events of its own, natively and
through Causeway."""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile

from gpu_test.bundle import BUNDLE, CAUSEWAY, RUNTIME, unpack
from gpu_test.commands import Running, run
from gpu_test.server import Server

LIMIT_S = 60
ROUNDS = 7
# So many seconds a program runs while its server is watched.
WATCHED_S = 6
# How far a kernel's time in a trace may be from what the program's own events say natively. Through Causeway
# those of the trace lie closer around the kernel, so that it may be less there.
FACTOR, SLACK_US = 1.1, 15.0


class Wrong(Exception):
    """Something is not as it must be; the text says what."""


def must(outcome, *expected):
    """What a command printed; raises `Wrong` where it did not succeed or did not say something."""
    if outcome.status != 0 or outcome.timed_out:
        errors = outcome.errors.strip().splitlines()
        raise Wrong(f"{outcome.reason()}; {errors[-1] if errors else 'nothing on standard error'}")
    for text in expected:
        if text not in outcome.output:
            raise Wrong(f"`{text}` is not in what it printed: {outcome.output[-500:]}")
    return outcome.output


def doctor(session):
    """The small program of the doctor runs; what else the machine lacks is told and no failure."""
    outcome = run([CAUSEWAY, "doctor", "--on", session.server.address, "--json"], LIMIT_S)
    try:
        findings = json.loads(outcome.output)
    except ValueError:
        raise Wrong(f"it printed no JSON: {outcome.reason()}") from None
    trial = findings["program"]["facts"]
    if trial["outcome"] != "ran":
        raise Wrong(f"its program did not run: {trial}")
    return f"its program ran on {trial['device']} via {trial['via']}; {findings['problems']} problems"


def local(session):
    """`--on local` serves this machine's own GPUs for the time of a program."""
    on = "local" if session.native else "software"
    program = [BUNDLE / "programs" / "vector_add"]
    alone = run([CAUSEWAY, "run", "--on", on, "--", *program], LIMIT_S, RUNTIME)
    must(alone, "PASS vector_add")
    # And in front of a server's: two devices in one program.
    both = run([CAUSEWAY, "devices", "--json", "--on", f"{on},{session.server.address}"], LIMIT_S)
    count = sum(len(server["devices"]) for server in json.loads(must(both))["servers"])
    if count < 2:
        raise Wrong(f"`--on {on},SERVER` has {count} devices")
    return f"--on {on}: {alone.seconds:.1f} s; --on {on},SERVER: {count} devices"


def own_times(output):
    """The times that the program took, in us, by number of steps."""
    times = {}
    for steps, took in re.findall(r"^busy (\d+): ([0-9.]+)$", output, re.MULTILINE):
        times.setdefault(int(steps), []).append(float(took))
    return times


def traced_times(trace, order):
    """The times of the kernel in a trace, in us, by number of steps, which were launched in this order."""
    spans = [e for e in trace["traceEvents"] if e.get("cat") == "device" and "busy" in e["name"]]
    spans.sort(key=lambda span: span["ts"])
    if len(spans) != len(order):
        raise Wrong(f"the trace has {len(spans)} of {len(order)} launches")
    times = {}
    for steps, span in zip(order, spans, strict=True):
        times.setdefault(steps, []).append(span["dur"])
    return times


def fits(traced, events, natively=None):
    """Whether a kernel's time in a trace can be true, given what the program's own events say."""
    least = 0 if natively is None else natively / FACTOR - SLACK_US
    return least <= traced <= (natively or events) * FACTOR + SLACK_US


def trace(session):
    """Kernels take as long in a trace as by the program's own events."""
    program = [BUNDLE / "programs" / "kernel_times", ROUNDS]
    natively = {}
    if session.native:
        natively = own_times(must(run(program, LIMIT_S, RUNTIME), "PASS kernel_times"))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "trace.json")
        command = [CAUSEWAY, "trace", "--on", session.server.address, "-o", file, "--", *program]
        output = must(run(command, LIMIT_S, RUNTIME), "PASS kernel_times")
        traced = json.loads(file.read_text())
    order = [int(steps) for steps in re.findall(r"^busy (\d+):", output, re.MULTILINE)]
    own, seen = own_times(output), traced_times(traced, order)
    wrong, lines = [], []
    for steps, times in seen.items():
        us = {"traced": times, "its own events": own[steps], "natively": natively.get(steps)}
        us = {name: statistics.median(values) for name, values in us.items() if values}
        lines.append(f"{steps} steps: " + ", ".join(f"{name} {value:.1f} us" for name, value in us.items()))
        if not fits(**{name.split()[-1]: value for name, value in us.items()}):
            wrong.append(lines[-1])
    session.report.data["trace"] = {"traced": seen, "own": own, "natively": natively}
    if wrong:
        raise Wrong("; ".join(wrong))
    return "; ".join(lines)


def get(url):
    """The page at an address."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def sample(page, name):
    """The sum of the samples whose name and labels begin so."""
    found = re.findall(rf"^{re.escape(name)}[^ ]* (\S+)$", page, re.MULTILINE)
    return sum(map(float, found))


def watched(session):
    """Metrics, `top` and `sessions` tell of a program while it runs."""
    log = session.report.folder / "gpu-server-watched.log"
    log.unlink(missing_ok=True)
    with Server(CAUSEWAY, "driver" if session.native else "cpu", log, arguments=METRICS) as server:
        url = re.search(r"http://[0-9.:]+", log.read_text())
        if url is None:
            raise Wrong(f"the server does not say where its metrics are: {log.read_text()[-500:]}")
        program = Running(
            server.command([BUNDLE / "programs" / "long_run", WATCHED_S]), RUNTIME | {"CAUSEWAY_VIA": "shm"}
        )
        page, top = look(server, url[0])
        must(program.wait(LIMIT_S), "PASS long_run")
        if sample(page, "causeway_copy_bytes_total") <= 0 or sample(page, "causeway_devices") < 1:
            raise Wrong("no copied bytes or no devices are counted in the metrics")
        for path in ("/healthz", "/readyz"):
            get(url[0] + path)
        after = get(url[0] + "/metrics")
        if sample(after, "causeway_launches_total") < sample(page, "causeway_launches_total"):
            raise Wrong("what the program did is not counted any more when it has ended")
    [shown] = top["sessions"]
    device = top["devices"][0]
    rates = shown["per_second"]
    return (
        f"{shown['program']} via {shown['via']}: {rates['launches']:.0f} launches/s,"
        f" {rates['bytes_to_device'] / 1e6:.0f} MB/s in; {device['name']}:"
        f" {device['memory_used_bytes'] >> 20} MiB used, utilisation {device['utilization_percent']} %"
    )


METRICS = ("--metrics", "127.0.0.1:0")


def look(server, url):
    """The metrics and a page of `top`, once both tell of launches."""
    end = time.monotonic() + WATCHED_S
    while time.monotonic() < end:
        page = get(url + "/metrics")
        command = [CAUSEWAY, "top", "--once", "--json", "--interval", "0.5", "--on", server.address]
        top = json.loads(must(run(command, LIMIT_S)))
        launches = [session["per_second"]["launches"] for session in top["sessions"]]
        if sample(page, "causeway_launches_total") > 0 and any(launches):
            if "long_run" not in top["sessions"][0]["program"]:
                raise Wrong(f"`top` shows another program: {top['sessions']}")
            return page, top
    raise Wrong(f"neither metrics nor top told of launches within {WATCHED_S} s")


# Asks the driver itself, and says what has been counted: nothing where the driver is not Causeway's.
QUERY_DRIVER = """
import causeway_gpu, ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print("devices", count.value, "counted", bool(causeway_gpu.stats()))
"""
# A product of matrices, compared with the CPU's.
USE_TORCH = """
import causeway_gpu, torch
print("listed", *causeway_gpu.devices())
a, b = torch.rand(512, 512), torch.rand(512, 512)
product = (a.cuda() @ b.cuda()).cpu()
assert torch.allclose(product, a @ b, rtol=1e-2), (product - a @ b).abs().max()
print("torch", torch.__version__, torch.cuda.get_device_name(0), "counted", bool(causeway_gpu.stats()))
"""


def wheel(session):
    """A wheel of the bundle's files in a virtual environment: Python programs use the server when one is
    configured, and this machine's GPU when not."""
    with tempfile.TemporaryDirectory() as folder:
        python = install_wheel(pathlib.Path(folder))
        plain = {"CAUSEWAY_CONFIG": "", "CAUSEWAY_ON": "", "PYTHONDONTWRITEBYTECODE": "1"}
        remote = plain | {"CAUSEWAY_ON": session.server.address}
        counted = must(run([python, "-c", QUERY_DRIVER], LIMIT_S, remote), "counted True").strip()
        if session.native:
            must(run([python, "-c", QUERY_DRIVER], LIMIT_S, plain), "counted False")
        if run([python, "-c", "import torch"], LIMIT_S, plain).status != 0 or not session.native:
            return f"{counted}; torch is not here, or there is no GPU for it"
        used = run([python, "-c", USE_TORCH], LIMIT_S, remote)
        return must(used, "counted True").strip().replace("\n", "; ")


def install_wheel(folder):
    """Makes a wheel of the bundle's program and libraries, and installs it beside the packages of this
    Python. Returns the Python that has it."""
    tree = folder / "tree"
    libraries = tree / "lib/causeway"
    libraries.mkdir(parents=True)
    (tree / "bin").symlink_to(BUNDLE / "bin")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (libraries / name).symlink_to(BUNDLE / "bin" / name)
    (libraries / "libcauseway_stubs.so").symlink_to(BUNDLE / "bin/libnvcuvid.so.1")
    (libraries / "libcauseway_comm.so").symlink_to(unpack("mpi") / "libcauseway_comm.so")
    made = run([sys.executable, BUNDLE / "wheel/tools/package", "wheel", tree, folder], LIMIT_S)
    [file] = [pathlib.Path(line) for line in must(made).split()]
    environment = folder / "venv"
    must(run([sys.executable, "-m", "venv", "--without-pip", environment], LIMIT_S))
    python = environment / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = pathlib.Path(must(run([python, "-c", ask], LIMIT_S)).strip())
    with zipfile.ZipFile(file) as packed:
        packed.extractall(site)
    os.chmod(site / "causeway_gpu/bin/causeway", 0o755)
    others = [path for path in sys.path if path.endswith("-packages")]
    (site / "others.pth").write_text("".join(f"{path}\n" for path in others))
    return python


TITLES = {
    "doctor": doctor,
    "local": local,
    "trace": trace,
    "watched": watched,
    "wheel": wheel,
}


def run_everyday(session):
    """Tries each, and says what came of it."""
    report = session.report
    report.table(what=8, seconds=8, found=100)
    for title, attempt in TITLES.items():
        if not session.is_selected(title):
            continue
        start = time.monotonic()
        try:
            result, problem = attempt(session), None
        except (Wrong, OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as error:
            kind = "" if isinstance(error, Wrong) else f"{type(error).__name__}: "
            result = problem = f"{kind}{error}"
        seconds = time.monotonic() - start
        good = report.check(title, problem, seconds)
        report.row(title, f"{seconds:.1f}", result if good else f"FAIL {result}")
    session.report_deaths()
    report.list_failures()
