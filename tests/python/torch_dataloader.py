"""PyTorch: a DataLoader whose forked workers make batches that a thread pins, while the parent uses the device."""

from checks import main, need_torch, require, same, test

torch = need_torch()


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.full((64,), float(index)), index * index


def read_all(loader):
    """The sums of what arrives on the device."""
    total, squares, batches = 0.0, 0, 0
    for x, y in loader:
        require(x.is_pinned() and y.is_pinned(), "a batch is not pinned")
        x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
        total += (x.sum() / 64).item()
        squares += y.sum().item()
        batches += 1
    return total, squares, batches


WANT = (sum(range(1000)), sum(i * i for i in range(1000)), 32)


@test
def workers_forked_from_a_process_that_uses_the_device():
    torch.ones(10, device="cuda").sum().item()
    loader = torch.utils.data.DataLoader(Squares(), batch_size=32, num_workers=4, pin_memory=True, multiprocessing_context="fork")
    same(read_all(loader), WANT)
    same(read_all(loader), WANT, "the second epoch")


@test
def workers_that_stay():
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=32, num_workers=3, pin_memory=True, persistent_workers=True, shuffle=True, prefetch_factor=4,
        multiprocessing_context="fork",
    )
    for _ in range(3):
        same(read_all(loader), WANT)


@test
def no_workers():
    same(read_all(torch.utils.data.DataLoader(Squares(), batch_size=32, pin_memory=True)), WANT)


@test
def the_device_still_works():
    require(torch.ones(1000, device="cuda").sum().item() == 1000, "the device computes wrongly after the workers are gone")


if __name__ == "__main__":
    main()
