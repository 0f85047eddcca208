"""PyTorch: CUDA graphs captured from streams."""

from checks import close, main, need_torch, note, require, test

torch = need_torch()


def warmed_up(function, times=3):
    """Calls the function on a side stream, as PyTorch asks for before a capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(times):
            function()
    torch.cuda.current_stream().wait_stream(stream)


@test
def replays_read_new_inputs():
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64)).cuda()
    x = torch.zeros(32, 256, device="cuda")
    with torch.no_grad():
        warmed_up(lambda: model(x))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        for _ in range(20):
            x.copy_(torch.randn(32, 256))
            graph.replay()
            close(y, model(x), 1e-5)


@test
def a_whole_training_step():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True)
    x, y = torch.randn(128, 32, device="cuda"), torch.randn(128, 1, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    warmed_up(step)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for _ in range(100):
        graph.replay()
        losses.append(loss.item())
    require(losses[-1] < losses[0] / 2, f"the loss went from {losses[0]:.4f} to {losses[-1]:.4f}")
    require(losses[-1] != losses[-2], "dropout used the same numbers twice")


@test
def graphed_callables():
    torch.manual_seed(8)
    plain = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    graphed = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
    graphed.load_state_dict(plain.state_dict())
    sample = torch.randn(16, 32, device="cuda", requires_grad=True)
    callable_ = torch.cuda.make_graphed_callables(graphed, (sample,))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (plain, graphed)]
    for _ in range(10):
        x = torch.randn(16, 32, device="cuda")
        for model, optimizer in zip((plain, callable_), optimizers):
            optimizer.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            optimizer.step()
    for p, q in zip(plain.parameters(), graphed.parameters()):
        close(q, p, 1e-4, "a trained parameter")


@test
def two_graphs_share_a_pool():
    x = torch.ones(1 << 16, device="cuda")
    warmed_up(lambda: (x * 2).sum())
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = x * 2
    with torch.cuda.graph(second, pool=first.pool()):
        z = y + 1
    for number in range(5):
        x.fill_(number)
        first.replay()
        second.replay()
        require(bool((z == 2 * number + 1).all()), f"round {number} gave {z[0].item()}")


@test
def a_capture_over_two_streams():
    x = torch.randn(1 << 16, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    warmed_up(lambda: x.sin() + x.cos())
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = x.sin()
        b = x.cos()
        torch.cuda.current_stream().wait_stream(side)
        total = a + b
    for _ in range(3):
        x.normal_()
        graph.replay()
        close(total, x.sin() + x.cos(), 1e-6)


@test
def many_replays_in_a_row():
    x = torch.zeros(1024, device="cuda")
    warmed_up(lambda: x.add(1))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
    x.zero_()
    for _ in range(5000):
        graph.replay()
    require(bool((x == 5000).all()), f"5000 replays added {x[0].item()}")


@test
def work_goes_on_after_a_refused_capture():
    x = torch.ones(16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            (x + 1).sum().item()
    except RuntimeError as error:
        note(f"the capture ended with: {str(error).splitlines()[0]}")
    else:
        raise AssertionError("a wait for the device was captured")
    require((x + 1).sum().item() == 32, "the device computes wrongly after a refused capture")


if __name__ == "__main__":
    main()
