"""Two ranks in Python without MPI, each in a process of its own: messages from GPU to GPU by
mpi/python/causeway_comm.py. Prints `ok` when both have what they were sent."""

import array
import ctypes
import multiprocessing
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "mpi" / "python"))
import causeway_comm
from python_gpu import Gpu

# `CU_STREAM_LEGACY`.
LEGACY_STREAM = 1

SIZES = [1, 79, 4096, 100_001, 3 << 20, 3 << 20]


def payload(rank, nbytes):
    """Bytes that depend on the rank."""
    return bytes((at * 31 + at // 251 + rank) & 255 for at in range(nbytes))


def must_raise(error, function, *arguments):
    try:
        function(*arguments)
    except error:
        return
    raise AssertionError(f"{function.__name__} raised no {error.__name__}")


def numbers(rank, count):
    """Whole numbers that depend on the rank."""
    return array.array("i", ((at * 7919 + rank * 104729) % 100_003 - 50_000 for at in range(count)))


def call_together(comm, gpu, rank, pipe):
    """All calls of a group, compared with what they are defined to do."""
    peer = 1 - rank

    def exchange(words):
        pipe.send(words[peer])
        return [word for _, word in sorted([(rank, words[rank]), (peer, pipe.recv())])]

    group = comm.group([0, 1], exchange)
    for count in (2, 1000, 70_001):
        both = [numbers(0, count), numbers(1, count)]
        source, target = gpu.take(both[rank].tobytes()), gpu.take(bytes(8 * count))

        def must_hold(wanted, what, address=target):
            found = gpu.read(address, len(wanted) * 4)
            assert found == array.array("i", wanted).tobytes(), f"{what} is wrong"

        sums = [one + other for one, other in zip(*both, strict=True)]
        group.allreduce(source, target, count, causeway_comm.INT32, causeway_comm.SUM)
        must_hold(sums, "allreduce")
        group.reduce(source, target if rank == 1 else None, count, causeway_comm.INT32, causeway_comm.MAX, 1)
        if rank == 1:
            must_hold([max(pair) for pair in zip(*both, strict=True)], "reduce")
        counts = [count // 3, count - count // 3]
        group.reduce_scatter(source, target, counts, causeway_comm.INT32, causeway_comm.SUM)
        must_hold(sums[: counts[0]] if rank == 0 else sums[counts[0] :], "reduce_scatter")
        group.scan(source, target, count, causeway_comm.INT32, causeway_comm.SUM)
        must_hold(both[0] if rank == 0 else sums, "scan")
        group.scan(source, target, count, causeway_comm.INT32, causeway_comm.SUM, exclusive=True)
        must_hold(both[0], "exclusive scan")
        group.allgather(source, target, 4 * count)
        must_hold([*both[0], *both[1]], "allgather")
        group.alltoall(source, target, 4 * (count // 2))
        half = slice(rank * (count // 2), (rank + 1) * (count // 2))
        must_hold([*both[0][half], *both[1][half]], "alltoall")
        # A gather to rank 1, of blocks that are not equally long.
        blocks = [(target, 4 * counts[0]), (target + 4 * counts[0], 4 * counts[1])]
        takes = blocks if rank == 1 else [(None, 0)] * 2
        group.exchange([(None, 0), (source, 4 * counts[rank])], takes)
        if rank == 1:
            must_hold([*both[0][: counts[0]], *both[1][: counts[1]]], "exchange")
        group.broadcast(source, 4 * count, 1)
        must_hold(both[1], "broadcast", source)
    reduce_in_place(group, gpu, rank)
    # A rank that has nothing to move waits for no stream, and holds up nobody.
    nothing = [(None, 0)] * 2
    gives, takes = ([(None, 0), (address, 8)] if rank == 1 else nothing for address in (source, target))
    group.exchange(gives, takes, stream=LEGACY_STREAM)
    host = ctypes.create_string_buffer(64)
    must_raise(causeway_comm.CommError, group.broadcast, ctypes.addressof(host), 64, 0)
    must_raise(causeway_comm.CommError, group.broadcast, source, 64 + rank, 0)
    must_raise(causeway_comm.CommError, group.broadcast, source, 64, 2)
    # What one takes the other one must give.
    offered = [(source, 64 + 4 * rank)] * 2
    must_raise(causeway_comm.CommError, group.exchange, offered, [(target, 64)] * 2)
    must_raise(ValueError, group.exchange, offered[:1], offered)
    must_raise(KeyError, comm.group([0, 1], lambda words: {}[words[0]]).broadcast, source, 64, 0)
    must_raise(ValueError, comm.group([0, 1], lambda words: words[1:]).broadcast, source, 64, 0)


def reduce_in_place(group, gpu, rank):
    """A result that is put over the rank's own elements. A kernel's first block takes elements 0 and 262144
    before its second one reads element 262144 as a source, and rank 1 puts its result where rank 0 reads."""
    counts = [262_144 - 256, 300_000]
    both = [numbers(0, sum(counts)), numbers(1, sum(counts))]
    own = slice(0, counts[0]) if rank == 0 else slice(counts[0], None)
    sums = array.array("i", (one + other for one, other in zip(both[0][own], both[1][own], strict=True)))
    elements = both[rank].tobytes()
    place = gpu.allocate(len(elements))
    # Which of them reads or writes first is chance.
    for _ in range(8):
        gpu.write(place, elements)
        group.reduce_scatter(place, place, counts, causeway_comm.INT32, causeway_comm.SUM)
        assert gpu.read(place, 4 * counts[rank]) == sums.tobytes(), "reduce_scatter in place is wrong"


def run(rank, nonce, pipe):
    gpu, peer = Gpu(), 1 - rank
    with causeway_comm.Comm(nonce, rank, 2) as comm:
        for nbytes in SIZES:
            out, into = gpu.take(payload(rank, nbytes)), gpu.take(bytes(nbytes))
            offer = comm.offer(peer, out, nbytes)
            pipe.send(offer.descriptor)
            assert comm.fetch(pipe.recv(), into, nbytes) == nbytes
            assert gpu.read(into, nbytes) == payload(peer, nbytes), f"{nbytes} bytes are wrong"
            offer.wait(60)
        assert sum(comm.messages(way) for way in ("ipc", "vmm", "staged")) == len(SIZES)
        # What does not fit is not fetched, and the sender goes on.
        offer = comm.offer(peer, out, nbytes)
        pipe.send(offer.descriptor)
        word = pipe.recv()
        assert comm.fetch(word, into, nbytes - 1) == nbytes
        offer.wait(60)
        must_raise(causeway_comm.CommError, comm.fetch, word[:-1] + bytes([word[-1] ^ 1]), into, nbytes)
        must_raise(ValueError, comm.fetch, b"", into, nbytes)
        must_raise(causeway_comm.CommError, comm.offer, peer, id(word), 4096)
        call_together(comm, gpu, rank, pipe)
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
