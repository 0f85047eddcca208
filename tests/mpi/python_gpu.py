"""The driver that the environment gives, as the tests in Python use it."""

import ctypes


class Gpu:
    """A device, whose primary context is current afterwards: the first one, or that of a rank, which have them in
    turn."""

    def __init__(self, rank=0):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, devices = ctypes.c_void_p(), ctypes.c_int()
        self.call("cuInit", 0)
        self.call("cuDeviceGetCount", ctypes.byref(devices))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), rank % devices.value)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        assert status == 0, f"{name} ended with {status}"

    def allocate(self, nbytes):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address.value

    def write(self, address, content):
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), content, ctypes.c_size_t(len(content)))

    def take(self, content):
        """Memory of its own with this content."""
        address = self.allocate(len(content))
        self.write(address, content)
        return address

    def read(self, address, nbytes):
        content = ctypes.create_string_buffer(nbytes)
        self.call("cuMemcpyDtoH_v2", content, ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
        return content.raw

    def launch(self, function, stream, *arguments):
        """Launches a block of 64 threads; each argument is passed by value, as bytes."""
        buffers = [ctypes.create_string_buffer(argument, len(argument)) for argument in arguments]
        pointers = (ctypes.c_void_p * len(buffers))(*[ctypes.addressof(buffer) for buffer in buffers])
        self.call("cuLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, stream, pointers, None)
