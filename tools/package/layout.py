"""Which files are handed out, and under which names?

A *tree* is `bin/causeway` and, in `lib/causeway`, the libraries under the names that programs ask for.
`causeway` finds them there by itself, wherever the tree lies. In `lib/causeway/mpi` are the interposers and
benchmarks of `scripts/portable-mpi.sh`, in `lib/causeway/device` what kernels that communicate are linked with;
`include` and `share` have what programs are written with. Wheel, packages and images are all made from one."""

import shutil
from pathlib import Path

STUBS = "libcauseway_stubs.so"
CUBLAS = "libcauseway_cublas.so"

# What is in `lib/causeway`: the name, and what cargo calls the library.
LIBRARIES = {
    "libcuda.so.1": "libcuda.so",
    "libnvidia-ml.so.1": "libcauseway_nvml.so",
    STUBS: STUBS,
    "libcauseway_comm.so": "libcauseway_comm.so",
    "libnccl-net-causeway.so": "libcauseway_nccl_net.so",
    CUBLAS: CUBLAS,
}

# Further programs: the name in `bin`, which is cargo's, too.
TOOLS = ("fabric-perf",)

# What is built by others than cargo, in `lib/causeway`: what `causeway mpirun` and `causeway bench mpi` start for
# each MPI, and what kernels are linked with. Only what is there is handed out, but for the interposers.
INTERPOSER = "libcauseway_mpi.so"
MPIS = ("openmpi-4", "openmpi-5", "mpich")
MPI_FILES = (INTERPOSER, "causeway_mpi_bench", "causeway_mpi_bench.so")
DEVICE_FILES = ("causeway_device_bench", "causeway_device.ltoir", "causeway_device.bc")

# What programs are written with: the place in a tree or below /usr, and where the source tree has it.
SOURCES = {
    "include/causeway": ("mpi/causeway_comm.h", "device/include/causeway/*"),
    "include/causeway/nvshmem": ("device/include/nvshmem/*",),
    "share/causeway/device": ("device/numba/operations.cu", "device/bitcode/cuda_subset.h"),
    "share/causeway/python": ("mpi/python/*.py",),
    "share/causeway/examples": ("examples/*.c*", "examples/*.py", "packaging/dev/examples/*"),
    "share/causeway/monitoring": ("monitoring/*",),
    "share/causeway/kubernetes": ("packaging/kubernetes/manifests/*", "packaging/kubernetes/examples/*"),
    "share/causeway/kubernetes/chart": ("packaging/kubernetes/chart/*.yaml",),
    "share/causeway/kubernetes/chart/templates": ("packaging/kubernetes/chart/templates/*",),
    "share/pkgconfig": ("packaging/dev/causeway.pc",),
    "share/cmake/causeway": ("packaging/dev/causeway-config*.cmake",),
}

# The folder of libraries that `causeway run` puts in front of NVIDIA's where all servers are software GPUs.
SOFTWARE = "software/"

# Second names, as links. Folders with nothing but a library for programs that are linked with it, and for NCCL: they
# find no driver beside it.
LINKS = {
    "comm/libcauseway_comm.so": "../libcauseway_comm.so",
    "nccl/libnccl-net-causeway.so": "../libnccl-net-causeway.so",
    f"{SOFTWARE}libcublas.so.12": f"../{CUBLAS}",
    f"{SOFTWARE}libcublas.so.13": f"../{CUBLAS}",
    f"{SOFTWARE}libcublasLt.so.12": f"../{CUBLAS}",
    f"{SOFTWARE}libcublasLt.so.13": f"../{CUBLAS}",
    f"{SOFTWARE}libcusolver.so.11": f"../{CUBLAS}",
    f"{SOFTWARE}libcusolver.so.12": f"../{CUBLAS}",
    f"{SOFTWARE}libcurand.so.10": f"../{CUBLAS}",
    f"{SOFTWARE}libcusparse.so.12": f"../{CUBLAS}",
    "libcuda.so": "libcuda.so.1",
    "libnvidia-ml.so": "libnvidia-ml.so.1",
    "libnvcuvid.so.1": STUBS,
    "libnvidia-encode.so.1": STUBS,
    "libnvidia-opticalflow.so.1": STUBS,
    "libnvoptix.so.1": STUBS,
}


class LayoutError(Exception):
    """A tree cannot be made."""


def stage(built: Path, tree: Path) -> None:
    """Makes a tree of what cargo has built."""
    lost = [name for name in ("causeway", *TOOLS, *LIBRARIES.values()) if not (built / name).is_file()]
    if lost:
        raise LayoutError(
            f"{built} lacks {', '.join(lost)}: build causeway-cli, -client, -comm, -cublas, -nccl-net, -nvml, -stubs and -fabric-perf first"
        )
    if tree.exists():
        shutil.rmtree(tree)
    libraries = tree / "lib/causeway"
    (tree / "bin").mkdir(parents=True)
    libraries.mkdir(parents=True)
    for name in ("causeway", *TOOLS):
        install(built / name, tree / "bin" / name)
    for name, cargo in LIBRARIES.items():
        install(built / cargo, libraries / name)
    for name, target in LINKS.items():
        (libraries / name).parent.mkdir(exist_ok=True)
        (libraries / name).symlink_to(target)


def sources(root: Path, version: str) -> dict[str, bytes]:
    """What programs are written with: places as those of `SOURCES`, and the files' content."""
    found = {}
    for folder, patterns in SOURCES.items():
        for pattern in patterns:
            files = sorted(file for file in root.glob(pattern) if file.is_file())
            if not files:
                raise LayoutError(f"{root} has no {pattern}")
            for file in files:
                content = file.read_bytes()
                if pattern.startswith("packaging/"):
                    content = content.replace(b"@VERSION@", version.encode())
                found[f"{folder}/{file.name}"] = content
    return found


def install(source: Path, target: Path) -> None:
    """Copies what can be executed."""
    shutil.copyfile(source, target)
    target.chmod(0o755)


def parts(tree: Path) -> list[str]:
    """What is there of what others than cargo build: places within `lib/causeway`."""
    names = [f"mpi/{mpi}/{name}" for mpi in MPIS for name in MPI_FILES]
    names += [f"device/{name}" for name in DEVICE_FILES]
    return [name for name in names if (tree / "lib/causeway" / name).is_file()]


def objects(tree: Path) -> list[Path]:
    """The programs and the libraries of a tree, without second names."""
    needed = [tree / "bin/causeway", *(tree / "lib/causeway" / name for name in LIBRARIES)]
    if lost := [str(file) for file in needed if not file.is_file()]:
        raise LayoutError(f"these are not there: {', '.join(lost)}: make the tree with `make portable`")
    more = [tree / "bin" / name for name in TOOLS] + [tree / "lib/causeway" / name for name in parts(tree)]
    return needed + [file for file in more if file.is_file() and file.suffix not in (".ltoir", ".bc")]


def must_have_all(tree: Path) -> None:
    """Fails where something is not there that packages are made of."""
    wanted = [tree / "bin" / name for name in TOOLS]
    wanted += [tree / "lib/causeway/mpi" / mpi / name for mpi in MPIS for name in MPI_FILES[:2]]
    if lost := [str(file) for file in wanted if not file.is_file()]:
        raise LayoutError(f"these are not there: {', '.join(lost)}: make the tree with `make portable`")
