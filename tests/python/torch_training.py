"""PyTorch: products in every type, attention, autocast training, optimizers."""

from checks import close, main, need_torch, require, test, value

torch = need_torch()
F = torch.nn.functional


@test
def products_in_every_type():
    a, b = torch.randn(264, 136), torch.randn(136, 72)
    for kind, bound in (
        (torch.float64, 1e-12),
        (torch.float32, 1e-5),
        (torch.float16, 2e-3),
        (torch.bfloat16, 1e-2),
    ):
        left, right = a.to(kind), b.to(kind)
        close(left.cuda() @ right.cuda(), left.double() @ right.double(), bound, f"a product in {kind}")
        batch = torch.bmm(left.cuda().expand(5, -1, -1), right.cuda().expand(5, -1, -1))
        close(batch[4], left.double() @ right.double(), bound, f"a product of a batch in {kind}")
    left, right = torch.randint(-128, 127, (64, 128)), torch.randint(-128, 127, (128, 64))
    got = torch._int_mm(left.to(torch.int8).cuda(), right.to(torch.int8).cuda())
    close(got, left @ right, 0, "a product of 8-bit integers")


@test
def linear_layers_with_bias():
    layer = torch.nn.Linear(136, 264)
    x = torch.randn(48, 136)
    want = layer(x)
    on_device = torch.nn.Linear(136, 264).cuda()
    on_device.load_state_dict(layer.state_dict())
    close(on_device(x.cuda()), want, 1e-5)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        got = on_device(x.cuda())
        gelu = F.gelu(on_device(x.cuda()))
    require(got.dtype == torch.bfloat16, f"autocast gave {got.dtype}")
    close(got, want, 1e-2, "a layer under autocast")
    close(gelu, F.gelu(want), 1e-2, "a layer with GELU under autocast")


@test
def attention_in_every_implementation():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.randn(2, 4, 128, 64) for _ in range(3))
    v.requires_grad_()
    want = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    (gradient,) = torch.autograd.grad(want.square().sum(), v)
    for backend in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        left = [x.detach().to("cuda", torch.bfloat16).requires_grad_() for x in (q, k, v)]
        with sdpa_kernel(backend):
            got = F.scaled_dot_product_attention(*left, is_causal=True)
            got.float().square().sum().backward()
        close(got, want, 3e-2, f"attention by {backend.name}")
        close(left[2].grad, gradient, 5e-2, f"the gradient of attention by {backend.name}")


class Transformer(torch.nn.Module):
    def __init__(self, vocabulary=512, width=128, layers=3, heads=4, length=64):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, vocabulary)
        self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x):
        here = self.tokens(x) + self.places.weight[: x.shape[1]]
        return self.head(self.layers(here, mask=self.mask, is_causal=True))


def train(kind, steps=12):
    """The losses of a training run under autocast."""
    torch.manual_seed(2)
    model = Transformer().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cuda", enabled=kind == torch.float16)
    text = torch.randint(0, 512, (8, 65), generator=torch.Generator().manual_seed(3))
    losses = []
    for _ in range(steps):
        x = text.cuda()
        with torch.autocast("cuda", dtype=kind):
            loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@test
def bfloat16_training():
    losses = train(torch.bfloat16)
    require(losses[-1] < 0.8 * losses[0], f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}")
    value("bfloat16_first_loss", losses[0], 1e-3)
    value("bfloat16_last_loss", losses[-1], 2e-2)


@test
def float16_training_with_scaled_gradients():
    losses = train(torch.float16)
    require(losses[-1] < 0.8 * losses[0], f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}")
    value("float16_first_loss", losses[0], 1e-3)
    value("float16_last_loss", losses[-1], 2e-2)


@test
def optimizers_agree_with_the_cpu():
    makers = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        "Adam": lambda p: torch.optim.Adam(p, lr=1e-2),
        "Adam, one kernel": lambda p: torch.optim.Adam(p, lr=1e-2, fused=True),
        "Adam, one parameter after another": lambda p: torch.optim.Adam(p, lr=1e-2, foreach=False),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
        "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-2),
    }
    x, y = torch.randn(64, 20), torch.randn(64, 5)
    for name, make in makers.items():
        results = []
        for device in ("cpu", "cuda"):
            torch.manual_seed(4)
            model = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.Tanh(), torch.nn.Linear(40, 5)).to(device)
            optimizer = make(model.parameters())
            for _ in range(10):
                optimizer.zero_grad()
                F.mse_loss(model(x.to(device)), y.to(device)).backward()
                optimizer.step()
            results.append(torch.cat([p.detach().flatten().cpu() for p in model.parameters()]))
        close(results[1], results[0], 1e-3, name)


@test
def gradients_of_gradients():
    x = torch.randn(6, 4, dtype=torch.float64, device="cuda", requires_grad=True)
    w = torch.randn(4, 3, dtype=torch.float64, device="cuda", requires_grad=True)
    require(torch.autograd.gradgradcheck(lambda a, b: torch.tanh(a @ b).sum(), (x, w)), "gradgradcheck said no")


@test
def random_numbers():
    torch.manual_seed(5)
    first = torch.randn(100_000, device="cuda")
    torch.manual_seed(5)
    close(torch.randn(100_000, device="cuda"), first, 0, "the same seed")
    value("mean_of_normal_numbers", first.double().mean(), 1e-6)
    state = torch.cuda.get_rng_state()
    second = torch.rand(1000, device="cuda")
    torch.cuda.set_rng_state(state)
    close(torch.rand(1000, device="cuda"), second, 0, "the same state")
    require(sorted(torch.randperm(1000, device="cuda").tolist()) == list(range(1000)), "randperm is no permutation")


@test
def elementwise_and_reductions():
    x = torch.randn(1000, 257)
    d = x.cuda()
    for name in ("exp", "sin", "sigmoid", "erf", "abs", "sum", "mean", "std", "logsumexp", "cumsum", "softmax", "argmax", "sort"):
        needs_dimension = name in ("logsumexp", "cumsum", "softmax", "sort")
        got, want = (getattr(t, name)(*([1] if needs_dimension else [])) for t in (d, x))
        if name == "sort":
            got, want = got.values, want.values
        close(got, want, 1e-4, name)
    close(torch.where(d > 0, d, -d), x.abs(), 0, "where")
    close(d[d > 1], x[x > 1], 0, "a mask")
    close(d.index_select(0, torch.arange(0, 1000, 7, device="cuda")), x[::7], 0, "index_select")
    close(torch.unique((d * 2).round()), torch.unique((x * 2).round()), 0, "unique")
    close(torch.bincount((d.flatten() > 0).long()), torch.bincount((x.flatten() > 0).long()), 0, "bincount")
    close(d.topk(5).values, x.topk(5).values, 0, "topk")
    close(torch.zeros(10, device="cuda").scatter_add_(0, torch.arange(1000, device="cuda") % 10, d[:, 0]),
          torch.zeros(10).scatter_add_(0, torch.arange(1000) % 10, x[:, 0]), 1e-4, "scatter_add_")


if __name__ == "__main__":
    main()
