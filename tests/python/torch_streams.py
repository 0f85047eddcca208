"""PyTorch: streams, events, their order and their times, copies beside kernels."""

import threading
import time

from checks import close, main, need_torch, require, test

torch = need_torch()

# How long a kernel is kept busy, in clock cycles: some 50 ms on a GPU of 1 to 2 GHz.
LONG = 100_000_000


@test
def events_measure_time():
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1000)
    begin.record()
    torch.cuda._sleep(LONG)
    end.record()
    end.synchronize()
    milliseconds = begin.elapsed_time(end)
    require(milliseconds > 20, f"{LONG} cycles took {milliseconds} ms by the events")


@test
def queries_say_what_is_done():
    event, stream = torch.cuda.Event(), torch.cuda.Stream()
    torch.cuda.synchronize()
    require(stream.query(), "an idle stream is busy")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        event.record()
    require(not event.query(), "an event was done before its kernel")
    require(not stream.query(), "a busy stream is idle")
    deadline = time.monotonic() + 10
    while not event.query():
        require(time.monotonic() < deadline, "an event was not done after 10 s of queries")
    stream.synchronize()
    require(stream.query(), "a stream is busy after it was waited for")


@test
def one_stream_waits_for_another():
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    for number in range(1, 6):
        with torch.cuda.stream(first):
            torch.cuda._sleep(LONG // 10)
            x.fill_(number)
        second.wait_stream(first)
        with torch.cuda.stream(second):
            y = x * 2
        second.synchronize()
        require(bool((y == 2 * number).all()), f"round {number}: the second stream read {y[0].item() / 2}")
        first.wait_stream(second)


@test
def copies_that_do_not_block():
    host = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    back = torch.empty(1 << 20, pin_memory=True)
    require(host.is_pinned() and back.is_pinned(), "pinned memory is not pinned")
    for number in range(10):
        x = host.to("cuda", non_blocking=True)
        back.copy_(x * number, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        event.synchronize()
        close(back, host * number, 1e-6, f"round {number}")


@test
def a_pinned_source_is_read_in_stream_order():
    first, second = torch.ones(1 << 16).pin_memory(), torch.full((1 << 16,), 2.0).pin_memory()
    results = []
    for source in (first, second, first):
        results.append(source.to("cuda", non_blocking=True) + 1)
    torch.cuda.synchronize()
    require([r[-1].item() for r in results] == [2.0, 3.0, 2.0], "copies came in the wrong order")


@test
def priorities():
    low, high = torch.cuda.Stream.priority_range()
    require(high < low, f"the priorities range from {low} to {high}")
    stream = torch.cuda.Stream(priority=high)
    with torch.cuda.stream(stream):
        x = torch.ones(100, device="cuda").sum()
    stream.synchronize()
    require(x.item() == 100, "a stream of high priority computed wrongly")


@test
def memory_is_not_reused_before_its_time():
    stream = torch.cuda.Stream()
    for _ in range(20):
        x = torch.full((1 << 18,), 7.0, device="cuda")
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG // 100)
            y = x.clone()
        x.record_stream(stream)
        del x
        torch.full((1 << 18,), 9.0, device="cuda")
        stream.synchronize()
        require(bool((y == 7).all()), "memory was overwritten while a stream still read it")


@test
def threads_with_streams_of_their_own():
    failures = []

    def work(seed):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                x = torch.full((1000, 100), float(seed), device="cuda")
                for _ in range(50):
                    x = x + 1
            stream.synchronize()
            if not bool((x == seed + 50).all()):
                failures.append(f"thread {seed} got {x[0, 0].item()}")
        except Exception as error:
            failures.append(f"thread {seed}: {error}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    require(not failures, "; ".join(failures))


@test
def backward_runs_on_the_stream_of_forward():
    stream = torch.cuda.Stream()
    w = torch.ones(64, 64, device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        y = (w @ w).sum()
    stream.synchronize()
    y.backward()
    torch.cuda.synchronize()
    close(w.grad, torch.full((64, 64), 128.0), 1e-6)


if __name__ == "__main__":
    main()
