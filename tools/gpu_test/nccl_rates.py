"""What NCCL takes between two GPUs: `nccl_rates.py BYTES[,BYTES...] [SECONDS]`, two processes by themselves.

Calls follow each other in one stream, as in nccl-tests, and what is told is the time of one. Of some there
are twenty in a graph, too: `captured allreduce`. Each row is a line
`row CALL BYTES MICROSECONDS` with tabs between. Bytes are those of one rank: what it sends, and for
all_gather and all_to_all the block for one peer, as in `causeway bench mpi`."""

import os
import socket
import sys
import time

import torch
from torch import distributed

RANKS = 2
# Of each call so many are tried before it is known how many fit into the time.
WARM_UP = 5
# Calls of a graph.
CAPTURED = 20


def calls(rank, count):
    """The calls by name, on vectors of `count` numbers of 32 bits."""
    own = torch.ones(count, device="cuda")
    all_of_them = torch.ones(count * RANKS, device="cuda")
    received = torch.ones(count * RANKS, device="cuda")
    peer = 1 - rank

    def ping():
        first, then = (distributed.send, distributed.recv)[:: 1 if rank == 0 else -1]
        first(own, peer)
        then(own, peer)

    return {
        "latency": ping,  # halved, as half a round trip is one message
        "allreduce": lambda: distributed.all_reduce(own),
        "bcast": lambda: distributed.broadcast(own, src=0),
        "allgather": lambda: distributed.all_gather_into_tensor(all_of_them, own),
        "alltoall": lambda: distributed.all_to_all_single(received, all_of_them),
        "reduce": lambda: distributed.reduce(own, dst=0),
    }


def repeated(call, times):
    """Seconds of one call, of so many."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def measure(call, seconds):
    """Microseconds of one call; both ranks repeat it equally often."""
    for _ in range(WARM_UP):
        call()
    each = repeated(call, WARM_UP)
    times = torch.tensor([max(2, min(1000, int(seconds / each)))], device="cuda")
    distributed.broadcast(times, src=0)
    return repeated(call, int(times)) * 1e6


def captured(call):
    """What launches a graph with so many calls."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CAPTURED):
            call()
    return graph.replay


def rank_main(rank, port, sizes, seconds):
    """One of the two processes."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank % torch.cuda.device_count())
    distributed.init_process_group("nccl", rank=rank, world_size=RANKS)
    for size in sizes:
        for name, call in calls(rank, max(1, size // 4)).items():
            found = measure(call, seconds) / (2 if name == "latency" else 1)
            if rank == 0:
                print(f"row\t{name}\t{size}\t{found:.4g}", flush=True)
            if name in ("allreduce", "bcast", "allgather", "alltoall"):
                found = measure(captured(call), seconds) / CAPTURED
                if rank == 0:
                    print(f"row\tcaptured {name}\t{size}\t{found:.4g}", flush=True)
        torch.cuda.empty_cache()
    distributed.destroy_process_group()


def main():
    """Starts both."""
    sizes = [int(word) for word in sys.argv[1].split(",")]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(rank_main, (port, sizes, seconds), nprocs=RANKS)


if __name__ == "__main__":
    main()
