"""One of two ranks of NCCL, each with an environment of its own: `nccl_rank.py RANK PORT [BYTES,...]`.

Checks all_reduce, all_gather and all_to_all of numbers that differ each time, and measures all_reduce. Rank 0
prints a line `row BYTES MICROSECONDS GB/s` with tabs between for each size."""

import datetime
import os
import sys
import time

import torch
from torch import distributed

RANKS, ROUNDS, WARM_UP = 2, 3, 5
SIZES = [8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]
TIMEOUT = datetime.timedelta(seconds=30)


def check(rank, count, generator):
    """Collective calls on `count` numbers; the first that is wrong ends this rank."""
    numbers = {"generator": generator, "dtype": torch.int32}
    both = [torch.randint(-1000, 1000, (count,), **numbers) for _ in range(RANKS)]
    own = both[rank].cuda()
    gathered = torch.empty(count * RANKS, dtype=torch.int32, device="cuda")
    distributed.all_gather_into_tensor(gathered, own)
    half = count // RANKS
    exchanged = torch.empty_like(own[: half * RANKS])
    distributed.all_to_all_single(exchanged, own[: half * RANKS])
    distributed.all_reduce(own)
    # Copies in the default stream right behind collective calls hold the context's lock until those are done.
    expected = {
        "all_reduce": (own, both[0] + both[1]),
        "all_gather": (gathered, torch.cat(both)),
        "all_to_all": (exchanged, torch.cat([part[rank * half : (rank + 1) * half] for part in both])),
    }
    for name, (found, right) in expected.items():
        if not torch.equal(found.cpu(), right):
            sys.exit(f"rank {rank}: {name} of {count} numbers is wrong")


def measure(bytes_):
    """Seconds of an all_reduce, of some that follow each other."""
    vector = torch.ones(bytes_ // 4, device="cuda")
    times = max(5, min(200, int(5e7 / max(bytes_, 1 << 18))))
    for repeats in (WARM_UP, times):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeats):
            distributed.all_reduce(vector)
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / times


def main():
    """One rank."""
    rank, port = int(sys.argv[1]), sys.argv[2]
    sizes = [int(word) for word in sys.argv[3].split(",")] if len(sys.argv) > 3 else SIZES
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    device = rank % torch.cuda.device_count()
    torch.cuda.set_device(device)
    distributed.init_process_group("nccl", rank=rank, world_size=RANKS, timeout=TIMEOUT)
    generator = torch.Generator().manual_seed(int(port))
    for size in sizes:
        for _ in range(ROUNDS):
            check(rank, max(2, size // 4), generator)
        took = measure(size)
        if rank == 0:
            print(f"row\t{size}\t{took * 1e6:.4g}\t{size / took / 1e9:.3g}", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
