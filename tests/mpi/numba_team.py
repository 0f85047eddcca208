"""Two ranks of one process whose kernels communicate, in Numba: the operations are linked to the kernel as
NVIDIA's intermediate code. Prints `ok` when both have what they were sent, and counted what they were to.

    python3 numba_team.py build/cuda/causeway_device.ltoir [FOLDER...]     FOLDERs hold Numba, if Python does not

Ends with 77 where there is no Numba."""

import importlib.util
import pathlib
import site
import sys

for folder in sys.argv[2:]:
    site.addsitedir(folder)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "mpi" / "python"))
if importlib.util.find_spec("numba") is None:
    print("skipped: there is no Numba")
    sys.exit(77)
import numpy  # noqa: E402

if not hasattr(numpy, "row_stack"):  # Numba's CUDA part still asks for a name that NumPy 2.5 has dropped
    numpy.row_stack = numpy.vstack
import causeway_numba  # noqa: E402
import causeway_team  # noqa: E402
from causeway_numba import AT_LEAST, SET  # noqa: E402
from numba import cuda  # noqa: E402

NUMBERS = 250
ADDITIONS = 7

ops = causeway_numba.operations(sys.argv[1])
put_signal, signal_wait, barrier = ops.put_signal["block"], ops.signal_wait["block"], ops.barrier["block"]
atomic_add = ops.atomic_add


@cuda.jit(lto=True)
def shift(team, peer, data, cells, numbers, nbytes, seed, before, statuses):
    """Writes numbers, puts them behind the peer's own, waits for the peer's; then all threads count up a word."""
    for at in range(cuda.threadIdx.x, NUMBERS, cuda.blockDim.x):
        numbers[at] = seed * 1000 + at
    cuda.syncthreads()
    sent = put_signal(team, peer, data, nbytes, data, 0, nbytes, cells, 0, 1, SET)
    seen = signal_wait(team, cells, 0, AT_LEAST, 1)
    added = 0
    for _ in range(ADDITIONS):
        added |= atomic_add(team, peer, cells, 8, 1, before + 8 * cuda.threadIdx.x)
    met = barrier(team, 0)
    statuses[cuda.threadIdx.x] = sent | seen | added | met


def main():
    threads, nbytes = 64, 4 * NUMBERS
    cuda.current_context()
    seed = numpy.random.default_rng().integers(1, 1000, 2).astype(numpy.int32)
    with causeway_team.Team.create(2, limit_milliseconds=60_000) as team:
        # Memory of the program's own, as a tensor has it.
        arrays = [cuda.device_array(2 * NUMBERS, numpy.int32) for _ in range(2)]
        data = team.register([array.device_ctypes_pointer.value for array in arrays], 2 * nbytes)
        words = [cuda.to_device(numpy.zeros(8, numpy.uint64)) for _ in range(2)]
        cells = team.register([array.device_ctypes_pointer.value for array in words], 64)
        statuses = [cuda.to_device(numpy.full(threads, 99, numpy.uint32)) for _ in range(2)]
        befores = [cuda.device_array(threads, numpy.uint64) for _ in range(2)]
        handles, streams = causeway_numba.Handles(), [cuda.stream() for _ in range(2)]
        arguments = [
            (
                *(handles.put(team.handle(rank)), numpy.uint32(1 - rank)),
                *(handles.put(window.handle(rank)) for window in (data, cells)),
                *(arrays[rank], numpy.uint64(nbytes), seed[rank]),
                *(numpy.uint64(befores[rank].device_ctypes_pointer.value), statuses[rank]),
            )
            for rank in range(2)
        ]
        # Compiled and loaded before a kernel waits for another one.
        kernel = shift.specialize(*arguments[0])
        cuda.synchronize()
        for stream, of_rank in zip(streams, arguments, strict=True):
            kernel[1, threads, stream](*of_rank)
        for stream in streams:
            stream.synchronize()
        team.check()
        for rank in range(2):
            assert not statuses[rank].copy_to_host().any(), f"rank {rank}: {statuses[rank].copy_to_host()}"
            found = arrays[rank].copy_to_host()
            expected = seed[1 - rank] * 1000 + numpy.arange(NUMBERS)
            assert (found[NUMBERS:] == expected).all(), f"rank {rank} has {found[NUMBERS:]}"
            counted = words[rank].copy_to_host()[1]
            assert counted == threads * ADDITIONS, f"rank {rank}: {counted} were counted"
            # Each thread's last addition found another number.
            assert len(set(befores[rank].copy_to_host())) == threads
    print("ok")


main()
