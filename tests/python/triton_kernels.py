"""Triton: kernels that it compiles itself, loads as machine code and launches through a C launcher built at run time."""

from checks import Skipped, close, main, need, need_torch, require, same, test

torch = need_torch()
triton = need("triton")
tl = need("triton.language")


@triton.jit
def add_kernel(x, y, z, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    tl.store(z + place, tl.load(x + place, mask=inside) + tl.load(y + place, mask=inside), mask=inside)


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    place = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + place, mask=place < columns, other=-float("inf"))
    raised = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + place, raised / tl.sum(raised, 0), mask=place < columns)


@triton.jit
def sum_kernel(x, total, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + place, mask=place < count, other=0), 0))


@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_warps=4, num_stages=3),
        triton.Config({"BM": 128, "BN": 64, "BK": 64}, num_warps=8, num_stages=3),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def product_kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(b + inner[:, None] * n + column[None, :], mask=(inner[:, None] < k) & (column[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * n + column[None, :], total.to(tl.float16), mask=(row[:, None] < m) & (column[None, :] < n))


@triton.jit
def described_product_kernel(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        total = tl.dot(a.load([row, start]), b.load([start, column]), total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def made_descriptor_kernel(x, y, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[rows, columns], strides=[columns, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(y, shape=[rows, columns], strides=[columns, 1], block_shape=[BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([row, column], source.load([row, column]) * 2)


@test
def addition():
    for count in (1, 1000, 100_003):
        x, y = torch.randn(count, device="cuda"), torch.randn(count, device="cuda")
        z = torch.empty_like(x)
        add_kernel[(triton.cdiv(count, 1024),)](x, y, z, count, BLOCK=1024)
        close(z, x + y, 0, f"{count} sums")


@test
def softmax():
    x = torch.randn(300, 781, device="cuda")
    y = torch.empty_like(x)
    softmax_kernel[(300,)](x, y, 781, BLOCK=1024)
    close(y, torch.softmax(x, 1), 1e-6)


@test
def atomic_addition():
    x = torch.ones(100_003, dtype=torch.int32, device="cuda")
    total = torch.zeros(1, dtype=torch.int32, device="cuda")
    sum_kernel[(triton.cdiv(100_003, 512),)](x, total, 100_003, BLOCK=512)
    same(total.item(), 100_003, "the sum")


def factors(m=256, n=192, k=320):
    generator = torch.Generator().manual_seed(28)
    return (torch.randn(shape, generator=generator).half().cuda() for shape in ((m, k), (k, n)))


@test
def product_with_the_best_of_two_configurations():
    a, b = factors()
    c = torch.empty(256, 192, dtype=torch.float16, device="cuda")
    product_kernel[lambda meta: (triton.cdiv(256, meta["BM"]), triton.cdiv(192, meta["BN"]))](a, b, c, 256, 192, 320)
    close(c, a.float() @ b.float(), 2e-3)


@test
def product_with_tensor_maps_of_the_host():
    try:
        from triton.tools.tensor_descriptor import TensorDescriptor
    except ImportError:
        raise Skipped("this Triton has no tensor descriptors") from None
    if torch.cuda.get_device_capability()[0] < 9:
        raise Skipped("the device has no tensor memory accelerator")
    a, b = factors()
    c = torch.empty(256, 192, dtype=torch.float16, device="cuda")
    described = (
        TensorDescriptor.from_tensor(a, [64, 64]), TensorDescriptor.from_tensor(b, [64, 64]), TensorDescriptor.from_tensor(c, [64, 64])
    )
    described_product_kernel[(4, 3)](*described, 320, BM=64, BN=64, BK=64)
    close(c, a.float() @ b.float(), 2e-3)


@test
def tensor_maps_made_by_a_kernel():
    if not hasattr(triton, "set_allocator"):
        raise Skipped("this Triton has no tensor descriptors")
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    x = torch.randn(256, 128, device="cuda")
    y = torch.empty_like(x)
    made_descriptor_kernel[(4, 2)](x, y, 256, 128, BM=64, BN=64)
    close(y, x * 2, 0)


@test
def kernels_in_a_graph():
    x, y, z = (torch.ones(1000, device="cuda") for _ in range(3))
    add_kernel[(1,)](x, y, z, 1000, BLOCK=1024)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add_kernel[(1,)](x, y, z, 1000, BLOCK=1024)
    for number in range(5):
        x.fill_(number)
        graph.replay()
        require(bool((z == number + 1).all()), f"round {number} gave {z[0].item()}")


@test
def measurements_of_triton_itself():
    x, y, z = (torch.ones(1000, device="cuda") for _ in range(3))
    milliseconds = triton.testing.do_bench(lambda: add_kernel[(1,)](x, y, z, 1000, BLOCK=1024), warmup=5, rep=20)
    require(milliseconds > 0, f"a kernel took {milliseconds} ms")


if __name__ == "__main__":
    main()
