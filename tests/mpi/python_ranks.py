"""Two ranks in Python without MPI, each in a process of its own: messages from GPU to GPU by
mpi/python/causeway_comm.py. Prints `ok` when both have what they were sent."""

import ctypes
import multiprocessing
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "mpi" / "python"))
import causeway_comm

SIZES = [1, 79, 4096, 100_001, 3 << 20, 3 << 20]


class Gpu:
    """The first device of the driver that the environment gives."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        assert status == 0, f"{name} ended with {status}"

    def take(self, content):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(content)))
        self.call("cuMemcpyHtoD_v2", address, content, ctypes.c_size_t(len(content)))
        return address.value

    def read(self, address, nbytes):
        content = ctypes.create_string_buffer(nbytes)
        self.call("cuMemcpyDtoH_v2", content, ctypes.c_uint64(address), ctypes.c_size_t(nbytes))
        return content.raw


def payload(rank, nbytes):
    """Bytes that depend on the rank."""
    return bytes((at * 31 + at // 251 + rank) & 255 for at in range(nbytes))


def must_raise(error, function, *arguments):
    try:
        function(*arguments)
    except error:
        return
    raise AssertionError(f"{function.__name__} raised no {error.__name__}")


def run(rank, nonce, pipe):
    gpu, peer = Gpu(), 1 - rank
    with causeway_comm.Comm(nonce, rank, 2) as comm:
        for nbytes in SIZES:
            out, into = gpu.take(payload(rank, nbytes)), gpu.take(bytes(nbytes))
            offer = comm.offer(peer, out, nbytes)
            pipe.send(offer.word)
            assert comm.fetch(pipe.recv(), into, nbytes) == nbytes
            assert gpu.read(into, nbytes) == payload(peer, nbytes), f"{nbytes} bytes are wrong"
            offer.wait(60)
        assert sum(comm.messages(way) for way in ("ipc", "vmm", "staged")) == len(SIZES)
        # What does not fit is not fetched, and the sender goes on.
        offer = comm.offer(peer, out, nbytes)
        pipe.send(offer.word)
        word = pipe.recv()
        assert comm.fetch(word, into, nbytes - 1) == nbytes
        offer.wait(60)
        must_raise(causeway_comm.CommError, comm.fetch, word[:-1] + bytes([word[-1] ^ 1]), into, nbytes)
        must_raise(ValueError, comm.fetch, b"", into, nbytes)
        must_raise(causeway_comm.CommError, comm.offer, peer, id(word), 4096)
        pipe.send(None)
        pipe.recv()
    must_raise(causeway_comm.CommError, causeway_comm.Comm, "secret", rank, 2)


def main():
    nonce = causeway_comm.new_nonce()
    start = multiprocessing.get_context("spawn")
    ranks = [start.Process(target=run, args=(rank, nonce, end)) for rank, end in enumerate(start.Pipe())]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode != 0 for process in ranks):
        sys.exit(1)
    print("ok")


if __name__ == "__main__":
    main()
