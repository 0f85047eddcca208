"""Two ranks of one process whose kernels communicate, in Python: the headers of device/include compiled by
NVRTC, teams by mpi/python/causeway_team.py. Prints `ok` when both have what they were sent."""

import ctypes
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "mpi" / "python"))
import causeway_comm
import causeway_team
from python_gpu import Gpu

TREE = pathlib.Path(__file__).resolve().parents[2]

KERNEL = rb"""
#include <causeway/device.cuh>
using namespace causeway;
extern "C" __global__ void shift(Team team, Window data, Window cells, u64 bytes) {
    u32 next = (team.rank + 1) % team.ranks;
    put_signal<Block>(team, next, data, bytes, data, 0, bytes, cells, 0, 1);
    signal_wait<Block>(team, cells, 0, Compare::equal, 1);
}
"""


def compiled():
    """The kernel as PTX."""
    nvrtc = ctypes.CDLL("libnvrtc.so.13")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = [b"--std=c++17", b"--gpu-architecture=compute_75", f"-I{TREE}/device/include".encode()]
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), KERNEL, b"shift.cu", 0, None, None) == 0
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert status == 0, log.value.decode()
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetPTX(program, ptx) == 0
    return ptx


def main():
    gpu, module, function = Gpu(), ctypes.c_void_p(), ctypes.c_void_p()
    gpu.call("cuModuleLoadData", ctypes.byref(module), compiled())
    gpu.call("cuModuleGetFunction", ctypes.byref(function), module, b"shift")
    nbytes = 1000
    with causeway_team.Team.create(2, limit_milliseconds=60_000) as team:
        # Memory of the program's own, as a tensor has it.
        data = team.register([gpu.allocate(2 * nbytes) for _ in range(2)], 2 * nbytes)
        cells = team.window(64)
        streams = [ctypes.c_void_p() for _ in range(2)]
        for rank, stream in enumerate(streams):
            content = bytes((at * 7 + rank) % 256 for at in range(nbytes))
            gpu.write(data.address(rank), content)
            gpu.call("cuStreamCreate", ctypes.byref(stream), 1)
        for rank, stream in enumerate(streams):
            handles = [team.handle(rank), data.handle(rank), cells.handle(rank)]
            gpu.launch(function, stream, *handles, nbytes.to_bytes(8, "little"))
        for stream in streams:
            gpu.call("cuStreamSynchronize", stream)
        team.check()
        for rank in range(2):
            content = gpu.read(data.address(rank) + nbytes, nbytes)
            assert content == bytes((at * 7 + 1 - rank) % 256 for at in range(nbytes)), f"rank {rank}"
        try:
            team.window(0)
        except causeway_comm.CommError as error:
            assert "a window of 0 bytes" in str(error)
        else:
            raise AssertionError("a window of nothing was made")
    print("ok")


main()
