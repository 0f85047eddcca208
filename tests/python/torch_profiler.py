"""PyTorch's profiler: the CPU's part must work; the GPU's part (CUPTI) works, or is missing without harm."""

from checks import child, main, need_torch, note, require, require_child, test

torch = need_torch()


@child
def profile_everything():
    from torch.profiler import ProfilerActivity, profile, record_function

    x = torch.randn(256, 256, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        with record_function("a part with a name"):
            for _ in range(3):
                x = torch.tanh(x @ x)
        torch.cuda.synchronize()
    events = profiler.key_averages()
    names = {event.key for event in events}
    require({"aten::mm", "aten::tanh", "a part with a name"} <= names, f"the profile names {sorted(names)[:20]}")
    require(x.isfinite().all().item(), "the profiled work went wrong")
    on_device = sum(event.self_device_time_total for event in events)
    note("kernels were timed" if on_device > 0 else "kernels were not timed")


@child
def ranges_with_names():
    with torch.cuda.nvtx.range("outer"):
        torch.cuda.nvtx.mark("here")
        x = torch.ones(100, device="cuda").sum()
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    require(x.item() == 100, "the sum is wrong")


@test
def a_profile_of_cpu_and_gpu():
    require_child(profile_everything)


@test
def ranges_and_marks():
    require_child(ranges_with_names)


if __name__ == "__main__":
    main()
