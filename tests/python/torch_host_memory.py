"""Host memory that the GPU sees: pinned, registered, mapped and managed, from PyTorch's kernels through the runtime's calls.

What one side writes before a call that synchronises, the other side sees after it."""

import ctypes
import os

from checks import Skipped, close, main, need, need_torch, require, test

torch = need_torch()
np = need("numpy")

MIB = 1 << 20
MAPPED, MANAGED_GLOBAL = 0x02, 0x01
runtime = ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '13').split('.')[0]}")


def call(name, *arguments):
    """A call of the CUDA runtime that must succeed."""
    error = getattr(runtime, name)(*arguments)
    if error != 0:
        runtime.cudaGetErrorName.restype = ctypes.c_char_p
        raise RuntimeError(f"{name} returned {runtime.cudaGetErrorName(error).decode()}")


class DeviceView:
    """float32 memory at an address that the GPU can use."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3}


def views(host_address, device_address, count):
    """The same memory as the host and as the device see it."""
    host = np.ctypeslib.as_array(ctypes.cast(host_address, ctypes.POINTER(ctypes.c_float)), (count,))
    return host, torch.as_tensor(DeviceView(device_address, count), device="cuda")


def exercise(host, device):
    """Host and device write in turns."""
    for number in range(5):
        host[:] = np.arange(len(host)) % 1000 + number
        device.mul_(2)
        torch.cuda.synchronize()
        require(bool((host == (np.arange(len(host)) % 1000 + number) * 2).all()), f"round {number}: the host does not see what a kernel wrote")
        close(device.sum().double(), host.astype(np.float64).sum(), 1e-4, f"round {number}: a kernel's sum")


@test
def pinned_memory():
    x = torch.randn(MIB).pin_memory()
    require(x.is_pinned(), "pinned memory is not pinned")
    close(x.cuda(), x, 0, "a copy to the device")
    back = torch.empty(MIB).pin_memory()
    back.copy_(x.cuda() * 2)
    close(back, x * 2, 0, "a copy to the host")


@test
def registered_memory():
    x = torch.randn(MIB)
    runtime_of_torch = torch.cuda.cudart()
    error = runtime_of_torch.cudaHostRegister(x.data_ptr(), x.numel() * 4, 0)
    require(int(error) == 0, f"cudaHostRegister returned {error}")
    try:
        require(x.is_pinned(), "registered memory is not pinned")
        close(x.to("cuda", non_blocking=True), x, 0)
    finally:
        runtime_of_torch.cudaHostUnregister(x.data_ptr())


@test
def registered_memory_that_kernels_use():
    x = np.zeros(MIB // 4, dtype=np.float32)
    call("cudaHostRegister", ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(x.nbytes), MAPPED)
    try:
        device = ctypes.c_void_p()
        call("cudaHostGetDevicePointer", ctypes.byref(device), ctypes.c_void_p(x.ctypes.data), 0)
        exercise(*views(x.ctypes.data, device.value, len(x)))
    finally:
        call("cudaHostUnregister", ctypes.c_void_p(x.ctypes.data))


@test
def mapped_memory():
    host, device = ctypes.c_void_p(), ctypes.c_void_p()
    call("cudaHostAlloc", ctypes.byref(host), ctypes.c_size_t(MIB), MAPPED)
    try:
        call("cudaHostGetDevicePointer", ctypes.byref(device), host, 0)
        exercise(*views(host.value, device.value, MIB // 4))
    finally:
        call("cudaFreeHost", host)


@test
def kernels_use_the_address_of_pinned_memory():
    x = torch.empty(MIB // 4).pin_memory()
    exercise(*views(x.data_ptr(), x.data_ptr(), MIB // 4))


@test
def managed_memory():
    address = ctypes.c_void_p()
    call("cudaMallocManaged", ctypes.byref(address), ctypes.c_size_t(MIB), MANAGED_GLOBAL)
    try:
        exercise(*views(address.value, address.value, MIB // 4))
    finally:
        call("cudaFree", address)


@test
def a_file_read_into_managed_memory():
    address = ctypes.c_void_p()
    call("cudaMallocManaged", ctypes.byref(address), ctypes.c_size_t(MIB), MANAGED_GLOBAL)
    reader, writer = os.pipe()
    try:
        host, device = views(address.value, address.value, MIB // 4)
        device.zero_()
        torch.cuda.synchronize()
        content = np.arange(4096, dtype=np.float32)
        os.write(writer, content.tobytes())
        got = os.readv(reader, [memoryview(host).cast("B")[: content.nbytes]])
        require(got == content.nbytes, f"read gave {got} bytes")
        close(device[:4096], content, 0, "what the device sees of a file's bytes")
        require(not device[4096:].any().item(), "bytes behind the file's changed")
    finally:
        os.close(reader)
        os.close(writer)
        call("cudaFree", address)


@test
def managed_memory_beside_a_handler_of_faults():
    import faulthandler

    if not faulthandler.is_enabled():
        faulthandler.enable()
    managed_memory()
    if not faulthandler.is_enabled():
        raise Skipped("the fault handler cannot be enabled here")


if __name__ == "__main__":
    main()
