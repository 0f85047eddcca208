"""CuPy: kernels compiled at run time (NVRTC), NVIDIA's libraries, streams, pools."""

from checks import Skipped, close, main, need, require, same, test

np = need("numpy")
cp = need("cupy")

rng = np.random.default_rng(24)
A, B = rng.standard_normal((120, 80)), rng.standard_normal((80, 60))


@test
def elementwise_and_reductions():
    x = rng.standard_normal((1000, 33))
    d = cp.asarray(x)
    close(cp.exp(d) + cp.sin(d) * 2, np.exp(x) + np.sin(x) * 2, 1e-12, "an expression")
    close(d.sum(axis=0), x.sum(axis=0), 1e-10, "sums")
    close(d.std(), x.std(), 1e-12, "the deviation")
    same(cp.argmax(d, axis=1), np.argmax(x, axis=1), "argmax")
    close(cp.cumsum(d.ravel()), np.cumsum(x.ravel()), 1e-9, "cumsum")
    close(cp.where(d > 0, d, 0), np.where(x > 0, x, 0), 0, "where")
    same(int(cp.arange(1 << 20, dtype=cp.int64).sum()), (1 << 20) * ((1 << 20) - 1) // 2, "the sum of 2^20 numbers")


@test
def kernels_from_source():
    kernel = cp.RawKernel(
        r"""extern "C" __global__ void scaled_sum(const float *x, const float *y, float *z, float factor, int count) {
            int i = blockDim.x * blockIdx.x + threadIdx.x;
            if (i < count) z[i] = factor * x[i] + y[i];
        }""",
        "scaled_sum",
    )
    count = 100_003
    x, y = cp.arange(count, dtype=cp.float32), cp.ones(count, dtype=cp.float32)
    z = cp.empty_like(x)
    kernel(((count + 255) // 256,), (256,), (x, y, z, np.float32(0.5), np.int32(count)))
    same(z, np.arange(count, dtype=np.float32) * np.float32(0.5) + 1)
    require(kernel.num_regs > 0, "a kernel without registers")


@test
def a_module_with_templates_and_a_constant():
    module = cp.RawModule(
        code=r"""__constant__ float table[4];
        template <typename T> __global__ void look_up(T *x, int count) {
            int i = blockDim.x * blockIdx.x + threadIdx.x;
            if (i < count) x[i] = T(table[i % 4]);
        }""",
        options=("-std=c++17",),
        name_expressions=("look_up<double>", "look_up<int>"),
    )
    table = cp.ndarray(4, cp.float32, module.get_global("table"))
    table[...] = cp.asarray([1, 2, 3, 4], dtype=cp.float32)
    for kind, name in ((cp.float64, "look_up<double>"), (cp.int32, "look_up<int>")):
        x = cp.zeros(1000, dtype=kind)
        module.get_function(name)((4,), (256,), (x, np.int32(1000)))
        same(x, np.tile([1, 2, 3, 4], 250), name)


@test
def shared_memory_of_a_chosen_size():
    kernel = cp.RawKernel(
        r"""extern "C" __global__ void reverse(float *x) {
            extern __shared__ float tile[];
            tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
            __syncthreads();
            x[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
        }""",
        "reverse",
    )
    kernel.max_dynamic_shared_size_bytes = 64 * 1024
    x = np.arange(2048, dtype=np.float32)
    d = cp.asarray(x)
    kernel((2,), (1024,), (d,), shared_mem=64 * 1024)
    same(d, x.reshape(2, 1024)[:, ::-1].ravel())


@test
def kernels_of_expressions():
    squares = cp.ElementwiseKernel("float64 x, float64 y", "float64 z", "z = (x - y) * (x - y)", "squares")
    length = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "euclidean_length")
    x = rng.standard_normal(5000)
    d = cp.asarray(x)
    close(squares(d, 2.0), (x - 2) ** 2, 1e-12)
    close(length(d), np.linalg.norm(x), 1e-12)

    @cp.fuse()
    def fused(a, b):
        return cp.sqrt(a * a + b * b)

    close(fused(d, d), np.hypot(x, x), 1e-12, "a fused function")


@test
def matrix_products():
    close(cp.asarray(A) @ cp.asarray(B), A @ B, 1e-12)
    close(cp.asarray(A, dtype=cp.float32) @ cp.asarray(B, dtype=cp.float32), A @ B, 1e-3, "float32")
    close(cp.einsum("ij,jk->ki", cp.asarray(A), cp.asarray(B)), (A @ B).T, 1e-12, "einsum")


@test
def linear_algebra():
    square = A.T @ A + 80 * np.eye(80)
    d = cp.asarray(square)
    close(cp.linalg.solve(d, cp.asarray(B)), np.linalg.solve(square, B), 1e-9, "solve")
    close(cp.linalg.eigvalsh(d), np.linalg.eigvalsh(square), 1e-9, "eigenvalues")
    close(cp.linalg.svd(cp.asarray(A), compute_uv=False), np.linalg.svd(A, compute_uv=False), 1e-9, "singular values")
    close(cp.linalg.cholesky(d), np.linalg.cholesky(square), 1e-9, "cholesky")


@test
def fourier_transforms():
    x = rng.standard_normal((8, 600)) + 1j * rng.standard_normal((8, 600))
    close(cp.fft.fft(cp.asarray(x)), np.fft.fft(x), 1e-11)
    close(cp.fft.irfft(cp.fft.rfft(cp.asarray(A))), A, 1e-11, "there and back")


@test
def sorting():
    x = rng.integers(0, 1000, 50_000)
    d = cp.asarray(x)
    same(cp.sort(d), np.sort(x), "sort")
    same(d[cp.argsort(d)], np.sort(x), "argsort")
    same(cp.unique(d), np.unique(x), "unique")
    same(cp.bincount(d), np.bincount(x), "bincount")


@test
def sparse_matrices():
    import cupyx.scipy.sparse as sparse

    dense = np.where(rng.random((90, 80)) < 0.1, A[:90], 0)
    close(sparse.csr_matrix(cp.asarray(dense)) @ cp.asarray(B), dense @ B, 1e-12)


@test
def random_numbers():
    cp.random.seed(25)
    first = cp.random.standard_normal(100_000)
    cp.random.seed(25)
    same(cp.random.standard_normal(100_000), first, "numbers of the same seed")
    require(abs(float(first.mean())) < 0.02 and abs(float(first.std()) - 1) < 0.02, "the numbers are not normal")


@test
def streams_and_events():
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    results = []
    for number, stream in enumerate(streams):
        with stream:
            begin, end = cp.cuda.Event(), cp.cuda.Event()
            begin.record()
            results.append(cp.full(100_000, number) * 2)
            end.record()
    for stream in streams:
        stream.synchronize()
    require(cp.cuda.get_elapsed_time(begin, end) >= 0, "time ran backwards")
    same([int(r[-1]) for r in results], [0, 2, 4], "the results")
    reached = []
    streams[0].launch_host_func(reached.append, "here")
    streams[0].synchronize()
    same(reached, ["here"], "what the host's function saw")


@test
def memory_pools():
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.used_bytes()
    x = cp.zeros(1 << 20, dtype=cp.float64)
    require(pool.used_bytes() - before >= 8 << 20, "8 MiB were counted as less")
    del x
    same(pool.used_bytes(), before, "the bytes in use")
    pool.free_all_blocks()
    with cp.cuda.using_allocator(cp.cuda.MemoryAsyncPool().malloc):
        same(int(cp.ones(1 << 16).sum()), 1 << 16, "a sum in a stream-ordered pool")
    try:
        cp.empty(1 << 44, dtype=cp.uint8)
    except cp.cuda.memory.OutOfMemoryError:
        pass
    else:
        raise AssertionError("16 TiB were allocated")
    same(int(cp.ones(1000).sum()), 1000, "a sum after memory ran out")


@test
def pinned_memory():
    memory = cp.cuda.alloc_pinned_memory(8000)
    x = np.frombuffer(memory, np.float64, 1000)
    x[...] = np.arange(1000)
    d = cp.empty(1000)
    d.set(x)
    d *= 2
    same(d.get(out=x), np.arange(1000) * 2.0)


@test
def managed_memory():
    if not cp.cuda.Device().attributes["ManagedMemory"]:
        raise Skipped("the device says that it has no managed memory")
    with cp.cuda.using_allocator(cp.cuda.malloc_managed):
        x = cp.arange(10_000, dtype=cp.float64)
        same(float(x.sum()), 49_995_000.0, "the sum")


@test
def graphs():
    stream = cp.cuda.Stream(non_blocking=True)
    x = cp.zeros(1000)
    x + 1  # its kernel is compiled before the capture
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        x += 1
        graph = stream.end_capture()
        for _ in range(10):
            graph.launch()
    stream.synchronize()
    same(float(x[0]), 10.0, "the number of launches")


@test
def wrong_source_is_refused():
    try:
        cp.RawKernel('extern "C" __global__ void wrong() { nothing(); }', "wrong")((1,), (1,), ())
    except cp.cuda.compiler.CompileException as error:
        require("nothing" in str(error), "the compiler's message is missing")
    else:
        raise AssertionError("wrong source was compiled")


if __name__ == "__main__":
    main()
