"""Which applications there are, at which sizes they run, and what was published about such ones."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    name: str
    rounds: int  # how often each application runs each way, at most
    seconds: int  # no round begins that would end later than this


FULL = Scale("full", rounds=5, seconds=230)
QUICK = Scale("quick", rounds=3, seconds=85)
# Tiny sizes and kernels of our own, for the software GPU and for tests: do the programs and the measurement
# work?
SMALL = Scale("small", rounds=1, seconds=600)


@dataclass(frozen=True)
class Application:
    """One program of this folder."""

    name: str  # of its file and in its output
    title: str
    size: str  # what its sizes count
    # Its overhead on a remote GPU in "Redesigning the rCUDA communication layer", if that has one like it.
    published: str
    arguments: dict[str, str]  # for each scale; what is not given is as in the program


APPLICATIONS = [
    Application(
        "cublas",
        "cuBLAS: C = A * B + C in single precision; pageable memory",
        "rows",
        "3.6 to 15.7 %",
        {
            "full": "",
            "quick": "--sizes 1024,4096,10240 --repetitions 3",
            "small": "--sizes 64,100 --repetitions 2 --kernels own",
        },
    ),
    Application(
        "cufft",
        "cuFFT: transform of n x n complex numbers; pageable memory",
        "rows",
        "11.8 to 18.3 %",
        {
            "full": "",
            "quick": "--sizes 1024,4096,10240 --repetitions 3",
            "small": "--sizes 32,50 --repetitions 2 --kernels own",
        },
    ),
    Application(
        "fdtd3d",
        "FDTD3d: 5 steps of a stencil of radius 4; pageable memory, transfer-bound",
        "points along an edge",
        "",
        {"full": "", "quick": "", "small": "--sizes 33 --repetitions 2"},
    ),
    Application(
        "cholesky",
        "Cholesky: blocked factorisation by CPU and GPU; pinned memory, mixed",
        "rows",
        "",
        {
            "full": "",
            "quick": "--sizes 1024,4096,10240 --repetitions 3",
            "small": "--sizes 100,300 --repetitions 2 --block 48 --kernels own",
        },
    ),
    Application(
        "molecules",
        "Molecular dynamics: 1000 steps of 5 small commands; launch-bound",
        "lattice cells along an edge",
        "",
        {
            "full": "",
            "quick": "--sizes 8,16 --repetitions 3",
            "small": "--sizes 5 --steps 60 --repetitions 2",
        },
    ),
]
