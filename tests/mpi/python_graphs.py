"""Collective calls in graphs, by mpi/python/causeway_comm.py: `python_graphs.py RANKS SEED [LAUNCHES]`, a process
for each rank. All draw the same random graphs, launch them with new data in turn, and compare their memory with a
model. Then they do what goes wrong; with 0 launches only the last thing of that, where a rank is lost. Prints `ok`
when all is as it should be."""

import ctypes
import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "mpi" / "python"))
import causeway_comm
from python_gpu import Gpu
from python_job import all_ranks_end_well, capturing

# Each rank has so many places for data, of so many bytes. Every call goes from one to another one, or stays in one.
PLACES, PLACE_BYTES = 3, 24_000

ELEMENTS = {
    causeway_comm.UINT8: 1,
    causeway_comm.INT16: 2,
    causeway_comm.UINT32: 4,
    causeway_comm.INT32: 4,
    causeway_comm.UINT64: 8,
}
OPERATIONS = {
    causeway_comm.SUM: lambda a, b: a + b,
    causeway_comm.PROD: lambda a, b: a * b,
    causeway_comm.BXOR: lambda a, b: a ^ b,
    causeway_comm.BAND: lambda a, b: a & b,
    causeway_comm.BOR: lambda a, b: a | b,
}

# A stream that waits for the default stream, or not.
STREAM_FLAGS = (0, 1)


class Model:
    """The memory of all ranks, and what calls do to it."""

    def __init__(self, ranks):
        self.places = [[bytearray(PLACE_BYTES) for _ in range(PLACES)] for _ in range(ranks)]
        self.ranks = range(ranks)

    def get(self, rank, where, nbytes):
        place, at = where
        return bytes(self.places[rank][place][at : at + nbytes])

    def put(self, rank, where, content):
        place, at = where
        assert at + len(content) <= PLACE_BYTES
        self.places[rank][place][at : at + len(content)] = content

    def together(self, element, operation, vectors):
        width = ELEMENTS[element]
        mask = (1 << 8 * width) - 1
        if not vectors[0]:
            return b""
        columns = [
            [int.from_bytes(vector[at : at + width], "little") for at in range(0, len(vector), width)]
            for vector in vectors
        ]
        result = columns[0]
        for column in columns[1:]:
            result = [OPERATIONS[operation](a, b) & mask for a, b in zip(result, column, strict=True)]
        return b"".join(value.to_bytes(width, "little") for value in result)


class Call:
    """One call of a graph, drawn equally at all ranks."""

    KINDS = (
        "allreduce", "reduce", "reduce_scatter", "scan", "broadcast", "allgather", "alltoall", "exchange", "fill",
        "fill",
    )  # fmt: skip

    def __init__(self, draw, ranks):
        self.kind, self.ranks = draw.choice(self.KINDS), ranks
        self.element, self.operation = draw.choice(list(ELEMENTS)), draw.choice(list(OPERATIONS))
        self.width = ELEMENTS[self.element]
        self.root, self.exclusive = draw.randrange(ranks), draw.random() < 0.5
        whole = self.kind in ("allgather", "alltoall", "exchange", "reduce_scatter")
        most = PLACE_BYTES // self.width // (ranks if whole else 1) - 40
        self.count = draw.choice([0, 1, draw.randrange(20), draw.randrange(most), most])
        self.nbytes = self.count * self.width
        # In place, or from one place to another one; each rank has places of its own where they may differ.
        self.in_place = draw.random() < 0.4 and self.kind not in ("alltoall", "exchange")
        self.source, self.target = [], []
        for _ in range(ranks):
            one, other = draw.sample(range(PLACES), 2)
            shift = [self.width * draw.choice([0, draw.randrange(16)]) for _ in range(2)]
            self.source.append((one, shift[0]))
            self.target.append((one, shift[0]) if self.in_place else (other, shift[1]))
        self.counts = [draw.randrange(self.count + 1) for _ in range(ranks)]
        self.sizes = [[draw.randrange(self.nbytes + 1) for _ in range(ranks)] for _ in range(ranks)]
        # What a rank does by itself between calls.
        self.fill = [(draw.randrange(PLACES), draw.randrange(256)) for _ in range(ranks)]

    def behind(self, where, nbytes):
        return where[0], where[1] + nbytes

    def own_block(self, rank):
        """In place, a rank's block of an allgather is a part of what it gets."""
        return self.behind(self.target[rank], rank * self.nbytes) if self.in_place else self.source[rank]

    def ranges(self, rank):
        """What a rank gives each one and takes from each one."""
        gives, at = [], 0
        for peer in range(self.ranks):
            gives.append((self.behind(self.source[rank], at), self.sizes[rank][peer]))
            at += self.sizes[rank][peer]
        takes, at = [], 0
        for peer in range(self.ranks):
            takes.append((self.behind(self.target[rank], at), self.sizes[peer][rank]))
            at += self.sizes[peer][rank]
        return gives, takes

    def make(self, group, gpu, address, stream):
        rank = group.rank
        source, target = address(self.source[rank]), address(self.target[rank])
        words = {"stream": stream}
        if self.kind == "allreduce":
            group.allreduce(source, target, self.count, self.element, self.operation, **words)
        elif self.kind == "reduce":
            to = target if rank == self.root else None
            group.reduce(source, to, self.count, self.element, self.operation, self.root, **words)
        elif self.kind == "reduce_scatter":
            group.reduce_scatter(source, target, self.counts, self.element, self.operation, **words)
        elif self.kind == "scan":
            group.scan(source, target, self.count, self.element, self.operation, self.exclusive, **words)
        elif self.kind == "broadcast":
            group.broadcast(source, self.nbytes, self.root, **words)
        elif self.kind == "allgather":
            group.allgather(address(self.own_block(rank)), target, self.nbytes, **words)
        elif self.kind == "alltoall":
            group.alltoall(source, target, self.nbytes, **words)
        elif self.kind == "exchange":
            lists = [[(address(where), size) for where, size in ranges] for ranges in self.ranges(rank)]
            group.exchange(*lists, **words)
        else:
            place, value = self.fill[rank]
            start, length = ctypes.c_uint64(address((place, 0))), ctypes.c_size_t(PLACE_BYTES)
            gpu.call("cuMemsetD8Async", start, ctypes.c_ubyte(value), length, stream)

    def apply(self, model):
        ranks = model.ranks
        vectors = [model.get(rank, self.source[rank], self.nbytes) for rank in ranks]
        results = []
        if self.kind == "allreduce":
            whole = model.together(self.element, self.operation, vectors)
            results = [(rank, self.target[rank], whole) for rank in ranks]
        elif self.kind == "reduce":
            whole = model.together(self.element, self.operation, vectors)
            results = [(self.root, self.target[self.root], whole)]
        elif self.kind == "reduce_scatter":
            length = sum(self.counts) * self.width
            vectors = [model.get(rank, self.source[rank], length) for rank in ranks]
            whole = model.together(self.element, self.operation, vectors)
            starts = [sum(self.counts[:rank]) * self.width for rank in ranks]
            ends = [start + count * self.width for start, count in zip(starts, self.counts, strict=True)]
            results = [(rank, self.target[rank], whole[starts[rank] : ends[rank]]) for rank in ranks]
        elif self.kind == "scan":
            for rank in ranks:
                these = vectors[: rank if self.exclusive else rank + 1]
                if these:
                    whole = model.together(self.element, self.operation, these)
                    results.append((rank, self.target[rank], whole))
        elif self.kind == "broadcast":
            results = [(rank, self.source[rank], vectors[self.root]) for rank in ranks]
        elif self.kind == "allgather":
            blocks = b"".join(model.get(rank, self.own_block(rank), self.nbytes) for rank in ranks)
            results = [(rank, self.target[rank], blocks) for rank in ranks]
        elif self.kind == "alltoall":
            for rank in ranks:
                at = rank * self.nbytes
                got = [model.get(peer, self.behind(self.source[peer], at), self.nbytes) for peer in ranks]
                results.append((rank, self.target[rank], b"".join(got)))
        elif self.kind == "exchange":
            for rank in ranks:
                for peer in ranks:
                    given = model.get(peer, *self.ranges(peer)[0][rank])
                    results.append((rank, self.ranges(rank)[1][peer][0], given))
        else:
            results = [
                (rank, (place, 0), bytes([value]) * PLACE_BYTES) for rank, (place, value) in enumerate(self.fill)
            ]
        for rank, where, content in results:
            model.put(rank, where, content)


class Rank:
    """One of the processes."""

    def __init__(self, comm, gpu, pipes):
        self.comm, self.gpu, self.pipes = comm, gpu, pipes
        self.group = comm.group(range(len(pipes)), pipes.exchange)
        self.places = [gpu.allocate(PLACE_BYTES) for _ in range(PLACES)]

    def address(self, where):
        return self.places[where[0]] + where[1]

    def stream(self, flags):
        stream = ctypes.c_void_p()
        self.gpu.call("cuStreamCreate", ctypes.byref(stream), flags)
        return stream

    def capture(self, stream, make):
        """The executable graph of what `make` does in a stream."""
        with capturing(self.gpu, stream) as launchable:
            make(stream)
        return launchable

    def capture_calls(self, calls, stream):
        def make(stream):
            for call in calls:
                call.make(self.group, self.gpu, self.address, stream)

        return self.capture(stream, make)

    def write(self, model):
        for place, content in zip(self.places, model.places[self.group.rank], strict=True):
            self.gpu.write(place, bytes(content))

    def must_hold(self, model, what):
        for place, content in zip(self.places, model.places[self.group.rank], strict=True):
            found = self.gpu.read(place, PLACE_BYTES)
            if found != content:
                at = next(at for at in range(PLACE_BYTES) if found[at] != content[at])
                raise AssertionError(f"{what}: byte {at} of {place:#x} at rank {self.group.rank} is wrong")


def launch_at_random(rank, seed, launches):
    """Random graphs, in turn, with new data, late ranks and calls outside of graphs."""
    draw, own = random.Random(seed), random.Random(seed + rank.group.rank + 1)
    ranks = rank.group.ranks
    graphs = []
    for at in range(4):
        calls = [Call(draw, ranks) for _ in range(draw.randrange(1, 6))]
        stream = rank.stream(STREAM_FLAGS[at % 2])
        graphs.append((calls, rank.capture_calls(calls, stream), stream))
    model = Model(ranks)
    for turn in range(launches):
        for places in model.places:
            places[:] = [bytearray(draw.randbytes(PLACE_BYTES)) for _ in places]
        rank.write(model)
        calls, graph, stream = draw.choice(graphs)
        times = draw.choice([1, 1, 2, 3])
        if draw.random() < 0.3:
            eager = Call(draw, ranks)
            eager.make(rank.group, rank.gpu, rank.address, stream)
            # Of a fill nobody waits until it is there.
            rank.gpu.call("cuStreamSynchronize", stream)
            eager.apply(model)
        if own.random() < 0.3:
            time.sleep(own.random() / 50)
        for _ in range(times):
            rank.gpu.call("cuGraphLaunch", graph, stream)
            for call in calls:
                call.apply(model)
        rank.gpu.call("cuStreamSynchronize", stream)
        kinds = ", ".join(call.kind for call in calls)
        rank.must_hold(model, f"launch {turn} of a graph of {kinds}")
        rank.group.check_graphs()
    return graphs


def must_fail(words, make, *arguments, **named):
    try:
        make(*arguments, **named)
    except causeway_comm.CommError as error:
        assert words in str(error), f"{error}: it should say {words}"
    else:
        raise AssertionError(f"nothing was wrong, and it should have been: {words}")


def refuse(rank):
    """What no graph can have is an error at all ranks, and their captures go on."""
    group, gpu, me = rank.group, rank.gpu, rank.group.rank
    source, target = rank.places[0], rank.places[1]
    number, total = causeway_comm.UINT32, causeway_comm.SUM
    pooled, other = ctypes.c_uint64(), rank.stream(1)
    gpu.call("cuMemAllocAsync", ctypes.byref(pooled), ctypes.c_size_t(4096), other)
    gpu.call("cuStreamSynchronize", other)

    def refused(stream):
        must_fail("all ranks must pass the same number", group.broadcast, source, 64 + me, 0, stream=stream)
        counts = (source, target, 8 + me, number, total)
        must_fail("all ranks must pass the same number", group.allreduce, *counts, stream=stream)
        must_fail("another root", group.broadcast, source, 64, int(me == 0), stream=stream)
        must_fail("another root", group.allreduce, source, target, 8, number, total + (me == 0), stream=stream)
        offered = [(source, 64 + 4 * me)] * group.ranks
        must_fail("", group.exchange, offered, [(target, 64)] * group.ranks, stream=stream)
        # The first one captures, and the others do not.
        for call, arguments in (
            (group.broadcast, (source, 64, 0)),
            (group.allreduce, (source, target, 8, number, total)),
        ):
            must_fail("is being captured", call, *arguments, stream=stream if me == 0 else None)
        host = ctypes.create_string_buffer(64)
        must_fail("not all ranks", group.broadcast, ctypes.addressof(host), 64, 0, stream=stream)
        # Memory of pools is not opened.
        must_fail("not all ranks can open", group.broadcast, pooled.value, 64, 0, stream=stream)
        must_fail("not all ranks can open", group.allreduce, pooled.value, target, 8, number, total, stream=stream)
        # It goes on.
        group.broadcast(source, 64, 1, stream=stream)

    stream = rank.stream(0)
    graph = rank.capture(stream, refused)
    word = bytes([me + 1]) * 64
    gpu.write(source, word)
    gpu.call("cuGraphLaunch", graph, stream)
    gpu.call("cuStreamSynchronize", stream)
    assert gpu.read(source, 64) == bytes([2]) * 64, "what was captured in the end is wrong"
    group.check_graphs()


def release(rank):
    """What was kept goes, and the next graph makes it anew; a group of other ranks has its own."""
    rank.pipes.meet()
    rank.group.release_graphs()
    rank.pipes.meet()
    stream = rank.stream(1)
    source = rank.places[0]
    graph = rank.capture(stream, lambda stream: rank.group.broadcast(source, 8, 0, stream=stream))
    alone = rank.comm.group([rank.group.rank], lambda words: words)
    own = rank.capture(stream, lambda stream: alone.allgather(source, rank.places[1], 8, stream=stream))
    for turn in range(3):
        rank.gpu.write(source, bytes([turn + 10 * rank.group.rank]) * 8)
        rank.gpu.call("cuGraphLaunch", graph, stream)
        rank.gpu.call("cuGraphLaunch", own, stream)
        rank.gpu.call("cuStreamSynchronize", stream)
        assert rank.gpu.read(rank.places[1], 8) == bytes([turn]) * 8, "a graph after others are released is wrong"
    return graph, stream


def lose_one(rank, graph, stream):
    """The last rank does not launch: it has ended, or is too late. The others hear that, and write nothing."""
    rank.pipes.meet()
    if rank.group.rank == rank.group.ranks - 1:
        if "CAUSEWAY_COMM_GRAPH_TIMEOUT" in os.environ:
            # It waits for the others, who then leave.
            rank.pipes.ends[0].recv()
            return
        os._exit(0)
    rank.gpu.write(rank.places[0], bytes([77 + rank.group.rank]) * 8)
    spare = ctypes.c_uint64(rank.gpu.allocate(4096))
    for _ in range(3):
        rank.gpu.call("cuGraphLaunch", graph, stream)
    # NVIDIA's driver waits for the kernels in here, and lets no other call in.
    rank.gpu.call("cuMemFree_v2", spare)
    rank.gpu.call("cuStreamSynchronize", stream)
    left = rank.gpu.read(rank.places[0], 8)
    assert left == bytes([77 + rank.group.rank]) * 8, "a call that has failed has written"
    must_fail("a collective call in a graph of this group has failed", rank.group.check_graphs)
    if rank.group.rank == 0 and "CAUSEWAY_COMM_GRAPH_TIMEOUT" in os.environ:
        rank.pipes.ends[-1].send(None)


def run(me, pipes, nonce, seed, launches):
    gpu = Gpu(me)
    with causeway_comm.Comm(nonce, me, len(pipes)) as comm:
        rank = Rank(comm, gpu, pipes)
        rank.pipes.meet()
        if launches > 0:
            launch_at_random(rank, seed, launches)
            refuse(rank)
        graph, stream = release(rank)
        lose_one(rank, graph, stream)


def main():
    ranks, seed = int(sys.argv[1]), int(sys.argv[2], 0)
    launches = int(sys.argv[3]) if len(sys.argv) > 3 else 30
    print(f"seed {seed:#x}", file=sys.stderr)
    if not all_ranks_end_well(ranks, run, causeway_comm.new_nonce(), seed, launches):
        sys.exit(1)
    print("ok")


if __name__ == "__main__":
    main()
