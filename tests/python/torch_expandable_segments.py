"""PyTorch's allocator with segments that grow (virtual memory management: reserve, create, map)."""

import os

os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

from checks import close, main, need_torch, require, test  # noqa: E402  the allocator is chosen before PyTorch is loaded

torch = need_torch()

MIB = 1 << 20


@test
def blocks_grow_in_place():
    held = []
    for number in range(40):
        held.append(torch.full((number * MIB // 2 + 1000,), number, dtype=torch.uint8, device="cuda"))
    for number, tensor in enumerate(held):
        require(bool((tensor == number).all()), f"block {number} does not hold what was written")
    segments = torch.cuda.memory_snapshot()
    require(any(segment.get("is_expandable") for segment in segments), "no segment is expandable")


@test
def memory_is_unmapped_and_mapped_again():
    for _ in range(5):
        x = torch.ones(300 * MIB, dtype=torch.uint8, device="cuda")
        require(x.sum().item() == 300 * MIB, "the sum is wrong")
        del x
        torch.cuda.empty_cache()
    require(torch.cuda.memory_reserved() < 300 * MIB, "the cache was not given back")


@test
def training():
    torch.manual_seed(14)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(20):
        x = torch.randn(64 + step * 16, 256, device="cuda")
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    require(losses[-1] < losses[0], f"the loss went from {losses[0]:.4f} to {losses[-1]:.4f}")


@test
def too_much_memory_is_refused_at_the_call():
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("1 TiB was allocated")
    require(torch.ones(1000, device="cuda").sum().item() == 1000, "the device computes wrongly after memory ran out")


@test
def copies():
    x = torch.randn(1 << 22)
    close(x.cuda() * 2, x * 2, 0)


if __name__ == "__main__":
    main()
