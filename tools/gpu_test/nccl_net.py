#!/usr/bin/env python3
"""Exchange between two processes by the table of NCCL's network plugin, without NCCL: checked, and measured.

    python3 nccl_net.py --plugin libnccl-net-causeway.so                   # memory of the host
    python3 nccl_net.py --plugin libnccl-net-causeway.so --memory gpu      # from GPU 0 to the last GPU
    python3 nccl_net.py ... --isolate net,ipc,uts,pid,mount           # in own namespaces, as root
    python3 nccl_net.py ... --channels 4 --sizes 8,524288,67108864

What NCCL's bootstrap carries goes through this program's pipes. A line a size: the time of a message that
waits for its answer of 8 bytes, and the rate of messages in flight on all channels. Every byte of a message a
channel is checked before. It needs Python, `unshare` for namespaces and, for memory of GPUs, the driver."""

import argparse
import ctypes
import itertools
import json
import os
import subprocess
import sys
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p, cast

HOST, GPU = 1, 2
HANDLE_BYTES = 128
# Messages of a channel in flight: NCCL has as many steps.
IN_FLIGHT = 8
# How long a measurement of a size lasts, and how long a request may take.
SECONDS = 0.5
TIMEOUT = 60

LOGGER = ctypes.CFUNCTYPE(None, c_int, ctypes.c_ulong, c_char_p, c_int, c_char_p, c_char_p)


@LOGGER
def log(level, _subsystems, _file, _line, _form, text):
    """Warnings; all where NCCL_DEBUG is INFO."""
    if level == 2 or os.environ.get("NCCL_DEBUG") == "INFO":
        print(f"[{os.getpid()}] {text.decode()}", file=sys.stderr, flush=True)


class ExchangeError(Exception):
    """A call failed, or bytes are wrong."""


class Plugin:
    """Version 9 of the table: positions of functions are those of NCCL's header."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        table = (c_void_p * 20).in_dll(library, "ncclNetPlugin_v9")

        def function(at, *types):
            return ctypes.CFUNCTYPE(c_int, *types)(table[at])

        pointers = POINTER(c_void_p)
        self._init = function(1, LOGGER)
        self._properties = function(3, c_int, c_void_p)
        self._listen = function(4, c_int, c_void_p, pointers)
        self._connect = function(5, c_int, c_void_p, pointers, pointers)
        self._accept = function(6, c_void_p, pointers, pointers)
        self._register = function(7, c_void_p, c_void_p, c_size_t, c_int, pointers)
        self._deregister = function(9, c_void_p, c_void_p)
        self._send = function(10, c_void_p, c_void_p, c_size_t, c_int, c_void_p, pointers)
        self._receive = function(
            11, c_void_p, c_int, pointers, POINTER(c_size_t), POINTER(c_int), pointers, pointers
        )
        self._test = function(13, c_void_p, POINTER(c_int), POINTER(c_int))
        self._close_send = function(14, c_void_p)
        self._close_receive = function(15, c_void_p)
        self._close_listen = function(16, c_void_p)
        self._must(self._init(log), "init")

    @staticmethod
    def _must(status, call):
        if status != 0:
            raise ExchangeError(f"{call} returned {status}")

    def pointers(self):
        """The kinds of memory that are offered."""
        buffer = (ctypes.c_byte * 256)()
        self._must(self._properties(0, buffer), "getProperties")
        return c_int.from_buffer(buffer, 24).value

    def listen(self):
        """A listener, and the handle for its peer."""
        listener, handle = c_void_p(), (ctypes.c_ubyte * HANDLE_BYTES)()
        self._must(self._listen(0, handle, byref(listener)), "listen")
        return listener, bytes(handle)

    def _until(self, made, attempt, call):
        start = time.monotonic()
        while not made:
            self._must(attempt(), call)
            if time.monotonic() - start > TIMEOUT:
                raise ExchangeError(f"{call} does not end")
        return made

    def connect(self, handle):
        """A sender."""
        made, device = c_void_p(), c_void_p()
        buffer = (ctypes.c_ubyte * HANDLE_BYTES).from_buffer_copy(handle)
        return self._until(made, lambda: self._connect(0, buffer, byref(made), byref(device)), "connect")

    def accept(self, listener):
        """A receiver; the listener is closed."""
        made, device = c_void_p(), c_void_p()
        self._until(made, lambda: self._accept(listener, byref(made), byref(device)), "accept")
        self._must(self._close_listen(listener), "closeListen")
        return made

    def register(self, communicator, address, size, kind):
        """A registration."""
        made = c_void_p()
        self._must(self._register(communicator, address, size, kind, byref(made)), "regMr")
        return made

    def deregister(self, communicator, registration):
        """Ends a registration."""
        self._must(self._deregister(communicator, registration), "deregMr")

    def send(self, communicator, address, size, registration):
        """A request."""
        made = c_void_p()
        call = lambda: self._send(communicator, address, size, 0, registration, byref(made))  # noqa: E731
        return self._until(made, call, "isend")

    def receive(self, communicator, address, size, registration):
        """A request."""
        made, data, length, tag = c_void_p(), c_void_p(address), c_size_t(size), c_int(0)
        registrations = c_void_p(registration.value)
        call = lambda: self._receive(  # noqa: E731
            communicator, 1, byref(data), byref(length), byref(tag), byref(registrations), byref(made)
        )
        return self._until(made, call, "irecv")

    def is_done(self, request):
        """Whether a request is done; its size."""
        done, size = c_int(), c_int()
        self._must(self._test(request, byref(done), byref(size)), "test")
        return size.value if done.value else None

    def wait(self, request):
        """The size of a request that is done."""
        start = time.monotonic()
        while (size := self.is_done(request)) is None:
            if time.monotonic() - start > TIMEOUT:
                raise ExchangeError("a request is never done")
        return size

    def close(self, communicator, sends):
        """Ends a communicator."""
        self._must((self._close_send if sends else self._close_receive)(communicator), "close")


class HostMemory:
    """Memory of the host."""

    kind = HOST

    def __init__(self, size):
        self._memory = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self._memory)

    def write(self, data, offset):
        """Puts bytes there."""
        ctypes.memmove(self.address + offset, data, len(data))

    def read(self, size, offset):
        """Bytes from there."""
        return ctypes.string_at(self.address + offset, size)


class GpuMemory:
    """Memory of a GPU, made as NCCL makes its buffers: it can be exported, unless `plain` (`cuMemAlloc`)."""

    kind = GPU

    def __init__(self, size, last, plain):
        self._cuda = cuda = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
        count, device, context = c_int(), c_int(), c_void_p()
        self._must("cuInit", 0)
        self._must("cuDeviceGetCount", byref(count))
        self._must("cuDeviceGet", byref(device), count.value - 1 if last else 0)
        self._must("cuDevicePrimaryCtxRetain", byref(context), device)
        self._must("cuCtxSetCurrent", context)
        address = c_uint64()
        if plain:
            self._must("cuMemAlloc_v2", byref(address), c_size_t(size))
        else:
            # CUmemAllocationProp: pinned, a POSIX descriptor, of a device.
            properties = (c_int * 8)(1, 1, 1, device.value, 0, 0, 0, 0)
            unit, made = c_size_t(), c_uint64()
            self._must("cuMemGetAllocationGranularity", byref(unit), properties, 0)
            size = c_size_t(-(-size // unit.value) * unit.value)
            self._must("cuMemCreate", byref(made), size, properties, c_uint64(0))
            self._must("cuMemAddressReserve", byref(address), size, c_size_t(0), c_uint64(0), c_uint64(0))
            self._must("cuMemMap", address, size, c_size_t(0), made, c_uint64(0))
            access = (c_int * 3)(1, device.value, 3)
            self._must("cuMemSetAccess", address, size, access, c_size_t(1))
        self.address = address.value
        assert cuda is not None

    def _must(self, call, *arguments):
        status = getattr(self._cuda, call)(*arguments)
        if status != 0:
            raise ExchangeError(f"{call} returned {status}")

    def write(self, data, offset):
        """Puts bytes there."""
        self._must(
            "cuMemcpyHtoD_v2",
            c_uint64(self.address + offset),
            cast(c_char_p(data), c_void_p),
            c_size_t(len(data)),
        )
        # A copy from pageable memory returns when it has been read, and the plugin's copies are in streams
        # that do not wait for it.
        self._must("cuCtxSynchronize")

    def read(self, size, offset):
        """Bytes from there."""
        buffer = ctypes.create_string_buffer(max(size, 1))
        self._must("cuMemcpyDtoH_v2", buffer, c_uint64(self.address + offset), c_size_t(size))
        return buffer.raw[:size]


def content(size, number):
    """Bytes of a message, which say which it is."""
    period = bytes((at * 7 + number * 31 + at // 256) % 256 for at in range(4093))
    return (period * (size // len(period) + 1))[:size]


def send_line(**fields):
    """Tells the parent something."""
    print(json.dumps(fields), flush=True)


def receive_line():
    """What the other process has said, by way of the parent."""
    return json.loads(sys.stdin.readline())


class Side:
    """One of the two processes: channels to the other one, and one back for answers."""

    def __init__(self, options):
        self.options = options
        self.sends = options.role == "sender"
        size = max(options.sizes)
        if options.memory == "host":
            memory = HostMemory
            self.buffers = [memory(size * IN_FLIGHT) for _ in range(options.channels)]
        else:
            last = not self.sends
            make = lambda: GpuMemory(size * IN_FLIGHT, last, options.memory == "plain")  # noqa: E731
            self.buffers = [make() for _ in range(options.channels)]
        self.plugin = plugin = Plugin(options.plugin)
        kind = self.buffers[0].kind
        if not plugin.pointers() & kind:
            raise ExchangeError(
                "the plugin does not offer this kind of memory (CAUSEWAY_NCCL_GPU=on with Causeway's driver)"
            )
        # The receiver listens for the channels, the sender for the way back.
        listeners = [plugin.listen() for _ in range(1 if self.sends else options.channels)]
        send_line(handles=[handle.hex() for _, handle in listeners])
        handles = [bytes.fromhex(handle) for handle in receive_line()["handles"]]
        # Each end of a connection waits for the other one: the same order at both.
        connect = lambda: [plugin.connect(handle) for handle in handles]  # noqa: E731
        accept = lambda: [plugin.accept(listener) for listener, _ in listeners]  # noqa: E731
        if self.sends:
            self.channels, self.back = connect(), accept()[0]
        else:
            self.channels, self.back = accept(), connect()[0]
        self.registrations = [
            plugin.register(channel, buffer.address, size * IN_FLIGHT, kind)
            for channel, buffer in zip(self.channels, self.buffers, strict=True)
        ]
        self.word = HostMemory(8)
        self.word_registration = plugin.register(self.back, self.word.address, 8, HOST)

    def post(self, channel, size, slot=0):
        """Sends or receives a message of a channel."""
        call = self.plugin.send if self.sends else self.plugin.receive
        address = self.buffers[channel].address + slot * size
        return call(self.channels[channel], address, size, self.registrations[channel])

    def send_back(self):
        """A word from the receiver to the sender."""
        call = self.plugin.receive if self.sends else self.plugin.send
        self.plugin.wait(call(self.back, self.word.address, 8, self.word_registration))

    def check(self, size):
        """Messages of each channel from and to several addresses, byte by byte."""
        for slot, (channel, buffer) in itertools.product((0, 5), enumerate(self.buffers)):
            expected = content(size, channel + slot)
            buffer.write(expected if self.sends else bytes(size), slot * size)
            arrived = self.plugin.wait(self.post(channel, size, slot))
            if arrived != size or (not self.sends and buffer.read(size, slot * size) != expected):
                raise ExchangeError(f"a message of {size} bytes came with others")
            self.send_back()

    def latency(self, size):
        """Seconds of a message and its answer of 8 bytes."""
        rounds, start = 0, time.perf_counter()
        limit = 20 if self.options.quick else 2000
        for _ in range(limit):
            self.plugin.wait(self.post(0, size))
            self.send_back()
            rounds += 1
        return (time.perf_counter() - start) / rounds

    def rate(self, size):
        """Bytes in a second, with several messages in flight on each channel."""
        count = max(4, min(2000, (4 << 30) // max(size, 1 << 14) // len(self.channels)))
        if self.options.quick:
            count = 4
        start = time.perf_counter()
        pending = [[] for _ in self.channels]
        posted = [0] * len(self.channels)
        done = 0
        while done < count * len(self.channels):
            for channel, requests in enumerate(pending):
                if posted[channel] < count and len(requests) < IN_FLIGHT:
                    requests.append(self.post(channel, size, posted[channel] % IN_FLIGHT))
                    posted[channel] += 1
                if requests and self.plugin.is_done(requests[0]) is not None:
                    requests.pop(0)
                    done += 1
        self.send_back()
        return count * len(self.channels) * size / (time.perf_counter() - start)

    def close(self):
        """Ends everything, the sender last."""
        for channel, registration in zip(self.channels, self.registrations, strict=True):
            self.plugin.deregister(channel, registration)
            self.plugin.close(channel, self.sends)
        self.plugin.deregister(self.back, self.word_registration)
        self.plugin.close(self.back, not self.sends)


def play(options):
    """What a process does."""
    side = Side(options)
    for size in options.sizes:
        side.check(size)
        latency, rate = side.latency(size), side.rate(size)
        if side.sends:
            send_line(size=size, microseconds=round(latency * 1e6, 1), gigabytes=round(rate / 1e9, 2))
    side.close()
    send_line(end=True)


NAMESPACES = {"net": "--net", "ipc": "--ipc", "uts": "--uts", "mount": "--mount", "pid": "--pid"}


def start(options, role):
    """One of the two processes."""
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--role", role]
    if options.isolate:
        kinds = options.isolate.split(",")
        flags = [NAMESPACES[kind] for kind in kinds] + (["--fork", "--mount-proc"] if "pid" in kinds else [])
        command = ["unshare", *flags, *command]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def watch(processes):
    """Carries handles between the two, and prints what the sender has measured."""
    lines = [json.loads(process.stdout.readline() or '{"end": false}') for process in processes]
    if not all("handles" in line for line in lines):
        return 1
    for process, line in zip(processes, reversed(lines), strict=True):
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
    print(f"{'bytes':>12} {'us':>10} {'GB/s':>8}")
    for line in map(json.loads, processes[0].stdout):
        if "size" in line:
            print(f"{line['size']:>12} {line['microseconds']:>10} {line['gigabytes']:>8}", flush=True)
    codes = [process.wait(TIMEOUT) for process in processes]
    print("every byte was right" if not any(codes) else f"FAILED: {codes}")
    return int(any(codes))


def main():
    """Starts both processes, or is one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plugin", required=True, help="the path of libnccl-net-causeway.so")
    parser.add_argument("--memory", choices=("host", "gpu", "plain"), default="host",
                        help="of the host; of GPUs, exportable; or of GPUs by cuMemAlloc")  # fmt: skip
    parser.add_argument("--isolate", default="", help="namespaces of their own: net,ipc,uts,mount,pid")
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")],
                        default=[8, 4096, 131072, 524288, 4194304, 67108864])  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="check alone; what is measured means nothing")
    parser.add_argument("--role", choices=("sender", "receiver"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        return play(options)
    processes = [start(options, role) for role in ("sender", "receiver")]
    try:
        return watch(processes)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()


if __name__ == "__main__":
    sys.exit(main())
