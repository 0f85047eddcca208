"""Numba's form of the headers in `device/include`: the operations of kernels that communicate, to be called from
kernels that `numba.cuda.jit` compiles with `lto=True`.

    ops = causeway_numba.operations()
    put_signal, signal_wait = ops.put_signal["block"], ops.signal_wait["block"]

    @cuda.jit(lto=True)
    def shift(team, peer, data, cells, nbytes):
        put_signal(team, peer, data, nbytes, data, 0, nbytes, cells, 0, 1, causeway_numba.SET)
        signal_wait(team, cells, 0, causeway_numba.EQUAL, 1)

    handles = causeway_numba.Handles()
    shift[1, 128, stream](handles.put(team.handle(rank)), numpy.uint32(peer), handles.put(data.handle(rank)), ...)

Verbs on the GPU have the names of `causeway/verbs.cuh`, by the same scopes, of which the first thread posts or
polls:

    post_send, wait_cq = ops.post_send["thread"], ops.wait_cq["thread"]

    @cuda.jit(lto=True)
    def write(qp, cq, address, nbytes, lkey, remote, rkey, completion):
        status = post_send(qp, RDMA_WRITE, SEND_SIGNALED, 1, address, nbytes, lkey, remote, rkey, 0, 0, 0)
        if status == OK:
            status = wait_cq(cq, completion)    # the address of an array of COMPLETION

A team or a window is the address of its handle in memory of the GPU, which `Handles` puts there. Each operation
returns 0 or a number of `causeway::Status`; all threads of its scope call it with the same arguments. Ranks,
kinds and statuses are 32 bits wide, all else 64. What is linked, NVIDIA's intermediate code, is in the wheel and in the
package causeway-dev; `make programs` compiles it from `device/numba`: `operations("build/cuda/causeway_device.ltoir")`. Kernels that wait for each other are specialized first, so that none is compiled while
another one waits."""

from types import SimpleNamespace

import causeway_comm
import numpy
from numba import cuda, types

# Kinds of a signal, and what a signal is waited for to be.
SET, ADD = numpy.uint32(0), numpy.uint32(1)
EQUAL, NOT_EQUAL, AT_LEAST = (numpy.uint32(value) for value in range(3))

SCOPES = ("thread", "warp", "block")

# Operations, flags and statuses of verbs, and a completion as `poll_cq` writes it.
RDMA_WRITE, RDMA_WRITE_WITH_IMM, SEND, SEND_WITH_IMM = (numpy.uint32(value) for value in range(0x08, 0x0C))
RDMA_READ, COMPARE_AND_SWAP, FETCH_AND_ADD = (numpy.uint32(value) for value in range(0x10, 0x13))
SEND_FENCE, SEND_SIGNALED, SEND_SOLICITED, SEND_INLINE = (numpy.uint32(value) for value in (1, 2, 4, 8))
OK, AGAIN, INVALID, FAILED, ABORTED, TIMED_OUT = (numpy.uint32(value) for value in range(6))
COMPLETION = numpy.dtype(
    [("wr_id", numpy.uint64)]
    + [
        (name, numpy.uint32)
        for name in (
            *("syndrome", "vendor_syndrome", "operation", "queue_pair"),
            *("bytes", "immediate", "has_immediate", "_"),
        )
    ]
)

SHORT, LONG = types.uint32, types.uint64

# The parameters behind the team, of what there is for each scope.
PARAMETERS = {
    "put": (SHORT, LONG, LONG, LONG, LONG, LONG),
    "get": (SHORT, LONG, LONG, LONG, LONG, LONG),
    "put_signal": (SHORT, LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG, SHORT),
    "signal": (SHORT, LONG, LONG, LONG, SHORT),
    "signal_wait": (LONG, LONG, SHORT, LONG),
    "barrier": (SHORT,),
    "quiet": (),
    "fence": (),
}

# All parameters of verbs. Queue pairs and completion queues are the addresses that `causeway_verbs` has of them.
REQUEST = (LONG, SHORT, SHORT, LONG, LONG, SHORT, SHORT, LONG, SHORT, SHORT, LONG, LONG)
VERBS = {
    "post_send": REQUEST,
    "try_post_send": REQUEST,
    "post_recv": (LONG, LONG, LONG, SHORT, SHORT),
    "poll_cq": (LONG, SHORT, LONG),
    "wait_cq": (LONG, LONG),
}


def operations(code=None):
    """The operations, by name and scope: `put["block"]`; `atomic_add` is each thread's own. `code` is the file
    causeway_device.ltoir, which is linked to each kernel that calls one: that of the installation, or of `make
    programs`."""
    code = code or causeway_comm.installed("device/causeway_device.ltoir")

    def declare(name, parameters):
        return cuda.declare_device(f"causeway_{name}", SHORT(*parameters), link=str(code), abi="c")

    of_teams = {name: (LONG, *parameters) for name, parameters in PARAMETERS.items()}
    found = {
        name: {scope: declare(f"{name}_{scope}", parameters) for scope in SCOPES}
        for name, parameters in (of_teams | VERBS).items()
    }
    return SimpleNamespace(**found, atomic_add=declare("atomic_add", (LONG, SHORT, LONG, LONG, LONG, LONG)))


class Handles:
    """Handles in memory of the GPU, for as long as kernels use them."""

    def __init__(self):
        self._arrays = []

    def put(self, handle):
        """The address of a copy of a handle, such as `team.handle(rank)`."""
        array = cuda.to_device(numpy.frombuffer(handle, dtype=numpy.uint64).copy())
        self._arrays.append(array)
        return numpy.uint64(array.device_ctypes_pointer.value)
