"""NCCL through torch.distributed: two processes with a GPU each, and one process alone.

Either everything works or the first use fails soon with an error that names its cause; nothing hangs."""

import os
import queue
import socket
import time
import traceback

from checks import main, need_torch, note, require, skipped_if, test

torch = need_torch()
distributed = torch.distributed

# An error must have come by then, counted from when all processes are ready; what works may take longer.
SOON_S = 10
LIMIT_S = 30


def collectives(rank, size):
    """Uses every operation; raises when a result is wrong."""
    x = torch.full((1 << 16,), float(rank + 1), device="cuda")
    distributed.all_reduce(x)
    require(bool((x == sum(range(1, size + 1))).all()), f"all_reduce gave {x[0].item()}")
    parts = [torch.zeros(100, device="cuda") for _ in range(size)]
    distributed.all_gather(parts, torch.full((100,), float(rank), device="cuda"))
    require([p[-1].item() for p in parts] == list(map(float, range(size))), "all_gather gave wrong parts")
    y = torch.full((1000,), float(rank * 7 + 3), device="cuda")
    distributed.broadcast(y, src=0)
    require(bool((y == 3).all()), f"broadcast gave {y[0].item()}")
    if size > 1:
        z = torch.full((1 << 18,), 5.0, device="cuda")
        if rank == 0:
            distributed.send(z, dst=1)
            distributed.recv(z, src=1)
            require(bool((z == 6).all()), f"what came back is {z[0].item()}")
        else:
            distributed.recv(z, src=0)
            distributed.send(z + 1, dst=0)
        torch.cuda.synchronize()
    distributed.barrier()


def rank_main(rank, size, port, results, ready):
    """One process of the group; says how it went."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    torch.zeros(1, device="cuda")
    ready.wait(LIMIT_S)
    start = time.monotonic()
    try:
        distributed.init_process_group("nccl", rank=rank, world_size=size)
        collectives(rank, size)
        distributed.destroy_process_group()
        results.put((rank, None, time.monotonic() - start))
    except Exception as error:
        traceback.print_exc()
        results.put((rank, " ".join(str(error).split())[-300:], time.monotonic() - start))


def run_group(size):
    """Runs a group of processes. Everything works, or every process that failed did so soon and said why."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results, ready = context.Queue(), context.Barrier(size)
    processes = [context.Process(target=rank_main, args=(rank, size, port, results, ready), daemon=True) for rank in range(size)]
    for process in processes:
        process.start()
    try:
        outcomes = [results.get(timeout=LIMIT_S) for _ in processes]
    except queue.Empty:
        raise AssertionError(f"nothing was heard of a process for {LIMIT_S} s: NCCL hangs") from None
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    for rank, error, seconds in sorted(outcomes):
        if error is not None:
            require(seconds < SOON_S, f"process {rank} took {seconds:.0f} s to fail: {error}")
            note(f"NCCL does not work, and process {rank} said so after {seconds:.1f} s: {error}")
    if all(error is None for _, error, _ in outcomes):
        note(f"NCCL works with {size} processes")


@test
def one_process():
    run_group(1)


@test
@skipped_if(lambda: torch.cuda.device_count() < 2, "there is one GPU")
def two_processes():
    run_group(2)


if __name__ == "__main__":
    main()
