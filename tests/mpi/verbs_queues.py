"""Queues for kernels in Python that post to no card: a queue pair and a completion queue as `causeway_verbs` makes them, in
one piece of GPU memory, and the bytes that posts must leave there. The program takes the part of the network card."""

import struct

BYTES = 8192
QUEUE_PAIR, SLOTS = 0x1234, 2
NAMES = "sends receives entries records slots more_slots abort data cq qp".split()
LIMIT_NS = 60 * 10**9


def _ring(buffer, slot_bytes, record, doorbell, slots):
    """A `causeway::verbs::Ring` that nothing has been posted to."""
    return struct.pack("<QIIQQQ", buffer, SLOTS, slot_bytes, record, doorbell, slots).ljust(256, b"\0")


class Queues:
    """The queues in the memory at `start`, of which `read(offset, count)` and `write(offset, bytes)` are the host's."""

    def __init__(self, start, read, write):
        self.at = {name: start + 512 * index for index, name in enumerate(NAMES)}
        self._start, self._read, self._write = start, read, write
        at = self.at
        sends = _ring(at["sends"], 64, at["records"], at["records"] + 64, at["slots"])
        receives = _ring(at["receives"], 16, at["records"], 0, at["more_slots"])
        pair = struct.pack("<IIIIQQ", QUEUE_PAIR, 0, 60, 0, at["abort"], LIMIT_NS).ljust(64, b"\0")
        queue = struct.pack(
            "<QIIQQQII", at["entries"], 4, 64, at["records"] + 128, at["abort"], LIMIT_NS, 1, 1
        )
        self.put("qp", pair + sends + receives)
        self.put("cq", queue.ljust(128, b"\0") + struct.pack("<Q", at["qp"]))
        # Entries that the card has not written yet are of no operation.
        self.put("entries", b"\xf1" * 256)

    def put(self, where, value):
        """Writes bytes to one of the places."""
        self._write(self.at[where] - self._start, value)

    def content(self, where, count, offset=0):
        """The bytes of one of the places."""
        return self._read(self.at[where] - self._start + offset, count)

    def check_posts(self):
        """Two writes of 24 bytes with the keys 0x11 and 0x22, to 0x2000 and 0x3000, and a receive of 32 bytes have been
        posted."""
        for index in range(SLOTS):
            request = struct.pack(
                ">IIIIQIIIIQ",
                *(index << 8 | 0x08, QUEUE_PAIR << 8 | 3, 0x08, 0),
                *(0x2000 + 0x1000 * index, 0x22, 0, 24, 0x11, self.at["data"]),
            )
            written = self.content("sends", 48, 64 * index)
            assert written == request, f"request {index}: {written.hex()}"
        assert self.content("receives", 16) == struct.pack(">IIQ", 32, 0x11, self.at["data"] + 64)
        records = self.content("records", 8)
        assert records == struct.pack(">II", 1, 2), (
            f"one receive and two requests are published: {records.hex()}"
        )
        doorbell = self.content("records", 8, 64)
        assert doorbell == self.content("sends", 8, 64), "the doorbell has the last request's first bytes"

    def complete_first(self):
        """The card completes the first request."""
        self.put("entries", bytes(56) + struct.pack(">IHBB", 0x08 << 24 | QUEUE_PAIR, 0, 0, 0))
