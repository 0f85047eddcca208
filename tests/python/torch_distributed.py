"""Training over several GPUs with torch.distributed: DDP, FSDP2, tensor parallel, collectives in graphs, symmetric memory.

The same numbers come natively and through Causeway: each step's loss is printed to the last bit. Needs two GPUs."""

import datetime
import math
import os
import socket
import subprocess
import sys
import time

from checks import child, main, need_torch, note, require, skipped_if, test
from process_group import run_group

torch = need_torch()
distributed = torch.distributed
need_two = skipped_if(lambda: torch.cuda.device_count() < 2, "there is one GPU")
STEPS = int(os.environ.get("STEPS", "60"))


def small_model():
    torch.manual_seed(5)
    layers = []
    for _ in range(6):
        layers += [torch.nn.Linear(256, 256), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 8)).cuda()


def batches(rank):
    """Other numbers for each rank and step, of which a function can be learnt."""
    generator = torch.Generator().manual_seed(100 + rank)
    while True:
        x = torch.randn(64, 256, generator=generator)
        yield x.cuda(), x[:, :8].tanh().cuda()


def train(model, optimizer, rank, amp=False):
    """The losses of this rank's steps, and the time of a step in us."""
    losses = []
    begun = None
    for step, (x, want) in zip(range(STEPS), batches(rank)):
        if step == 10:
            torch.cuda.synchronize()
            begun = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=amp):
            loss = torch.nn.functional.mse_loss(model(x).float(), want)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    took = (time.perf_counter() - begun) / (STEPS - 10) * 1e6
    return [float(loss).hex() for loss in losses], took


def report(name, answers):
    """Prints what must be the same on every run."""
    for rank, (losses, took) in enumerate(answers):
        values = [float.fromhex(loss) for loss in losses]
        # What the losses are is compared with a run on the machine itself.
        require(all(map(math.isfinite, values)), f"rank {rank} of {name} has a loss that is no number: {values}")
        require(len(set(values)) > STEPS // 2, f"rank {rank} of {name} does not train: {values}")
        print(f"{name}, rank {rank}: losses {' '.join(losses[:: max(1, STEPS // 6)])} {losses[-1]}")
        note(f"{name}, rank {rank}: {took:.0f} us a step")


def ddp_rank(rank, size):
    model = torch.nn.parallel.DistributedDataParallel(small_model(), device_ids=[rank])
    return train(model, torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9), rank)


def ddp_adamw_rank(rank, size):
    model = torch.nn.parallel.DistributedDataParallel(small_model(), device_ids=[rank], static_graph=True)
    return train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), rank, amp=True)


def fsdp_rank(rank, size):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    model = small_model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), rank)


def tensor_parallel_rank(rank, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 8)).cuda()
    mesh = init_device_mesh("cuda", (size,))
    model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), 0)


def captured_rank(rank, size):
    x = torch.full((4096,), float(rank + 1), device="cuda")
    y = torch.zeros_like(x)
    distributed.all_reduce(x.clone())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x * 2)
        distributed.all_reduce(y)
        y.add_(1)
    total = 2 * sum(range(1, size + 1)) + 1
    for round in range(20):
        x.fill_(float(rank + 1) * (round + 1))
        graph.replay()
        # What is not captured goes on beside it.
        z = torch.full((100,), 1.0, device="cuda")
        distributed.all_reduce(z)
        torch.cuda.synchronize()
        want = (total - 1) * (round + 1) + 1
        require(bool((y == want).all()) and bool((z == size).all()), f"round {round}: {y[0].item()} instead of {want}; {z[0].item()}")
    return "right"


def late_rank(rank, size):
    """A peer that comes late: kernels wait for it, look at the flag for aborting meanwhile, and go on."""
    x = torch.full((1 << 16,), float(rank + 1), device="cuda")
    for round in range(3):
        if rank == round % size:
            time.sleep(0.3)
        distributed.all_reduce(x)
        torch.cuda.synchronize()
    want = sum(range(1, size + 1)) * size * size
    require(bool((x == want).all()), f"{x[0].item()} instead of {want}")
    return "right"


def symmetric_rank(rank, size):
    import torch.distributed._symmetric_memory as symmetric_memory

    group = distributed.group.WORLD.group_name
    x = symmetric_memory.empty(8192, device=f"cuda:{rank}", dtype=torch.bfloat16)
    handle = symmetric_memory.rendezvous(x, group)
    for round in range(5):
        x.fill_(rank + 1 + round)
        got = torch.ops.symm_mem.one_shot_all_reduce(x, "sum", group)
        want = float(sum(r + 1 + round for r in range(size)))
        require(bool((got == want).all()), f"round {round}: {got[0].item()} instead of {want}")
    peer = handle.get_buffer((rank + 1) % size, (8192,), torch.bfloat16)
    handle.barrier()
    require(peer[0].item() == (rank + 1) % size + 1 + 4, f"the peer's memory holds {peer[0].item()}")
    handle.barrier()
    return "right"


@child
def lost_rank_child():
    """A rank whose peer is gone: the watchdog ends it when its time is over."""
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl", timeout=datetime.timedelta(seconds=10), device_id=torch.device("cuda", rank)
    )
    x = torch.ones(1 << 20, device="cuda")
    distributed.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        os._exit(3)
    distributed.all_reduce(x)
    torch.cuda.synchronize()


@test
@need_two
def lost_rank():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    # PyTorch gathers what it knows of the hang for a minute before it ends the rank, unless it is told not to.
    quick = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1000"}
    for rank in range(2):
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
        command = [sys.executable, sys.argv[0], "--child", "lost_rank_child"]
        # The port's store is rank 0's, which stays.
        ranks.append(subprocess.Popen(command, env={**os.environ, **quick, **place}, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    start = time.monotonic()
    try:
        statuses = [process.wait(max(1, 90 - (time.monotonic() - start))) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    require(statuses[1] == 3 and statuses[0] not in (0, 3), f"the ranks ended with {statuses}")
    print("lost rank: the other one ends with an error")
    note(f"the rank that was left ended with {statuses[0]} after {time.monotonic() - start:.0f} s")


@test
@need_two
def late_peer():
    print("late peer:", *run_group(late_rank, 2))


@test
@need_two
def ddp():
    report("DDP", run_group(ddp_rank, 2))


@test
@need_two
def ddp_adamw_bfloat16():
    report("DDP with AdamW", run_group(ddp_adamw_rank, 2))


@test
@need_two
def fsdp2():
    report("FSDP2", run_group(fsdp_rank, 2))


@test
@need_two
def tensor_parallel():
    report("tensor parallel", run_group(tensor_parallel_rank, 2))


@test
@need_two
def captured_all_reduce():
    print("captured all_reduce:", *run_group(captured_rank, 2))


@test
@need_two
def symmetric_memory():
    print("symmetric memory:", *run_group(symmetric_rank, 2))


if __name__ == "__main__":
    main()
