"""PyTorch with CUDA's own stream-ordered allocator (cudaMallocAsync) instead of its caching one."""

import os

os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"

from checks import main, need_torch, require, same, test  # noqa: E402  the allocator is chosen before PyTorch is loaded

torch = need_torch()

MIB = 1 << 20


@test
def the_allocator_is_in_use():
    same(torch.cuda.get_allocator_backend(), "cudaMallocAsync", "the allocator")


@test
def blocks_come_and_go():
    total = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(200):
        total += torch.full((number * 10_000 + 1,), 1, dtype=torch.uint8, device="cuda").sum()
    same(total.item(), sum(number * 10_000 + 1 for number in range(200)), "the number of bytes")


@test
def several_streams():
    streams = [torch.cuda.Stream() for _ in range(4)]
    results = []
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            for _ in range(20):
                x = torch.full((1 << 18,), float(number), device="cuda")
                x = x + 1
            results.append(x)
    torch.cuda.synchronize()
    same([r[-1].item() for r in results], [1.0, 2.0, 3.0, 4.0], "the results")


@test
def counts():
    before = torch.cuda.memory_allocated()
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    require(torch.cuda.memory_allocated() - before >= 64 * MIB, "64 MiB were counted as less")
    del x


@test
def too_much_memory_is_refused_at_the_call():
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("1 TiB was allocated")
    same(torch.ones(1000, device="cuda").sum().item(), 1000.0, "a sum after memory ran out")


if __name__ == "__main__":
    main()
