"""Messages between GPUs for Python programs without MPI: libcauseway_comm.so, by ctypes.

A process takes part in one job at a time, as one of its ranks. The sender offers memory on a GPU and gets a descriptor
of a few bytes, which it sends to the receiver in any way that the program has (a pipe, a socket, a queue). The receiver
fetches the message of the descriptor into memory on a GPU or of the host. Addresses are numbers: `tensor.data_ptr()` of
PyTorch, `array.data.ptr` of CuPy.

    with causeway_comm.Comm(nonce, rank, ranks) as comm:
        offer = comm.offer(peer, array.data.ptr, array.nbytes)     # the sender
        pipe.send(offer.descriptor)
        offer.wait()

        comm.fetch(pipe.recv(), array.data.ptr, array.nbytes)      # the receiver

The offered memory must be ready before, and must not change until the offer is done.

Ranks that call collectively are a group. They exchange control messages in a way that the program has: `exchange` gets
as many bytes for each rank as the others, and returns those that they have for this one.

        group = comm.group(members, exchange)
        group.allreduce(source.data.ptr, target.data.ptr, count, FLOAT32, SUM)

In a stream that is being captured, a call becomes a part of the graph, if all ranks capture it:

        with torch.cuda.graph(graph, stream=stream):
            group.allreduce(x.data_ptr(), x.data_ptr(), x.numel(), FLOAT32, SUM, stream=stream.cuda_stream)
        graph.replay()"""

import ctypes
import pathlib
import secrets
import time
import warnings

# Bytes of a descriptor, as in causeway_comm.h.
DESCRIPTOR_BYTES = 79
# The name of earlier versions.
WORD_BYTES = DESCRIPTOR_BYTES

# Elements and operations of causeway_comm.h.
INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64 = range(1, 9)
FLOAT16, BFLOAT16, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128 = range(9, 15)
MAX, MIN, SUM, PROD, LAND, BAND, LOR, BOR, LXOR, BXOR = range(1, 11)


class CommError(RuntimeError):
    """An error of the library."""


class Offer:
    """Memory that a peer may fetch once."""

    def __init__(self, comm, number, descriptor):
        self._comm, self._number = comm, number
        self.descriptor = descriptor  # for the receiver

    @property
    def word(self):
        """The descriptor, by its name of earlier versions."""
        warnings.warn("Offer.word is Offer.descriptor", DeprecationWarning, stacklevel=2)
        return self.descriptor

    def done(self):
        """Whether the peer has it, and the memory may be used again. Raises CommError if the offer has failed."""
        if self._number is not None:
            state = self._comm.library.causeway_comm_offer_state(self._number)
            if state == 0:
                return False
            self._number = None
            if state < 0:
                raise self._comm.error()
        return True

    def wait(self, limit=None):
        """Waits until the peer has it. Raises TimeoutError after `limit` seconds, if that is given."""
        start, pause = time.monotonic(), 1e-6
        while not self.done():
            if limit is not None and time.monotonic() - start > limit:
                raise TimeoutError(f"the peer has not fetched the message within {limit} s")
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)


_EXCHANGE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)


class _Group(ctypes.Structure):
    """`struct causeway_comm_group`."""

    _fields_ = [
        ("rank", ctypes.c_uint32),
        ("ranks", ctypes.c_uint32),
        ("members", ctypes.POINTER(ctypes.c_uint32)),
        ("exchange", _EXCHANGE),
        ("context", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("fetched_from", ctypes.c_uint64),
    ]


class _Range(ctypes.Structure):
    """`struct causeway_comm_range`."""

    _fields_ = [("address", ctypes.c_void_p), ("nbytes", ctypes.c_uint64)]


class Group:
    """Ranks that call collectively, and in the same order. All calls are blocking; addresses are those of memory on
    GPUs. If a rank's memory is not on one, or a rank cannot reach another one, all of them raise CommError.

    A call in a stream that is being captured becomes a part of the graph, at all ranks or at none. Then all ranks
    launch such graphs equally often and in the same order, one at a time, and keep their memory until then."""

    def __init__(self, comm, members, exchange):
        """`members` are ranks of the job, in the group's order. `exchange` takes a list of as many `bytes` as
        there are members, one for each, and gives the list of those that the members have for this rank."""
        self._comm, self._exchange = comm, exchange
        self.rank, self.ranks = list(members).index(comm.rank), len(members)
        self._error = None
        self._callback = _EXCHANGE(self._call_exchange)
        self._members = (ctypes.c_uint32 * self.ranks)(*members)

    def _call_exchange(self, _context, out, into, nbytes):
        try:
            blocks = ctypes.string_at(out, nbytes * self.ranks)
            received = self._exchange([blocks[at * nbytes : (at + 1) * nbytes] for at in range(self.ranks)])
            if [len(block) for block in received] != [nbytes] * self.ranks:
                raise ValueError(f"the exchange must return {self.ranks} times {nbytes} bytes")
            ctypes.memmove(into, b"".join(received), nbytes * self.ranks)
        except Exception as error:  # It must not pass through the library: it is raised after the call.
            self._error = error
            return 1
        return 0

    def _make(self, name, stream, *arguments):
        group = _Group(self.rank, self.ranks, self._members, self._callback, None, stream)
        done = getattr(self._comm.library, f"causeway_comm_{name}")(ctypes.byref(group), *arguments)
        error, self._error = self._error, None
        if error is not None:
            raise error
        if done < 0:
            raise self._comm.error()
        if done > 0:
            raise CommError("not all ranks have memory on a GPU, or some cannot reach another rank")

    def allreduce(self, source, target, count, element, operation, stream=None):
        """Every rank gets the reduced elements. Both addresses may be the same."""
        self._make("allreduce", stream, source, target, count, element, operation)

    def reduce(self, source, target, count, element, operation, root, stream=None):
        """The root gets the reduced elements; the others pass no target."""
        self._make("reduce", stream, source, target, count, element, operation, root)

    def reduce_scatter(self, source, target, counts, element, operation, stream=None):
        """Each rank gets as many of the reduced elements as its count."""
        if len(counts) != self.ranks:
            raise ValueError(f"there must be {self.ranks} counts, and not {len(counts)}")
        array = (ctypes.c_uint64 * self.ranks)(*counts)
        self._make("reduce_scatter", stream, source, target, array, element, operation)

    def scan(self, source, target, count, element, operation, exclusive=False, stream=None):
        """A prefix reduction: inclusive, or exclusive."""
        self._make("scan", stream, source, target, count, element, operation, int(exclusive))

    def exchange(self, gives, takes, nbytes=0, stream=None):
        """Sends a range to each rank and receives one from each: lists of pairs of address and bytes, in the group's
        order, with 0 bytes for an empty range. `nbytes` is a number that must be the same at all ranks."""
        for ranges in (gives, takes):
            if len(ranges) != self.ranks:
                raise ValueError(f"there must be {self.ranks} ranges, and not {len(ranges)}")
        arrays = [(_Range * self.ranks)(*ranges) for ranges in (gives, takes)]
        self._make("exchange", stream, *arrays, nbytes)

    def broadcast(self, address, nbytes, root, stream=None):
        """Every rank gets the bytes of the root."""
        self._make("broadcast", stream, address, nbytes, root)

    def allgather(self, source, target, nbytes, stream=None):
        """Every rank gets the blocks of all ranks, of so many bytes each."""
        self._make("allgather", stream, source, target, nbytes)

    def alltoall(self, source, target, nbytes, stream=None):
        """Each rank sends each one a block of so many bytes."""
        self._make("alltoall", stream, source, target, nbytes)

    def check_graphs(self):
        """Raises CommError if a call in a graph has not come to its end: a rank has ended, or has not launched its
        own. To be called when a stream has done its work."""
        self._make("check_graphs", None)

    def release_graphs(self):
        """Releases what the library holds for graphs: none with calls of this group is launched any more at any rank."""
        self._make("release_graphs", None)


class Comm:
    """This process's part in a job."""

    def __init__(self, nonce, rank, ranks, library="libcauseway_comm.so"):
        """Takes part as one of `ranks`. All of them have the same nonce (`new_nonce`), which is a secret. The
        library is searched as every other one is, and then where it was installed, unless `library` is a path."""
        self.library = load(library)
        self.rank = rank
        if self.library.causeway_comm_join(nonce.encode(), rank, ranks) != 0:
            raise self.error()

    def error(self):
        """The library's last error, as an exception."""
        return CommError(self.library.causeway_comm_error().decode(errors="replace"))

    def reaches(self, peer, nbytes=1 << 20):
        """Whether a peer responds, and a message of so many bytes should be offered to it."""
        return self.library.causeway_comm_is_offered(peer, None, nbytes) == 1

    def on_gpu(self, address):
        """Whether there is memory on a GPU at an address."""
        return self.library.causeway_comm_on_gpu(address) == 1

    def offer(self, peer, address, nbytes, limit=10):
        """Offers memory on a GPU to a peer, which must have joined within `limit` seconds. Raises CommError if
        it has not, or no channel supports such memory."""
        until = time.monotonic() + limit
        while not self.reaches(peer, max(nbytes, 1 << 20)):
            if time.monotonic() > until:
                raise CommError(f"rank {peer} does not respond: it has not joined, or is on another host")
            time.sleep(0.01)
        descriptor = ctypes.create_string_buffer(DESCRIPTOR_BYTES)
        number = self.library.causeway_comm_offer(peer, address, nbytes, descriptor)
        if number == 0:
            raise CommError(
                "no channel supports this memory: it is not on a GPU, or CAUSEWAY_COMM_CHANNELS disables it"
            )
        return Offer(self, number, descriptor.raw)

    def fetch(self, descriptor, address, capacity):
        """Fetches the message of a descriptor into memory with so many bytes, and waits for it. Returns the length of
        the message; if that is more than the capacity, nothing is fetched, and the offer is done."""
        if len(descriptor) != DESCRIPTOR_BYTES:
            raise ValueError(f"a descriptor has {DESCRIPTOR_BYTES} bytes, and not {len(descriptor)}")
        nbytes = ctypes.c_uint64()
        kind = self.library.causeway_comm_classify(descriptor, len(descriptor), capacity, ctypes.byref(nbytes))
        if kind != 2:
            raise CommError("these bytes are not a descriptor for this rank in this job")
        # Earlier copies of the program to that memory may be pending.
        self.library.causeway_comm_sync_memory(address)
        if self.library.causeway_comm_fetch(descriptor, address, self.on_gpu(address), capacity, 1) != 0:
            raise self.error()
        return nbytes.value

    def group(self, members, exchange):
        """A group of ranks, with this one (`Group`)."""
        return Group(self, members, exchange)

    def messages(self, channel):
        """Messages received so far by a channel, which is named as in CAUSEWAY_COMM_CHANNELS."""
        return self.library.causeway_comm_messages(channel.encode())

    def close(self):
        """Leaves the job, when the peers have fetched what they were offered."""
        if self.library is not None:
            self.library.causeway_comm_leave()
            self.library = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def new_nonce():
    """A job's secret."""
    return secrets.token_hex(16)


def installed(name):
    """Where a file of `lib/causeway` was installed: by the wheel, or by the packages or the archive of which this
    module is a part. Else its name alone."""
    here = pathlib.Path(__file__).resolve().parent
    folders = [here / "causeway_gpu/lib/causeway", here.parent.parent.parent / "lib/causeway"]
    folders.append(pathlib.Path("/usr/lib/causeway"))
    found = [folder / name for folder in folders if (folder / name).is_file()]
    return str(found[0]) if found else pathlib.Path(name).name


def load(path):
    """The library, with the types of its functions."""
    try:
        library = ctypes.CDLL(path)
    except OSError:
        if "/" in str(path) or "/" not in (path := installed(path)):
            raise
        library = ctypes.CDLL(path)
    number, rank, address = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
    group, code = ctypes.POINTER(_Group), ctypes.c_int
    types = {
        "error": (ctypes.c_char_p,),
        "join": (ctypes.c_int, ctypes.c_char_p, rank, rank),
        "leave": (None,),
        "on_gpu": (ctypes.c_int, address),
        "sync_memory": (None, address),
        "is_offered": (ctypes.c_int, rank, ctypes.c_void_p, number),
        "offer": (number, rank, address, number, ctypes.c_char_p),
        "offer_state": (ctypes.c_int, number),
        "classify": (ctypes.c_int, ctypes.c_char_p, number, number, ctypes.POINTER(number)),
        "fetch": (ctypes.c_int, ctypes.c_char_p, address, ctypes.c_int, number, ctypes.c_int),
        "messages": (number, ctypes.c_char_p),
        "allreduce": (code, group, address, address, number, code, code),
        "reduce": (code, group, address, address, number, code, code, rank),
        "reduce_scatter": (code, group, address, address, ctypes.POINTER(number), code, code),
        "scan": (code, group, address, address, number, code, code, code),
        "exchange": (code, group, ctypes.POINTER(_Range), ctypes.POINTER(_Range), number),
        "broadcast": (code, group, address, number, rank),
        "allgather": (code, group, address, address, number),
        "alltoall": (code, group, address, address, number),
        "check_graphs": (code, group),
        "release_graphs": (code, group),
    }
    for name, (result, *arguments) in types.items():
        function = getattr(library, f"causeway_comm_{name}")
        function.restype, function.argtypes = result, arguments
    return library
