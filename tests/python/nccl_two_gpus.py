"""NCCL through torch.distributed: two processes with a GPU each, and one process alone."""

from checks import main, need_torch, note, require, skipped_if, test
from process_group import run_group

torch = need_torch()
distributed = torch.distributed


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


@test
def one_process():
    run_group(collectives, 1)
    note("NCCL works with one process")


@test
@skipped_if(lambda: torch.cuda.device_count() < 2, "there is one GPU")
def two_processes():
    run_group(collectives, 2)
    note("NCCL works with two processes")


if __name__ == "__main__":
    main()
