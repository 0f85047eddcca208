"""Kernels that communicate beside what others have for the same: Jacobi's method by the kernel, by MPI and by
NCCL; puts, barriers and signals by NVSHMEM; and what compute-sanitizer says of them.

What is not on this machine is skipped, with where it was looked for."""

import importlib.util
import os
import pathlib
import shutil
import statistics
import tempfile

from gpu_test.bundle import BUNDLE, RUNTIME, TREE
from gpu_test.commands import run
from gpu_test.parts.mpi import first

# What compiling with NVSHMEM's library of device code takes, and what one program may take.
COMPILE_S, NVSHMEM_S, JACOBI_S, SANITIZED_S = 150, 90, 120, 60

# Where CUDA's programs are, if not on the path.
CUDA_FOLDERS = ("/usr/local/cuda", "/opt/cuda")
SANITIZER = "compute-sanitizer"


def package_folder(name):
    """Where NVIDIA's wheels have put a library (`nvidia/NAME`); None where there is none."""
    try:
        found = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return None
    places = [pathlib.Path(place) for place in found.submodule_search_locations] if found else []
    return next((place for place in places if place.is_dir()), None)


def cuda_program(name):
    """A program of the CUDA toolkit; None where there is none."""
    roots = [os.environ.get("CUDA_HOME"), *CUDA_FOLDERS]
    folders = [pathlib.Path(root, part) for root in roots if root for part in ("bin", name)]
    return shutil.which(name) or next(
        (str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None
    )


def medians(output):
    """Medians of results that a program prints, by what, way, bytes, count and unit; and what it skipped."""
    results, skipped = {}, []
    for line in output.splitlines():
        fields = line.split("\t")
        if fields[0] == "row" and len(fields) == 7:
            what, way, size, count, result, unit = fields[1:]
            results.setdefault((what, way, int(size), int(count), unit), []).append(float(result))
        elif fields[0] == "skipped":
            skipped.append(": ".join(fields[1:]))
    return {case: statistics.median(values) for case, values in results.items()}, skipped


def run_jacobi(session, mpi, extra=None):
    """Jacobi's method on two ranks, natively and through Causeway: rows of 16 B and of 512 KiB."""
    report = session.report
    nccl = package_folder("nccl")
    libraries = [str(mpi.folder), RUNTIME["LD_LIBRARY_PATH"], mpi.environment["LD_LIBRARY_PATH"]]
    environment = {**mpi.environment, **(extra or {}), "LD_LIBRARY_PATH": ":".join(libraries)}
    if nccl:
        environment["CAUSEWAY_JACOBI_NCCL"] = str(nccl / "lib" / "libnccl.so.2")
    runs = "2" if session.quick or not session.native else "10"
    program = ["jacobi", runs, *([] if session.native else ["quick"])]
    for way, wrap in session.paths():
        # NCCL's kernels and proxies share memory that only a driver on this machine gives.
        own = environment if way == "native" else {**environment, "CAUSEWAY_JACOBI_NCCL": "none"}
        outcome = run(wrap(mpi.command(program, False)), JACOBI_S, own)
        problem = None if outcome.status == 0 else f"{outcome.reason()}; {first(outcome.errors)}"
        report.check(f"Jacobi's method, {way}", problem, outcome.seconds)
        results, skipped = medians(outcome.output)
        for what in skipped:
            report.skipped(f"Jacobi's method, {way}", what)
        report.data.setdefault("jacobi", {})[way] = [[*case, value] for case, value in results.items()]
        report_jacobi(report, way, results)


def report_jacobi(report, way, results):
    """Microseconds of a step, with what sending adds to the steps alone."""
    report.line()
    report.line(
        f"Jacobi's method of two ranks, {way}: microseconds of a step, and more than without sending."
    )
    report.table(row=12, way=16, step=10, beside_alone=12)
    for (_, by, size, count, _), value in sorted(results.items(), key=lambda item: (item[0][2], item[0][1])):
        alone = results.get(("jacobi", "compute alone", size, count, "us"))
        report.row(f"{size} B", by, f"{value:.4g}", f"{value - alone:.4g}" if alone else "-")


def nvshmem_program(folder):
    """Compiles the measuring program: that, the folder of NVSHMEM's libraries, and what was wrong."""
    home = os.environ.get("NVSHMEM_HOME")
    root = pathlib.Path(home) if home else package_folder("nvshmem")
    if root is None:
        return None, None, "there is no NVSHMEM: neither NVSHMEM_HOME nor the Python package nvidia.nvshmem"
    compiler = cuda_program("nvcc")
    if compiler is None:
        return None, None, "there is no nvcc on the path, in CUDA_HOME or in /usr/local/cuda"
    source = next(
        place / "nvshmem" / "nvshmem_rates.cu"
        for place in (BUNDLE, TREE / "bench")
        if (place / "nvshmem" / "nvshmem_rates.cu").exists()
    )
    program, libraries = pathlib.Path(folder, "nvshmem_rates"), root / "lib"
    command = [compiler, "-O3", "-std=c++17", "-rdc=true", "-arch=native", f"-I{root / 'include'}", source]
    command += ["-o", program, f"-L{libraries}", "-lnvshmem_device"]
    command += ["-Xlinker", libraries / "libnvshmem_host.so.3"]
    outcome = run(command, COMPILE_S)
    problem = (
        None if outcome.status == 0 else f"nvcc: {outcome.ending()}; {first(outcome.errors + outcome.output)}"
    )
    return program, libraries, problem


def run_nvshmem(session, ours):
    """NVSHMEM between two GPUs, beside results of ours by what, bytes and count (the way is `direct`)."""
    report = session.report
    if session.gpus() < 2:
        report.skipped("NVSHMEM", "there are no two GPUs")
        return
    with tempfile.TemporaryDirectory(prefix="nvshmem-") as folder:
        program, libraries, problem = nvshmem_program(folder)
        if problem and program is None:
            report.skipped("NVSHMEM", problem)
            report.line(f"NVSHMEM is not measured: {problem}")
            return
        if report.check("NVSHMEM's program is compiled", problem):
            environment = {
                "LD_LIBRARY_PATH": f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}",
                # Multicast can put the GPUs of a host out of service where it is off; there is no network.
                "NVSHMEM_DISABLE_NVLS": "1",
                "NVSHMEM_REMOTE_TRANSPORT": "none",
            }
            outcome = run([program, "3" if session.quick else "10"], NVSHMEM_S, environment)
            problem = None if outcome.status == 0 else f"{outcome.reason()}; {first(outcome.errors)}"
            report.check("NVSHMEM is measured", problem, outcome.seconds)
            report_nvshmem(report, medians(outcome.output)[0], ours)


def report_nvshmem(report, theirs, ours):
    """NVSHMEM's results beside ours; nothing is required but that they are known."""
    report.data["nvshmem"] = [[*case, value] for case, value in theirs.items()]
    report.line()
    report.line("NVSHMEM beside `direct`, both between two GPUs.")
    report.table(what=16, bytes=10, count=8, unit=5, nvshmem=10, ours=10)
    for (what, _, size, count, unit), value in sorted(theirs.items()):
        own = ours.get((what, size, count))
        report.row(what, size, count, unit, f"{value:.4g}", f"{own:.4g}" if own else "-")


def run_sanitizer(session, programs, environment):
    """compute-sanitizer over teams of one process: no access outside of memory, no race in shared memory, no
    wrong barrier of a block."""
    report = session.report
    sanitizer = cuda_program(SANITIZER)
    if sanitizer is None or not session.native:
        why = (
            "there is no GPU"
            if not session.native
            else f"no {SANITIZER} on the path, in CUDA_HOME, /usr/local/cuda"
        )
        report.skipped(SANITIZER, why)
        report.line(f"{SANITIZER} is not run: {why}")
        return
    tests = [str(programs / "device_tests"), "--test-threads", "1", "random_programs"]
    # Under it a kernel takes a hundred times as long; a few programs of other seeds each time.
    settings = {
        **environment,
        "CAUSEWAY_DEVICE_GPU": "cuda",
        "CAUSEWAY_PROGRAMS": str(programs),
        "CAUSEWAY_DEVICE_PROGRAMS": "3",
    }
    report.table(sanitizer=40, outcome=70)
    example = [str(programs / "put_signal")]
    for tool, those in (
        ("memcheck", {"put_signal": example, "random programs": tests}),
        ("racecheck", {"random programs": tests}),
        ("synccheck", {"random programs": tests}),
    ):
        for name, command in those.items():
            whole = [sanitizer, "--tool", tool, "--error-exitcode", "99", *command]
            outcome = run(whole, SANITIZED_S, settings)
            text = outcome.output + outcome.errors
            rows = [line for line in text.splitlines() if line.startswith("=========")]
            is_clean = outcome.status == 0 and any("0 errors" in line or "0 hazards" in line for line in rows)
            last = rows[-1].strip("= ") if rows else outcome.reason()
            shown = f"{outcome.ending()}; {last}\n\n```\n{text[-4000:]}\n```"
            report.check(f"{tool}, {name}", None if is_clean else shown, outcome.seconds)
            report.row(
                f"{tool}, {name}", f"{'clean' if is_clean else 'FAIL'} {outcome.seconds:.0f} s; {last}"
            )


def direct_results(report):
    """What `causeway bench device` has found for `direct` natively, by what, bytes and count."""
    measured = report.data.get("device", {})
    records = [record for name, found in measured.items() if name.endswith(" native") for record in found]
    return {
        (record["what"], record["bytes"], record["count"]): record["summary"]["median"]
        for record in records
        if record["way"] == "direct"
    }
