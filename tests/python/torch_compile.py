"""PyTorch: torch.compile, which makes Triton kernels and C++ launchers at run time."""

from checks import close, main, need_torch, require, test

torch = need_torch()


def network():
    torch.manual_seed(6)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 10), torch.nn.Softmax(dim=-1)
    ).cuda()


@test
def default_mode():
    model = network()
    compiled = torch.compile(model)
    with torch.no_grad():
        for batch in (32, 32, 48):
            x = torch.randn(batch, 64, device="cuda")
            close(compiled(x), model(x), 1e-4)


@test
def training_step():
    plain, compiled = network(), network()
    step = torch.compile(lambda x: compiled(x).square().sum())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, compiled)]
    for _ in range(5):
        x = torch.randn(32, 64, device="cuda")
        for optimizer, loss in zip(optimizers, (plain(x).square().sum(), step(x))):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for p, q in zip(plain.parameters(), compiled.parameters()):
        close(q, p, 1e-3, "a trained parameter")


@test
def reduce_overhead_mode():
    model = network()
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(6):  # warm-up, recording, replays
            x = torch.randn(32, 64, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            close(compiled(x), model(x), 1e-4)


@test
def reduce_overhead_training():
    model = network()
    compiled = torch.compile(model, mode="reduce-overhead")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    x = torch.randn(32, 64, device="cuda")
    losses = []
    for _ in range(8):
        torch.compiler.cudagraph_mark_step_begin()
        loss = -compiled(x)[:, 0].mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    require(losses[-1] < losses[0], f"the loss went from {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
