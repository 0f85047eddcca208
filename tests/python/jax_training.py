"""JAX: compiled functions, gradients, training; with memory taken as needed and with memory taken at the start."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ["JAX_PLATFORMS"] = "cuda,cpu"  # the GPU or an error, never the CPU instead of it; callbacks need both

from checks import child, close, main, need, note, require, require_child, same, test, value  # noqa: E402  XLA reads its environment when it starts

np = need("numpy")
jax = need("jax")
jnp = need("jax.numpy")

rng = np.random.default_rng(26)
A, B = rng.standard_normal((64, 48)).astype(np.float32), rng.standard_normal((48, 32)).astype(np.float32)


@test
def a_gpu_is_found():
    devices = jax.devices()
    require(devices[0].platform == "gpu", f"the devices are {devices}")
    note(f"{devices[0].device_kind}, {len(devices)} devices")


@test
def compiled_functions():
    close(jax.jit(lambda a, b: jnp.tanh(a @ b).sum(0))(A, B), np.tanh(A @ B).sum(0), 1e-2)
    with jax.default_matmul_precision("highest"):
        close(jnp.asarray(A) @ jnp.asarray(B), A @ B, 1e-5, "a product in full precision")
    x = rng.standard_normal(10_000).astype(np.float32)
    close(jnp.sort(x), np.sort(x), 0, "sort")
    close(jnp.cumsum(x), np.cumsum(x, dtype=np.float64), 1e-3, "cumsum")
    same(jnp.argsort(jnp.asarray([3, 1, 2])), np.asarray([1, 2, 0]), "argsort")


@test
def gradients():
    def loss(a):
        return jnp.sum(jnp.sin(a) ** 2)

    close(jax.grad(loss)(A), np.sin(2 * A), 1e-5)
    hessian = jax.hessian(loss)(A[0, :5])
    close(hessian, np.diag(2 * np.cos(2 * A[0, :5])), 1e-5, "second derivatives")


@test
def many_at_once():
    close(jax.vmap(lambda row: jnp.outer(row, row).sum())(A), A.sum(1) ** 2, 1e-4)


@test
def loops_on_the_device():
    total, powers = jax.lax.scan(lambda c, x: (c + x, c * x), 0.0, jnp.arange(100, dtype=jnp.float32))
    same(float(total), 4950.0, "scan")
    same(int(jax.lax.while_loop(lambda n: n < 1000, lambda n: n * 2, 1)), 1024, "while_loop")
    same(float(jax.lax.cond(jnp.asarray(True), lambda: 1.0, lambda: 2.0)), 1.0, "cond")


@test
def libraries():
    square = A.T @ A + 48 * np.eye(48, dtype=np.float32)
    close(jnp.linalg.cholesky(square), np.linalg.cholesky(square), 1e-3, "cholesky")
    close(jnp.linalg.eigvalsh(square), np.linalg.eigvalsh(square), 1e-3, "eigenvalues")
    close(jnp.linalg.svd(A, compute_uv=False), np.linalg.svd(A, compute_uv=False), 1e-3, "singular values")
    close(jnp.fft.rfft(A), np.fft.rfft(A), 1e-4, "a Fourier transform")
    image, kernel = jnp.asarray(rng.standard_normal((2, 3, 16, 16)), jnp.float32), jnp.ones((4, 3, 3, 3), jnp.float32)
    got = jax.lax.conv(image, kernel, (1, 1), "VALID")
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(image), (3, 3), axis=(2, 3)).sum((1, 4, 5))
    close(got, np.broadcast_to(windows[:, None], got.shape), 1e-2, "a convolution")


@test
def random_numbers():
    key = jax.random.key(27)
    x = jax.random.normal(key, (100_000,))
    same(jax.random.normal(key, (100_000,)), x, "numbers of the same key")
    value("mean_of_normal_numbers", x.mean(), 1e-3)


@test
def training():
    train()


def train():
    def forward(params, x):
        for w, b in params[:-1]:
            x = jax.nn.gelu(x @ w + b)
        w, b = params[-1]
        return x @ w + b

    @jax.jit
    def step(params, moments, x, y):
        loss, gradient = jax.value_and_grad(lambda p: jnp.mean((forward(p, x) - y) ** 2))(params)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradient)
        return jax.tree.map(lambda p, m: p - 0.05 * m, params, moments), moments, loss

    sizes = [16, 128, 128, 1]
    params = [
        (jnp.asarray(rng.standard_normal((m, n)) / np.sqrt(m), jnp.float32), jnp.zeros(n)) for m, n in zip(sizes, sizes[1:])
    ]
    moments = jax.tree.map(jnp.zeros_like, params)
    x = rng.standard_normal((256, 16)).astype(np.float32)
    y = np.sin(x.sum(1, keepdims=True))
    losses = []
    for _ in range(200):
        params, moments, loss = step(params, moments, x, y)
        losses.append(float(loss))
    require(losses[-1] < losses[0] / 2, f"the loss went from {losses[0]:.4f} to {losses[-1]:.4f}")


@test
def buffers_that_are_given_away():
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.zeros(1 << 20)
    for _ in range(50):
        x = step(x)
    same(float(x[-1]), 50.0, "the number of steps")


@test
def callbacks_to_the_host():
    @jax.jit
    def f(x):
        return jax.pure_callback(lambda v: np.asarray(v) * 3, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    close(f(jnp.arange(10.0)), np.arange(10.0) * 3 + 1, 1e-6)


@test
def too_much_memory_is_refused():
    try:
        jnp.zeros(1 << 40, jnp.uint8).block_until_ready()
    except Exception as error:
        require("RESOURCE_EXHAUSTED" in str(error) or "ut of memory" in str(error), f"the error is {error}")
    else:
        raise AssertionError("1 TiB was allocated")
    same(float(jnp.ones(1000).sum()), 1000.0, "a sum after memory ran out")


@child
def train_in_memory_taken_at_the_start():
    train()
    stats = jax.devices()[0].memory_stats()
    require(stats["bytes_limit"] > 1 << 30, f"the pool holds {stats['bytes_limit']} bytes")


@test
def memory_taken_at_the_start():
    require_child(
        train_in_memory_taken_at_the_start, {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".2"}, 90
    )


@test
def the_memory_pool_of_the_driver():
    require_child(train_in_the_drivers_pool, {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".05"}, 90)


@child
def train_in_the_drivers_pool():
    train()


if __name__ == "__main__":
    main()
