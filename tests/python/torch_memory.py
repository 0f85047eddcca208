"""PyTorch: its allocator on the device, its counts, and what happens when memory runs out."""

from checks import main, need_torch, require, skipped_if, test

torch = need_torch()

MIB = 1 << 20


@test
def counts_of_the_allocator():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    require(torch.cuda.memory_allocated() - before == 100 * MIB, "100 MiB were counted differently")
    require(torch.cuda.memory_reserved() >= 100 * MIB, "fewer bytes are reserved than allocated")
    del x
    require(torch.cuda.memory_allocated() == before, "freed memory still counts")
    require(torch.cuda.max_memory_allocated() >= before + 100 * MIB, "the peak is too low")
    torch.cuda.empty_cache()
    require(torch.cuda.memory_stats()["num_ooms"] == 0, "memory ran out")


@test
def the_device_knows_its_memory():
    free, total = torch.cuda.mem_get_info()
    require(0 < free <= total, f"{free} of {total} bytes are free")
    require(total == torch.cuda.get_device_properties(0).total_memory, "two sizes of one memory")
    x = torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda")
    less = torch.cuda.mem_get_info()[0]
    del x
    torch.cuda.empty_cache()
    # Other programs may allocate and free on the same GPU meanwhile.
    require(less < total - 2000 * MIB, f"{less} of {total} bytes are free while 2 GiB are in use")


@test
def too_much_memory_is_refused_at_the_call():
    x = torch.ones(1000, device="cuda")
    for size in (1 << 40, 1 << 44):
        try:
            torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError(f"{size} bytes were allocated")
        require(x.sum().item() == 1000, "the device computes wrongly after memory ran out")
    require(torch.cuda.memory_stats()["num_ooms"] >= 2, "the refusals were not counted")


@test
def a_program_that_frees_memory_after_a_refusal_goes_on():
    torch.cuda.set_per_process_memory_fraction(2048 * MIB / torch.cuda.get_device_properties(0).total_memory)
    try:
        held = []
        try:
            while True:
                held.append(torch.empty(256 * MIB, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            pass
        require(6 <= len(held) <= 8, f"{len(held)} blocks of 256 MiB fitted into 2 GiB")
        held.clear()
        require(not torch.zeros(1024 * MIB, dtype=torch.bool, device="cuda").any().item(), "zeros are not 0")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


@test
def many_sizes():
    generator = torch.Generator().manual_seed(13)
    held = {}
    for number in range(2000):
        size = int(2 ** (torch.rand(1, generator=generator).item() * 22))
        held[number % 97] = (torch.full((size,), number % 251, dtype=torch.uint8, device="cuda"), number % 251)
    for tensor, want in held.values():
        require(bool((tensor == want).all()), f"a block of {tensor.numel()} bytes does not hold what was written")


@test
def a_snapshot():
    x = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    segments = torch.cuda.memory_snapshot()
    inside = [s for s in segments if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]]
    require(len(inside) == 1, f"the block lies in {len(inside)} segments")


@test
def a_pool_of_its_own():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(10 * MIB, dtype=torch.uint8, device="cuda")
    require(x.sum().item() == 10 * MIB, "a block of a pool does not hold what was written")


@test
@skipped_if(lambda: torch.cuda.device_count() < 2, "there is one GPU")
def copies_between_two_gpus():
    x = torch.arange(1 << 20, device="cuda:0")
    y = x.to("cuda:1")
    require(y.device.index == 1 and bool((y.cpu() == x.cpu()).all()), "a copy to the second GPU differs")
    require(bool(((y + 1).to("cuda:0") == x + 1).all()), "a copy from the second GPU differs")


if __name__ == "__main__":
    main()
