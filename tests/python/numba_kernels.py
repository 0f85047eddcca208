"""Numba: kernels written in Python, shared memory, atomics, device arrays, streams."""

from checks import Skipped, close, main, need, require, same, test

np = need("numpy")
if not hasattr(np, "row_stack"):  # Numba's CUDA part still asks for a name that NumPy 2.5 has dropped
    np.row_stack = np.vstack
numba = need("numba")
cuda = need("numba.cuda")

rng = np.random.default_rng(29)


@cuda.jit
def add(x, y, z):
    i = cuda.grid(1)
    if i < z.size:
        z[i] = x[i] + y[i]


@cuda.jit
def product(a, b, c):
    left = cuda.shared.array((16, 16), numba.float32)
    right = cuda.shared.array((16, 16), numba.float32)
    column, row = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = numba.float32(0)
    for start in range(0, a.shape[1], 16):
        left[ty, tx] = a[row, start + tx] if row < a.shape[0] and start + tx < a.shape[1] else 0
        right[ty, tx] = b[start + ty, column] if start + ty < b.shape[0] and column < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(16):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@cuda.jit
def count(values, bins):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(bins, values[i], 1)


@cuda.jit(device=True)
def square(x):
    return x * x


@cuda.jit
def squares(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = square(x[i])


@test
def addition():
    x, y = rng.standard_normal(100_003), rng.standard_normal(100_003)
    z = np.zeros_like(x)
    add[394, 256](x, y, z)
    same(z, x + y)


@test
def product_with_shared_memory():
    a, b = rng.standard_normal((70, 90)).astype(np.float32), rng.standard_normal((90, 50)).astype(np.float32)
    c = np.zeros((70, 50), np.float32)
    product[(4, 5), (16, 16)](a, b, c)
    close(c, a @ b, 1e-4)


@test
def atomic_counts():
    values = rng.integers(0, 32, 100_000).astype(np.int32)
    bins = np.zeros(32, np.int32)
    count[391, 256](values, bins)
    same(bins, np.bincount(values, minlength=32).astype(np.int32))


@test
def arrays_on_the_device():
    x = np.arange(10_000, dtype=np.float64)
    d = cuda.to_device(x)
    squares[40, 256](d)
    same(d.copy_to_host(), x * x, "the squares")
    same(d[10:20].copy_to_host(), (x * x)[10:20], "a part")
    empty = cuda.device_array_like(d)
    empty.copy_to_device(d)
    same(empty.copy_to_host(), x * x, "a copy on the device")


@test
def streams_and_events():
    stream = cuda.stream()
    begin, end = cuda.event(), cuda.event()
    x = np.arange(100_000, dtype=np.float64)
    with cuda.pinned(x):
        begin.record(stream)
        d = cuda.to_device(x, stream=stream)
        squares[391, 256, stream](d)
        end.record(stream)
        got = d.copy_to_host(stream=stream)
        stream.synchronize()
    same(got, x * x)
    require(begin.elapsed_time(end) >= 0, "time ran backwards")


@test
def universal_functions():
    @numba.vectorize(["float64(float64, float64)"], target="cuda")
    def hypotenuse(a, b):
        return (a * a + b * b) ** 0.5

    x, y = rng.standard_normal(10_000), rng.standard_normal(10_000)
    close(hypotenuse(x, y), np.hypot(x, y), 1e-12)


@test
def reductions():
    total = cuda.reduce(lambda a, b: a + b)
    x = np.arange(100_000, dtype=np.float64)
    same(float(total(x)), float(x.sum()), "the sum")


@test
def mapped_arrays():
    x = cuda.mapped_array(1000, dtype=np.float64)
    x[:] = np.arange(1000)
    squares[4, 256](x)
    cuda.synchronize()
    same(np.asarray(x), np.arange(1000.0) ** 2)


@test
def managed_arrays():
    if not cuda.get_current_device().MANAGED_MEMORY:
        raise Skipped("the device says that it has no managed memory")
    x = cuda.managed_array(1000, dtype=np.float64)
    x[:] = np.arange(1000)
    squares[4, 256](x)
    cuda.synchronize()
    same(np.asarray(x), np.arange(1000.0) ** 2)


@test
def the_device_describes_itself():
    free, total = cuda.current_context().get_memory_info()
    require(0 < free <= total, f"{free} of {total} bytes are free")
    require(cuda.get_current_device().compute_capability[0] >= 5, "an odd compute capability")


if __name__ == "__main__":
    main()
