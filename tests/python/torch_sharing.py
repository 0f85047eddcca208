"""PyTorch: processes that share a tensor of the device (CUDA IPC), in both directions."""

from checks import main, need_torch, require, test

torch = need_torch()
mp = torch.multiprocessing

LIMIT_S = 25


def change(incoming, outgoing):
    """Adds 1 to the tensors that arrive; ends with None."""
    while (tensor := incoming.get(timeout=LIMIT_S)) is not None:
        before = tensor[0].item()
        tensor += 1
        torch.cuda.synchronize()
        outgoing.put(before)
        del tensor


def produce(outgoing, done):
    """Sends a tensor of its own, and lives until it has been read."""
    tensor = torch.arange(1000, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    outgoing.put(tensor)
    done.wait(LIMIT_S)


def record(incoming, outgoing):
    """Records an event that another process made, after work of its own."""
    event, tensor = incoming.get(timeout=LIMIT_S)
    torch.cuda._sleep(20_000_000)
    tensor.fill_(5)
    event.record()
    outgoing.put("recorded")
    incoming.get(timeout=LIMIT_S)


def started(function, *arguments):
    process = mp.get_context("spawn").Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def ended(process):
    process.join(LIMIT_S)
    require(process.exitcode == 0, f"the other process ended with {process.exitcode}")


@test
def a_child_changes_the_tensors_of_its_parent():
    context = mp.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    process = started(change, there, back)
    small, large = torch.zeros(1000, device="cuda"), torch.full((1 << 22,), 3.0, device="cuda")
    for tensor, want in ((small, 0), (large, 3), (small, 1), (small[500:], 2)):
        torch.cuda.synchronize()
        there.put(tensor)
        before = back.get(timeout=LIMIT_S)
        require(before == want, f"the child read {before} instead of {want}")
    there.put(None)
    ended(process)
    require(small[:500].eq(2).all().item() and small[500:].eq(3).all().item(), f"the small tensor holds {small[::499].tolist()}")
    require(large.eq(4).all().item(), f"the large tensor holds {large[0].item()}")


@test
def a_parent_reads_a_tensor_of_its_child():
    context = mp.get_context("spawn")
    there, done = context.Queue(), context.Event()
    process = started(produce, there, done)
    tensor = there.get(timeout=LIMIT_S)
    total = tensor.double().sum().item()
    tensor.mul_(2)
    doubled = tensor.double().sum().item()
    del tensor
    done.set()
    ended(process)
    require((total, doubled) == (499500.0, 999000.0), f"the sums are {total} and {doubled}")


@test
def an_event_of_one_process_recorded_by_another():
    context = mp.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    process = started(record, there, back)
    event, tensor = torch.cuda.Event(interprocess=True), torch.zeros(1000, device="cuda")
    event.record()
    torch.cuda.synchronize()
    there.put((event, tensor))
    require(back.get(timeout=LIMIT_S) == "recorded", "the other process did not record the event")
    torch.cuda.current_stream().wait_event(event)
    got = tensor.sum().item()
    there.put(None)
    ended(process)
    require(got == 5000, f"after the event the sum is {got}")


if __name__ == "__main__":
    main()
