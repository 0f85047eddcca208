"""Two ranks of one process whose kernels communicate, in Numba: the operations are linked to the kernel as
NVIDIA's intermediate code. Then kernels post a work request to a queue pair in the GPU's memory, and poll its
completion, where this program takes the part of the network card. Prints `ok` when both ranks have what they
were sent, and counted what they were to, and the request is the one that was asked for.

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
from causeway_numba import (  # noqa: E402
    AGAIN,
    AT_LEAST,
    COMPLETION,
    OK,
    RDMA_WRITE,
    SEND_SIGNALED,
    SET,
)
from numba import cuda  # noqa: E402
from verbs_queues import BYTES, QUEUE_PAIR, Queues  # noqa: E402

NUMBERS = 250
ADDITIONS = 7

ops = causeway_numba.operations(sys.argv[1])
put_signal, signal_wait, barrier = ops.put_signal["block"], ops.signal_wait["block"], ops.barrier["block"]
atomic_add = ops.atomic_add
post_send, try_post_send = ops.post_send["thread"], ops.try_post_send["thread"]
post_recv, poll_cq, wait_cq = ops.post_recv["thread"], ops.poll_cq["thread"], ops.wait_cq["warp"]


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


@cuda.jit(lto=True)
def post(qp, cq, address, completions, statuses):
    """Fills the queue, and finds no completion."""
    statuses[0] = post_send(qp, RDMA_WRITE, SEND_SIGNALED, 77, address, 24, 0x11, 0x2000, 0x22, 0, 0, 0)
    statuses[1] = post_send(qp, RDMA_WRITE, SEND_SIGNALED, 78, address, 24, 0x11, 0x3000, 0x22, 0, 0, 0)
    statuses[2] = try_post_send(qp, RDMA_WRITE, SEND_SIGNALED, 79, address, 24, 0x11, 0x4000, 0x22, 0, 0, 0)
    statuses[3] = post_recv(qp, 5, address + 64, 32, 0x11)
    statuses[4] = poll_cq(cq, 4, completions)


@cuda.jit(lto=True)
def poll(qp, cq, address, completions, statuses):
    """Waits for the completion of the first request, after which there is room for one more."""
    waited = wait_cq(cq, completions)
    if cuda.threadIdx.x == 0:
        statuses[0] = waited
        statuses[1] = poll_cq(cq, 4, completions + 40)
        statuses[2] = try_post_send(
            qp, RDMA_WRITE, SEND_SIGNALED, 79, address, 24, 0x11, 0x4000, 0x22, 0, 0, 0
        )


def verbs():
    """Posts and polls with queues in memory that no card looks at."""
    memory = cuda.to_device(numpy.zeros(BYTES, numpy.uint8))

    def write(offset, value):
        memory[offset : offset + len(value)].copy_to_device(numpy.frombuffer(value, numpy.uint8))

    def read(offset, count):
        return memory[offset : offset + count].copy_to_host().tobytes()

    queues = Queues(memory.device_ctypes_pointer.value, read, write)
    completions = cuda.to_device(numpy.zeros(4, COMPLETION))
    statuses = cuda.to_device(numpy.full(5, 99, numpy.uint32))
    words = [numpy.uint64(queues.at[name]) for name in ("qp", "cq", "data")]
    arguments = (*words, numpy.uint64(completions.device_ctypes_pointer.value), statuses)
    post[1, 1](*arguments)
    found = statuses.copy_to_host().tolist()
    assert found == [OK, OK, AGAIN, OK, 0], f"posts came to {found}"
    queues.check_posts()
    queues.complete_first()
    poll[1, 32](*arguments)
    found = statuses.copy_to_host().tolist()[:3]
    assert found == [OK, 0, OK], f"polls came to {found}"
    done = completions.copy_to_host()[0]
    names = ("wr_id", "queue_pair", "operation", "syndrome")
    assert [int(done[name]) for name in names] == [77, QUEUE_PAIR, 8, 0], done


main()
verbs()
print("ok")
