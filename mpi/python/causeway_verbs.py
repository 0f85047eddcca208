"""Queue pairs whose work requests kernels write themselves, for Python: libcauseway_comm.so, by ctypes. The
kernels' functions are in the headers of `device/include`, and for Numba and Triton in `causeway_numba` and
`causeway_triton`.

    nic = Nic.open()                                # the fastest RDMA device whose port is active
    queue = nic.completion_queue(1024)
    pair = nic.queue_pair(queue, queue)
    peers = exchange(pair.address())                # 32 bytes, which the program brings to the peer
    pair.connect(peers)
    memory = nic.register(array.data.ptr, array.nbytes)
    launch(kernel, pair.handle, queue.handle, array.data.ptr, memory.lkey, ...)

The GPU has to be in use before. Handles and keys are numbers. Queues are made, reset and closed while no kernel
uses them; close memory, queue pairs, completion queues and the device in this order (or leave their `with`
blocks)."""

import ctypes

import causeway_comm

DOORBELL_AUTO, DOORBELL_DIRECT, DOORBELL_ASSISTED = range(3)
REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4
ADDRESS_BYTES = 32
# `CAUSEWAY_IN_HOST`: where rings are.
_IN_HOST = 1


class NicOptions(ctypes.Structure):
    """`causeway_nic_options`; 0 stands for what is usual."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("limit_milliseconds", "doorbell")]


class QueuePairOptions(ctypes.Structure):
    """`causeway_qp_options`; 0 stands for what is usual."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("sends", "receives", "inline_bytes", "memory")]


class _Made:
    """What the library has made, until it is closed."""

    _destroy = ""

    def __init__(self, library, pointer):
        self._library, self._pointer = library, pointer
        if not pointer:
            raise _error(library)

    def _must(self, status):
        if status < 0:
            raise _error(self._library)

    def close(self):
        """Ends it."""
        if self._pointer:
            getattr(self._library, self._destroy)(self._pointer)
            self._pointer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Memory(_Made):
    """Memory that the device reaches, of the GPU or of the host."""

    _destroy = "causeway_mr_deregister"

    def __init__(self, library, pointer, lkey, rkey):
        super().__init__(library, pointer)
        self.lkey, self.rkey = lkey, rkey


class CompletionQueue(_Made):
    """A completion queue that kernels poll, by its `handle`."""

    _destroy = "causeway_cq_destroy"

    @property
    def handle(self):
        """What kernels are given."""
        return self._library.causeway_cq_handle(self._pointer)


class QueuePair(_Made):
    """A queue pair that kernels post to, by its `handle`."""

    _destroy = "causeway_qp_destroy"

    @property
    def handle(self):
        """What kernels are given."""
        return self._library.causeway_qp_handle(self._pointer)

    @property
    def number(self):
        """Its number, as completions name it."""
        return self._library.causeway_qp_number(self._pointer)

    @property
    def doorbell(self):
        """`DOORBELL_DIRECT` or `DOORBELL_ASSISTED`."""
        return self._library.causeway_qp_doorbell(self._pointer)

    def address(self):
        """The bytes that the peer connects to."""
        address = ctypes.create_string_buffer(ADDRESS_BYTES)
        self._library.causeway_qp_address(self._pointer, address)
        return address.raw

    def connect(self, address):
        """Joins it with the queue pair of the peer's address."""
        if len(address) != ADDRESS_BYTES:
            raise ValueError(f"the address of a queue pair has {ADDRESS_BYTES} bytes, and not {len(address)}")
        self._must(self._library.causeway_qp_connect(self._pointer, bytes(address)))

    def flush(self):
        """Has all of its requests come back as flushed."""
        self._must(self._library.causeway_qp_flush(self._pointer))

    def reset(self):
        """Empties it, also after an error, to be connected again. Its completions have been polled."""
        self._must(self._library.causeway_qp_reset(self._pointer))


class Nic(_Made):
    """An RDMA device, open for kernels of the current context's GPU."""

    _destroy = "causeway_nic_close"

    @classmethod
    def open(cls, name=None, library="libcauseway_comm.so", **options):
        """By its name (`mlx5_0`), or the fastest one whose port is active. Options: `limit_milliseconds`,
        `doorbell`."""
        loaded = load(library)
        return cls(loaded, loaded.causeway_nic_open(name and name.encode(), NicOptions(**options)))

    def register(self, address, nbytes, access=REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC):
        """Lets the device, and by `access` its peers, use memory."""
        lkey, rkey = ctypes.c_uint32(), ctypes.c_uint32()
        call = self._library.causeway_mr_register
        made = call(self._pointer, address, nbytes, access, ctypes.byref(lkey), ctypes.byref(rkey))
        return Memory(self._library, made, lkey.value, rkey.value)

    def completion_queue(self, entries):
        """A completion queue with space for so many entries at least."""
        made = self._library.causeway_cq_create(self._pointer, entries, _IN_HOST)
        return CompletionQueue(self._library, made)

    def queue_pair(self, sends, receives, **options):
        """A queue pair with these completion queues. Options: `sends`, `receives`, `inline_bytes`."""
        call = self._library.causeway_qp_create
        made = call(self._pointer, sends._pointer, receives._pointer, QueuePairOptions(**options))
        return QueuePair(self._library, made)

    def abort(self):
        """Ends all waits of kernels for its queues."""
        self._library.causeway_nic_abort(self._pointer)

    def resume(self):
        """Lets kernels wait again."""
        self._library.causeway_nic_resume(self._pointer)

    def syndrome(self, number):
        """What the syndrome of a completion says."""
        return self._library.causeway_syndrome_text(number).decode()


def _error(library):
    return causeway_comm.CommError(library.causeway_comm_error().decode(errors="replace"))


def load(path):
    """The library, with the types of its functions."""
    library = causeway_comm.load(path)
    made, text, short, long = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint64
    types = {
        "nic_open": (made, text, ctypes.POINTER(NicOptions)),
        "nic_close": (None, made),
        "nic_abort": (None, made),
        "nic_resume": (None, made),
        "mr_register": (made, made, made, long, short, ctypes.POINTER(short), ctypes.POINTER(short)),
        "mr_deregister": (None, made),
        "cq_create": (made, made, short, short),
        "cq_handle": (long, made),
        "cq_destroy": (None, made),
        "qp_create": (made, made, made, made, ctypes.POINTER(QueuePairOptions)),
        "qp_destroy": (None, made),
        "qp_handle": (long, made),
        "qp_number": (short, made),
        "qp_doorbell": (short, made),
        "qp_address": (None, made, text),
        "qp_connect": (ctypes.c_int, made, text),
        "qp_flush": (ctypes.c_int, made),
        "qp_reset": (ctypes.c_int, made),
        "syndrome_text": (text, short),
    }
    for name, (result, *arguments) in types.items():
        function = getattr(library, f"causeway_{name}")
        function.restype, function.argtypes = result, arguments
    return library
