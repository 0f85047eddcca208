"""PyTorch in streams that others made: the driver, the runtime, CuPy; and tensors passed to and fro by DLPack beside the default stream.

PyTorch takes the lowest bit of a stream's handle for a mark of its own, so that handles must look like pointers."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import ctypes  # noqa: E402  XLA reads its environment when it starts
import importlib.util  # noqa: E402

from checks import close, main, need_torch, require, skipped_if, test  # noqa: E402

torch = need_torch()

# How long a kernel is kept busy, in clock cycles: some 50 ms on a GPU of 1 to 2 GHz.
LONG = 100_000_000
COUNT = 1 << 20

without_cupy = skipped_if(lambda: importlib.util.find_spec("cupy") is None, "CuPy is not installed")
without_jax = skipped_if(lambda: importlib.util.find_spec("jax") is None, "JAX is not installed")


def works_in(raw, rounds=3):
    """Runs work in a stream of this handle, and looks whether it is that stream in which it runs."""
    require(raw % 16 == 0 and 2 < raw < 1 << 47, "a handle of a stream looks like no pointer")
    stream = torch.cuda.ExternalStream(raw)
    require(stream.cuda_stream == raw, "PyTorch has another handle for the stream")
    x = torch.zeros(COUNT, device="cuda")
    # The kernels are loaded before their time counts.
    torch.cuda._sleep(1)
    x.add_(0)
    torch.cuda.synchronize()
    for number in range(1, rounds + 1):
        with torch.cuda.stream(stream):
            require(torch.cuda.current_stream().cuda_stream == raw, "another stream is the current one")
            torch.cuda._sleep(LONG)
            x.add_(number)
            event = torch.cuda.Event()
            event.record()
        require(not event.query(), "work was done before its stream can have come to it")
        stream.synchronize()
        require(event.query() and stream.query(), "a stream is busy after it was waited for")
        require(bool((x == number * (number + 1) / 2).all()), f"round {number}: the work was not done in the stream")
    other = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        x.fill_(7)
    other.wait_stream(stream)
    with torch.cuda.stream(other):
        y = x + 1
    other.synchronize()
    require(bool((y == 8).all()), "a stream of PyTorch did not wait for the foreign one")


@test
def a_stream_of_the_driver():
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    driver, raw = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    require(driver.cuStreamCreate(ctypes.byref(raw), 1) == 0, "cuStreamCreate failed")
    works_in(raw.value)
    require(driver.cuStreamDestroy_v2(raw) == 0, "cuStreamDestroy failed")


@test
def a_stream_of_the_runtime():
    runtime, raw = torch.cuda.cudart(), ctypes.c_ulonglong(0)
    require(int(runtime.cudaStreamCreate(ctypes.addressof(raw))) == 0, "cudaStreamCreate failed")
    works_in(raw.value)
    require(int(runtime.cudaStreamDestroy(raw.value)) == 0, "cudaStreamDestroy failed")


@test
@without_cupy
def a_stream_of_cupy():
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    works_in(stream.ptr)


@test
@without_cupy
def cupy_works_in_a_stream_of_pytorch():
    import cupy

    stream = torch.cuda.Stream()
    x = torch.arange(COUNT, dtype=torch.float32, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream), cupy.cuda.ExternalStream(stream.cuda_stream):
        torch.cuda._sleep(LONG)
        x += 1
        y = cupy.from_dlpack(x) * 2
        z = torch.from_dlpack(y) + 3
    stream.synchronize()
    close(z, torch.arange(COUNT, dtype=torch.float32) * 2 + 5, 0, "what both did in one stream")


@test
@without_jax
def tensors_to_jax_and_back_on_a_side_stream():
    import jax
    import jax.numpy as jnp

    double = jax.jit(lambda a: 2 * a + 1)
    expected = torch.arange(COUNT, dtype=torch.float32)
    for number in range(4):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.arange(COUNT, dtype=torch.float32, device="cuda")
            torch.cuda._sleep(LONG)
            x += number
            back = torch.from_dlpack(double(jnp.from_dlpack(x)))
            y = back * 3
        stream.synchronize()
        close(y, (2 * (expected + number) + 1) * 3, 1e-6, f"round {number}")


if __name__ == "__main__":
    main()
