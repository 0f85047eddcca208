"""Processes of one torch.distributed group, with a GPU each."""

import os
import queue
import socket
import time
import traceback

from checks import need_torch, note, require

torch = need_torch()
distributed = torch.distributed

# An error must have come by then, counted from when all processes are ready; what works may take longer.
SOON_S = 10
LIMIT_S = 60


def _rank_main(work, rank, size, port, results, ready):
    """One process of the group; says how it went."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    torch.cuda.set_device(rank)
    torch.zeros(1, device="cuda")
    ready.wait(LIMIT_S)
    start = time.monotonic()
    try:
        distributed.init_process_group("nccl", rank=rank, world_size=size, device_id=torch.device("cuda", rank))
        answer = work(rank, size)
        torch.cuda.synchronize()
        distributed.destroy_process_group()
        results.put((rank, None, answer, time.monotonic() - start))
    except Exception as error:
        traceback.print_exc()
        results.put((rank, " ".join(str(error).split())[-300:], None, time.monotonic() - start))


def run_group(work, size):
    """Has each process of a group call `work(rank, size)`, a function of a module; what they gave, by rank.

    Raises when a process fails or is not heard of."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results, ready = context.Queue(), context.Barrier(size)
    processes = [
        context.Process(target=_rank_main, args=(work, rank, size, port, results, ready), daemon=True) for rank in range(size)
    ]
    for process in processes:
        process.start()
    try:
        outcomes = sorted((results.get(timeout=LIMIT_S) for _ in processes), key=lambda outcome: outcome[0])
    except queue.Empty:
        raise AssertionError(f"nothing was heard of a process for {LIMIT_S} s: the group hangs") from None
    finally:
        for process in processes:
            process.join(5)
            process.kill()
    for rank, error, _, seconds in outcomes:
        if error is not None:
            note(f"process {rank} failed after {seconds:.1f} s: {error}")
    failed = [rank for rank, error, _, _ in outcomes if error is not None]
    require(not failed, f"processes {failed} of the group failed")
    return [answer for _, _, answer, _ in outcomes]
