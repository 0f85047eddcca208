"""PyTorch: convolutions, normalisation, pooling and recurrent networks (cuDNN)."""

from checks import close, main, need_torch, require, test

torch = need_torch()
nn = torch.nn


def compare(make, shape, bound=1e-4, kind=torch.float32, memory_format=None):
    """A layer's output and gradients on the device against the CPU's."""
    torch.manual_seed(11)
    layer = make()
    x = torch.randn(shape)
    results = []
    for device in ("cpu", "cuda"):
        here = make().to(device)
        here.load_state_dict(layer.state_dict())
        leaf = x.to(device)
        if device == "cuda" and memory_format is not None:
            here, leaf = here.to(memory_format=memory_format), leaf.to(memory_format=memory_format)
        leaf = leaf.detach().requires_grad_()
        with torch.autocast(device, dtype=kind, enabled=device == "cuda" and kind != torch.float32):
            y = here(leaf)
            y = y[0] if isinstance(y, tuple) else y
        y.float().square().mean().backward()
        results.append([y, leaf.grad, *(p.grad for p in here.parameters())])
    for index, (want, got) in enumerate(zip(*results)):
        close(got, want, bound, ("the output", "the gradient of the input")[index] if index < 2 else "the gradient of a parameter")


@test
def one_to_three_dimensions():
    compare(lambda: nn.Conv1d(8, 16, 5, padding=2), (4, 8, 100))
    compare(lambda: nn.Conv2d(16, 32, 3, padding=1), (4, 16, 28, 30))
    compare(lambda: nn.Conv3d(4, 8, 3, stride=2), (2, 4, 12, 13, 14))


@test
def strides_groups_and_dilation():
    compare(lambda: nn.Conv2d(16, 32, 3, stride=2, groups=4), (4, 16, 28, 28))
    compare(lambda: nn.Conv2d(16, 16, 3, dilation=2, bias=False), (4, 16, 28, 28))
    compare(lambda: nn.Conv2d(32, 32, 3, groups=32, padding=1), (4, 32, 20, 20))


@test
def transposed():
    compare(lambda: nn.ConvTranspose2d(8, 16, 4, stride=2, padding=1), (4, 8, 14, 14))


@test
def channels_last_and_half_precision():
    compare(lambda: nn.Conv2d(16, 32, 3, padding=1), (4, 16, 28, 28), 3e-2, torch.bfloat16, torch.channels_last)
    compare(lambda: nn.Conv2d(16, 32, 3, padding=1), (4, 16, 28, 28), 5e-3, torch.float16, torch.channels_last)


@test
def the_fastest_algorithm_is_looked_for():
    torch.backends.cudnn.benchmark = True
    try:
        compare(lambda: nn.Conv2d(32, 64, 3, padding=1), (8, 32, 32, 32))
    finally:
        torch.backends.cudnn.benchmark = False


@test
def normalisation_and_pooling():
    compare(lambda: nn.BatchNorm2d(16), (8, 16, 20, 20))
    compare(lambda: nn.GroupNorm(4, 16), (8, 16, 20, 20))
    compare(lambda: nn.Sequential(nn.Conv2d(8, 8, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(3)), (4, 8, 30, 30))


@test
def recurrent_networks():
    require(torch.backends.cudnn.is_available(), "cuDNN is not available")
    compare(lambda: nn.LSTM(20, 32, num_layers=2, batch_first=True), (4, 15, 20), 1e-4)
    compare(lambda: nn.GRU(20, 32, bidirectional=True), (15, 4, 20), 1e-4)


@test
def small_network_learns():
    torch.manual_seed(12)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 7 * 7, 4)
    ).cuda()
    x, y = torch.randn(64, 1, 16, 16, device="cuda"), torch.arange(64, device="cuda") % 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(100):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    require(losses[-1] < losses[0] / 2, f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
