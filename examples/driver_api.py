"""Squares numbers on a GPU with nothing but Python and the CUDA driver API: no toolkit, no package."""

import ctypes
import sys
from array import array

# A kernel that squares each element, as nvcc writes it.
PTX = b"""
.version 7.0
.target sm_52
.address_size 64
.visible .entry square(.param .u64 values)
{
    .reg .b32 %r<2>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [values];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    mul.f32 %f2, %f1, %f1;
    st.global.f32 [%rd4], %f2;
    ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    """Calls the driver; ends the program with the error's name if it fails."""
    error = getattr(cuda, name)(*arguments)
    if error != 0:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(error, ctypes.byref(text))
        sys.exit(f"{name}: {(text.value or b'unknown error').decode()}")


def main() -> None:
    """Everything from the driver's start to the result."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)

    module, square = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(square), module, b"square")

    values = array("f", range(256))
    size = ctypes.c_size_t(len(values) * values.itemsize)
    host = ctypes.c_void_p(values.buffer_info()[0])
    memory = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(memory), size)
    call("cuMemcpyHtoD_v2", memory, host, size)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    call("cuLaunchKernel", square, 1, 1, 1, len(values), 1, 1, 0, None, parameters, None)
    call("cuMemcpyDtoH_v2", host, memory, size)
    call("cuMemFree_v2", memory)

    assert list(values) == [number**2 for number in range(256)], values
    print(f"{len(values)} squares are right")


if __name__ == "__main__":
    main()
