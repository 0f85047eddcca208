"""JAX: operations and training of small models, each on the GPU and on the CPU."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["JAX_PLATFORMS"] = "cuda,cpu"  # the GPU or an error, and the CPU to compare with

from checks import close, main, need, require, test, value  # noqa: E402  XLA reads its environment when it starts

np = need("numpy")
jax = need("jax")
jnp = need("jax.numpy")
lax = jax.lax

jax.config.update("jax_default_matmul_precision", "highest")


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def compare(function, *arguments, bound=1e-4):
    """The function's results on the GPU against those on the CPU."""
    got, want = (jax.jit(function)(*jax.device_put(arguments, jax.devices(kind)[0])) for kind in ("cuda", "cpu"))
    for index, (here, there) in enumerate(zip(jax.tree.leaves(got), jax.tree.leaves(want))):
        require(here.devices() == {jax.devices("cuda")[0]}, "the result is not on the GPU")
        close(np.asarray(here), np.asarray(there), bound, f"result {index}")


@test
def elements():
    compare(lambda x: jnp.where(x > 0, jnp.log1p(jnp.abs(x)), jnp.sin(x)) + jnp.tanh(x) / (1 + jnp.exp(-x)), numbers(37, 53))
    compare(lambda x: (lax.erf(x), lax.lgamma(jnp.abs(x) + 1), jnp.arctan2(x, x[::-1]), jnp.exp(1j * x)), numbers(20, 20))
    compare(lambda x: (jnp.float16(x) * 2).astype(jnp.float32) + jnp.floor(x), numbers(100), bound=1e-2)


@test
def reductions_and_scans():
    compare(lambda x: (x.sum(0), x.sum(1), x.max(1), x.argmin(0), x.var(), jax.nn.softmax(x)), numbers(37, 53))
    compare(lambda x: (x.sum(), jnp.cumsum(x)), numbers(30_000), bound=1e-3)
    compare(lambda x: lax.scan(lambda c, r: (c * 0.9 + r, jnp.sum(c * r)), jnp.zeros(53), x), numbers(37, 53))


@test
def sorting_and_indices():
    index = np.arange(20, dtype=np.int32) * 7 % 20 // 2
    compare(lambda x: (jnp.sort(x, 1), jnp.argsort(x[:, 0]), lax.top_k(x, 5)), numbers(37, 53), bound=0)
    compare(lambda x, i: (x[i], x.at[i].add(1.0), jax.ops.segment_sum(x, i % 5, 5)), numbers(20, 20), index)


@test
def random_numbers():
    compare(lambda k: (jax.random.normal(k, (99,)), jax.random.permutation(k, 20)), np.array([0, 7], np.uint32))


@test
def products():
    compare(lambda a, b: (a @ b, jax.nn.relu(a @ b + 1)), numbers(37, 53), numbers(53, 29))
    compare(lambda a, b: jnp.einsum("bhqd,bhkd->bhqk", a, b), numbers(2, 3, 16, 8), numbers(2, 3, 16, 8))
    compare(jax.vmap(lambda m, v: m @ v + jnp.linalg.norm(v)), numbers(8, 5, 6), numbers(8, 6))
    compare(lambda a, b: (a.astype(jnp.bfloat16) @ b.astype(jnp.bfloat16)).astype(jnp.float32), numbers(9, 9), numbers(9, 8), bound=5e-2)


@test
def convolutions():
    for strides, padding in (((1, 1), "SAME"), ((2, 2), "VALID")):
        conv = lambda k, a: lax.conv_general_dilated(a, k, strides, padding)  # noqa: B023, E731  used in this round alone
        compare(conv, numbers(4, 3, 3, 3), numbers(2, 3, 12, 12))
        compare(jax.grad(lambda k, a: jnp.sum(conv(k, a) ** 2)), numbers(4, 3, 3, 3), numbers(2, 3, 12, 12), bound=2e-3)  # noqa: B023


@test
def fourier_transforms():
    compare(lambda x: (jnp.fft.fft(x), jnp.fft.rfft(x), jnp.fft.ifft2(x), jnp.fft.irfft(jnp.fft.rfft(x))), numbers(8, 30))


def train(name, loss, weights, data):
    """Twenty steps of Adam on each device, whose losses must agree."""

    @jax.jit
    def step(state, count, *data):
        weights, mean, square = state
        value, gradient = jax.value_and_grad(loss)(weights, *data)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, gradient)
        change = lambda w, m, s: w - 3e-3 * (m / (1 - 0.9**count)) / (jnp.sqrt(s / (1 - 0.99**count)) + 1e-8)  # noqa: E731
        return (jax.tree.map(change, weights, mean, square), mean, square), value

    losses = {}
    for kind in ("cuda", "cpu"):
        here = jax.device_put((weights, data), jax.devices(kind)[0])
        state = (here[0], *[jax.tree.map(jnp.zeros_like, here[0]) for _ in range(2)])
        losses[kind] = []
        for count in range(1, 21):
            state, loss_now = step(state, np.float32(count), *here[1])
            losses[kind].append(float(loss_now))
    close(np.array(losses["cuda"]), np.array(losses["cpu"]), 2e-3, "the losses")
    require(losses["cuda"][-1] < 0.7 * losses["cuda"][0], f"the losses are {losses['cuda']}")
    value(f"last_loss_of_{name}", losses["cuda"][-1], 1e-2)


def cross_entropy(x, y):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[..., None], -1))


@test
def training_of_an_mlp():
    def loss(weights, x, y):
        for matrix in weights[:-1]:
            x = jax.nn.relu(x @ matrix)
        return cross_entropy(x @ weights[-1], y)

    weights = [0.1 * numbers(*shape) for shape in ((32, 64), (64, 64), (64, 10))]
    train("mlp", loss, weights, (numbers(128, 32), np.arange(128) % 10))


@test
def training_of_a_cnn():
    def loss(weights, x, y):
        for kernel in weights[:2]:
            x = jax.nn.relu(lax.conv_general_dilated(x, kernel, (1, 1), "SAME"))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return cross_entropy(x.reshape(len(x), -1) @ weights[2], y)

    weights = [0.2 * numbers(*shape) for shape in ((8, 1, 3, 3), (16, 8, 3, 3), (256, 10))]
    train("cnn", loss, weights, (numbers(32, 1, 16, 16), np.arange(32) % 10))


@test
def training_of_a_transformer():
    words, length, width, heads = 65, 32, 48, 4

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def loss(weights, x, y):
        hidden = weights["words"][x] + weights["positions"]
        mask = jnp.tril(jnp.ones((length, length), bool))
        for layer in weights["layers"]:
            joint = (norm(hidden) @ layer["qkv"]).reshape(8, length, heads, -1).transpose(0, 2, 1, 3)
            q, k, v = jnp.split(joint, 3, -1)
            scores = jnp.where(mask, q @ k.swapaxes(-1, -2) / (width / heads) ** 0.5, -1e9)
            attended = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(8, length, width)
            hidden = hidden + attended @ layer["out"]
            hidden = hidden + jax.nn.gelu(norm(hidden) @ layer["up"]) @ layer["down"]
        return cross_entropy(norm(hidden) @ weights["words"].T, y)

    layer = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "down": (4 * width, width)}
    weights = {
        "words": 0.05 * numbers(words, width),
        "positions": 0.05 * numbers(length, width),
        "layers": [{name: 0.05 * numbers(*shape) for name, shape in layer.items()} for _ in range(2)],
    }
    text = (np.arange(8 * (length + 1)).reshape(8, -1) ** 2 % words).astype(np.int32)
    train("transformer", loss, weights, (text[:, :-1], text[:, 1:]))


if __name__ == "__main__":
    main()
