"""Messages between GPUs for Python programs without MPI: libcauseway_comm.so, by ctypes.

A process takes part in one job at a time, as one of its ranks. Who sends offers memory on a GPU and gets a few
bytes, the word of the offer, which it hands to the receiver in whatever way the program has (a pipe, a socket, a
queue). The receiver fetches what the word tells of, into memory on a GPU or of the host. Addresses are numbers:
`tensor.data_ptr()` of PyTorch, `array.data.ptr` of CuPy.

    with causeway_comm.Comm(nonce, rank, ranks) as comm:
        offer = comm.offer(peer, array.data.ptr, array.nbytes)     # the sender
        pipe.send(offer.word)
        offer.wait()

        comm.fetch(pipe.recv(), array.data.ptr, array.nbytes)      # the receiver

What is offered has to be ready before, and stays as it is until the offer is done."""

import ctypes
import secrets
import time

# Bytes of a word, as causeway_comm.h has it.
WORD_BYTES = 79


class CommError(RuntimeError):
    """What the library says has gone wrong."""


class Offer:
    """Memory that a peer may fetch once."""

    def __init__(self, comm, number, word):
        self._comm, self._number = comm, number
        self.word = word  # what the receiver has to be told

    def done(self):
        """Whether the peer has it, and the memory is the program's again. Raises CommError if it never will."""
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


class Comm:
    """This process's part in a job."""

    def __init__(self, nonce, rank, ranks, library="libcauseway_comm.so"):
        """Takes part as one of `ranks`. All of them have the same nonce (`new_nonce`), which is a secret. The
        library is searched as every other one is, unless `library` is a path."""
        self.library = load(library)
        if self.library.causeway_comm_join(nonce.encode(), rank, ranks) != 0:
            raise self.error()

    def error(self):
        """The library's last error, as an exception."""
        return CommError(self.library.causeway_comm_error().decode(errors="replace"))

    def reaches(self, peer, nbytes=1 << 20):
        """Whether a peer answers, and a message of so many bytes is worth being offered to it."""
        return self.library.causeway_comm_is_offered(peer, nbytes) == 1

    def on_gpu(self, address):
        """Whether there is memory on a GPU at an address."""
        return self.library.causeway_comm_on_gpu(address) == 1

    def offer(self, peer, address, nbytes, limit=10):
        """Offers memory on a GPU to a peer, which must have joined within `limit` seconds. Raises CommError where
        it has not, or no channel takes such memory."""
        until = time.monotonic() + limit
        while not self.reaches(peer, max(nbytes, 1 << 20)):
            if time.monotonic() > until:
                raise CommError(f"rank {peer} does not answer: it has not joined, or is on another host")
            time.sleep(0.01)
        word = ctypes.create_string_buffer(WORD_BYTES)
        number = self.library.causeway_comm_offer(peer, address, nbytes, word)
        if number == 0:
            raise CommError(
                "no channel takes this memory: it is not on a GPU, or CAUSEWAY_COMM_CHANNELS forbids it"
            )
        return Offer(self, number, word.raw)

    def fetch(self, word, address, room):
        """Fetches what a word tells of into memory with so many bytes, and waits until it is there. Says how
        many bytes it has; where that is more than the room nothing is fetched, and the offer is done."""
        if len(word) != WORD_BYTES:
            raise ValueError(f"a word of an offer has {WORD_BYTES} bytes, and not {len(word)}")
        nbytes = ctypes.c_uint64()
        kind = self.library.causeway_comm_judge(word, len(word), room, ctypes.byref(nbytes))
        if kind != 2:
            raise CommError("these bytes are no word of an offer to this rank in this job")
        # Of what the program has copied there, some may be under way.
        self.library.causeway_comm_settle(address)
        if self.library.causeway_comm_fetch(word, address, self.on_gpu(address), room, 1) != 0:
            raise self.error()
        return nbytes.value

    def messages(self, way):
        """How many messages have come by a channel so far: `ipc`, `vmm`, `staged`."""
        return self.library.causeway_comm_messages(way.encode())

    def close(self):
        """Ends this process's part, when its peers have fetched what they were offered."""
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


def load(path):
    """The library, with the types of its functions."""
    library = ctypes.CDLL(path)
    number, rank, address = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p
    types = {
        "error": (ctypes.c_char_p,),
        "join": (ctypes.c_int, ctypes.c_char_p, rank, rank),
        "leave": (None,),
        "on_gpu": (ctypes.c_int, address),
        "settle": (None, address),
        "is_offered": (ctypes.c_int, rank, number),
        "offer": (number, rank, address, number, ctypes.c_char_p),
        "offer_state": (ctypes.c_int, number),
        "judge": (ctypes.c_int, ctypes.c_char_p, number, number, ctypes.POINTER(number)),
        "fetch": (ctypes.c_int, ctypes.c_char_p, address, ctypes.c_int, number, ctypes.c_int),
        "messages": (number, ctypes.c_char_p),
    }
    for name, (result, *arguments) in types.items():
        function = getattr(library, f"causeway_comm_{name}")
        function.restype, function.argtypes = result, arguments
    return library
