"""Triton's form of the headers in `device/include`: the operations of kernels that communicate, to be called from
kernels of `triton.jit`.

    ops = causeway_triton.operations()
    put_signal, signal_wait = ops.put_signal, ops.signal_wait

    @triton.jit
    def shift(arguments):
        team, peer, data, cells, nbytes = ...
        put_signal(team, peer, data, nbytes, data, 0, nbytes, cells, 0, 1, 0)
        signal_wait(team, cells, 0, 0, 1)

    shift[(1,)](..., extern_libs=ops.extern_libs)

All threads of a program call an operation together, as a block, with the same arguments: numbers, no blocks of
them. A team or a window is the address of its handle in memory of the GPU (`team.handle(rank)`, copied there).
Kinds of a signal: 0 sets, 1 adds; what it is waited for to be: 0 equal, 1 not equal, 2 at least. Each operation
returns 0 or a number of `causeway::Status`. Of `post_send`, `try_post_send`, `post_recv`, `poll_cq` and
`wait_cq`, verbs on the GPU, a program's first thread posts or polls; queues are the addresses that
`causeway_verbs` has of them, and statuses numbers of `causeway::verbs::Status`; `poll_cq` returns how many
completions of 40 bytes it has written. What is linked, LLVM's bitcode, is in the wheel and in the
package causeway-dev; `make bitcode` compiles it from `device/numba` and `device/bitcode`. Kernels that wait for each other are compiled first, so that none is compiled
or loaded while another one waits: let no argument be one that Triton specializes on."""

from types import SimpleNamespace

import causeway_comm
from triton.language import core

SHORT, LONG = core.int32, core.int64

# All parameters, of the operations of a block.
PARAMETERS = {
    "put": (LONG, SHORT, LONG, LONG, LONG, LONG, LONG),
    "get": (LONG, SHORT, LONG, LONG, LONG, LONG, LONG),
    "put_signal": (LONG, SHORT, LONG, LONG, LONG, LONG, LONG, LONG, LONG, LONG, SHORT),
    "signal": (LONG, SHORT, LONG, LONG, LONG, SHORT),
    "signal_wait": (LONG, LONG, LONG, SHORT, LONG),
    "barrier": (LONG, SHORT),
    "quiet": (LONG,),
    "fence": (LONG,),
    "post_send": (LONG, SHORT, SHORT, LONG, LONG, SHORT, SHORT, LONG, SHORT, SHORT, LONG, LONG),
    "try_post_send": (LONG, SHORT, SHORT, LONG, LONG, SHORT, SHORT, LONG, SHORT, SHORT, LONG, LONG),
    "post_recv": (LONG, LONG, LONG, SHORT, SHORT),
    "poll_cq": (LONG, SHORT, LONG),
    "wait_cq": (LONG, LONG),
}

# What Triton calls the library.
NAME = "causeway"


def operations(code=None):
    """The operations by name, and `extern_libs` for the launch. `code` is the file causeway_device.bc, that of
    the installation or of `make bitcode`."""
    code = code or causeway_comm.installed("device/causeway_device.bc")

    def declare(name, types):
        # A call changes memory and waits for others: it is never moved, left out or made one with another.
        def operation(*words, _semantic=None):
            numbers = [
                _semantic.cast(_semantic.to_tensor(word), kind)
                for word, kind in zip(words, types, strict=True)
            ]
            symbol = {tuple(types): (f"causeway_{name}_block", SHORT)}
            return core.extern_elementwise(
                NAME, str(code), numbers, symbol, is_pure=False, _semantic=_semantic
            )

        return core.extern(operation)

    found = {name: declare(name, types) for name, types in PARAMETERS.items()}
    return SimpleNamespace(**found, extern_libs={NAME: str(code)})
