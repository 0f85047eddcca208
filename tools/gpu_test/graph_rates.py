"""What collective calls of libcauseway_comm take in a graph: `graph_rates.py BYTES[,BYTES...] [RANKS]`, as
many processes by themselves, whose GPUs are those of the machine in turn.

A graph has twenty calls. It is launched several times, and what is told is the time of one call. Each row is
a line `row CALL BYTES MICROSECONDS` with tabs between; bytes as in nccl_rates.py. Each call's result is
looked at."""

import ctypes
import pathlib
import sys
import time

# In the bundle the modules lie in one folder, in the source tree in two.
sys.path.extend(
    str(pathlib.Path(__file__).resolve().parents[up] / folder)
    for up, folder in ((1, "team"), (2, "mpi/python"), (2, "tests/mpi"))
)

import causeway_comm
from python_gpu import Gpu
from python_job import all_ranks_end_well, capturing

CALLS = 20
NUMBER, SUM = causeway_comm.FLOAT32, causeway_comm.SUM


class Rank:
    """One of the processes."""

    def __init__(self, comm, gpu, pipes):
        self.gpu, self.pipes = gpu, pipes
        self.group = comm.group(range(len(pipes)), pipes.exchange)
        self.stream = ctypes.c_void_p()
        gpu.call("cuStreamCreate", ctypes.byref(self.stream), 1)

    def wait(self):
        self.gpu.call("cuStreamSynchronize", self.stream)

    def repeated(self, step, times):
        """Seconds of one of so many steps, from where all ranks are ready."""
        self.wait()
        self.pipes.meet()
        start = time.perf_counter()
        for _ in range(times):
            step()
        self.wait()
        return (time.perf_counter() - start) / times

    def measure(self, call):
        """Microseconds of a call in a graph."""
        with capturing(self.gpu, self.stream) as launchable:
            for _ in range(CALLS):
                call(self.stream)

        def launch():
            self.gpu.call("cuGraphLaunch", launchable, self.stream)

        first = self.repeated(launch, 3)
        # As often at all ranks: by what the first one has found.
        received = self.pipes.exchange([int(1e6 * first).to_bytes(8, "little")] * len(self.pipes))
        times = max(3, min(100, 200_000 // max(1, int.from_bytes(received[0], "little"))))
        found = 1e6 * self.repeated(launch, times) / CALLS
        self.group.check_graphs()
        self.gpu.call("cuGraphExecDestroy", launchable)
        return found


def calls(group, own, many, beside, nbytes):
    """The calls by name, and the whole number that each has in the end at `where`, from ones and a rank's
    number."""
    count = nbytes // 4
    ranks = group.ranks
    return {
        "allreduce": (lambda stream: group.allreduce(own, beside, count, NUMBER, SUM, stream=stream), ranks),
        "bcast": (lambda stream: group.broadcast(beside, nbytes, 0, stream=stream), ranks),
        "allgather": (lambda stream: group.allgather(own, beside, nbytes, stream=stream), 1),
        "alltoall": (lambda stream: group.alltoall(many, beside, nbytes, stream=stream), 1),
    }


def run(me, pipes, nonce, sizes):
    gpu = Gpu(me)
    ranks = len(pipes)
    with causeway_comm.Comm(nonce, me, ranks) as comm:
        rank = Rank(comm, gpu, pipes)
        pipes.meet()  # until all have joined
        for nbytes in sizes:
            own, many, beside = (gpu.allocate(nbytes * factor) for factor in (1, ranks, ranks))
            one = 0x3F800000  # 1.0
            for address, factor in ((own, 1), (many, ranks), (beside, ranks)):
                words = ctypes.c_size_t(nbytes * factor // 4)
                gpu.call("cuMemsetD32_v2", ctypes.c_uint64(address), one, words)
            for name, (call, result) in calls(rank.group, own, many, beside, nbytes).items():
                found = rank.measure(call)
                last = ctypes.c_float.from_buffer_copy(gpu.read(beside + nbytes - 4, 4)).value
                assert last == result, f"{name} of {nbytes} bytes gives {last}, and not {result}"
                if me == 0:
                    print(f"row\t{name}\t{nbytes}\t{found:.4g}", flush=True)
            pipes.meet()
            rank.group.release_graphs()
            pipes.meet()
            for address in (own, many, beside):
                gpu.call("cuMemFree_v2", ctypes.c_uint64(address))


def main():
    sizes = [int(word) for word in sys.argv[1].split(",")]
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    sys.exit(not all_ranks_end_well(ranks, run, causeway_comm.new_nonce(), sizes))


if __name__ == "__main__":
    main()
