"""What programs and notebooks ask for by themselves: a server, its GPUs, what has been counted."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from . import startup
from .program import PROGRAM


class CausewayError(RuntimeError):
    """Causeway cannot do what was asked; the text says why, and what to do."""


@dataclass(frozen=True)
class Device:
    """A GPU that this process can use."""

    index: int
    name: str
    memory: int
    """Bytes."""
    uuid: str

    def __str__(self) -> str:
        return f"{self.index}: {self.name}, {self.memory / (1 << 30):.0f} GiB"


def connect(on: str) -> list[Device]:
    """Makes this process, and those that it starts, use the GPUs of a server, and returns them.

    `on` is what `causeway run --on` takes: `gpu-box`, `HOST:PORT`, a connect string, or several with commas between them;
    `pool:NAME` for a free GPU of a pool, which is held until this process and those that it has forked have ended. The
    server is asked at once. Raises `CausewayError` if it does not answer, or if it is too late: a process
    has one CUDA driver, and keeps the one that it has begun with."""
    if not on.strip():
        raise CausewayError("connect() needs the name of a server, for example connect('gpu-box')")
    if foreign := foreign_driver():
        raise CausewayError(
            f"this process has loaded another CUDA driver, {foreign}: call connect() before anything that uses CUDA, or set"
            " CAUSEWAY_ON and start Python (or the kernel of the notebook) again"
        )
    if on in HELD:
        return devices()
    if stats() and os.environ.get("CAUSEWAY_ON") != on:
        raise CausewayError(
            f"this process uses the GPUs of {os.environ.get('CAUSEWAY_ON')} already: start Python (or the kernel of the notebook)"
            f" again to use those of {on}"
        )
    if on.startswith("pool:"):
        hold(on)
        startup.activate()
        return devices()
    answer = subprocess.run(
        [PROGRAM, "devices", "--on", on], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if answer.returncode != 0:
        raise CausewayError(answer.stderr.strip().removeprefix("causeway: "))
    os.environ["CAUSEWAY_ON"] = on
    startup.activate()
    return devices()


HELD: dict[str, subprocess.Popen] = {}
"""The processes that hold GPUs of pools for this one, by what `connect` was called with."""


def hold(pool: str) -> None:
    """Acquires GPUs of a pool and has the programs of this process use them. A process of its own holds them, until the last
    process that has the pipe to it has ended."""
    # Its own session: Ctrl-C in the terminal is not for it.
    holder = subprocess.Popen(
        [PROGRAM, "pool", "hold", pool],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lines = [holder.stdout.readline().rstrip("\n").partition("=") for _ in range(2)]
    if not all(equals for _, equals, _ in lines):
        _, error = holder.communicate()
        raise CausewayError(error.strip().removeprefix("causeway: "))
    os.environ.update({name: value for name, _, value in lines})
    HELD[pool] = holder


def foreign_driver() -> str | None:
    """The path of a CUDA driver that this process has loaded and that is not Causeway's."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if "/libcuda.so" in line}
    return next((path for path in sorted(paths) if not is_ours(path)), None)


def is_ours(path: str) -> bool:
    """Whether a driver that this process has loaded is Causeway's: that of this package, or the one of `causeway run`."""
    if os.path.dirname(os.path.realpath(path)) == os.path.realpath(startup.FOLDER):
        return True
    try:
        return hasattr(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW), "causeway_statistics")
    except OSError:
        return False


def loaded_driver(kind: type[ctypes.CDLL] = ctypes.CDLL) -> ctypes.CDLL | None:
    """Causeway's driver as programs of this process find it, whatever folder it came from; None if they find none, or
    another one."""
    try:
        # By its name: the loader gives what it has loaded under it, and with NOLOAD nothing else.
        driver = kind("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
    return driver if hasattr(driver, "causeway_statistics") else None


def library(name: str) -> ctypes.CDLL:
    """One of Causeway's libraries, which this process has loaded or loads now."""
    return ctypes.CDLL(os.path.join(startup.FOLDER, name))


class Memory(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def devices() -> list[Device]:
    """The GPUs of the servers that this process is to use, in CUDA's order before CUDA_VISIBLE_DEVICES.
    Opens no session."""
    if not startup.is_configured():
        raise CausewayError("no server is configured: call connect('gpu-box') first, or set CAUSEWAY_ON")
    nvml = library("libnvidia-ml.so.1")
    nvml.nvmlErrorString.restype = ctypes.c_char_p

    def ask(function: str, *arguments) -> None:
        if status := getattr(nvml, function)(*arguments):
            raise CausewayError(
                f"the GPUs cannot be listed: {function}: {nvml.nvmlErrorString(status).decode()}"
            )

    ask("nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
        found = []
        for index in range(count.value):
            handle, memory = ctypes.c_void_p(), Memory()
            name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
            ask("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
            ask("nvmlDeviceGetName", handle, name, len(name))
            ask("nvmlDeviceGetUUID", handle, uuid, len(uuid))
            ask("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
            found.append(Device(index, name.value.decode(), memory.total, uuid.value.decode()))
        return found
    finally:
        nvml.nvmlShutdown()


def stats() -> dict:
    """What this process has done on its servers so far, as `causeway run --stats` reports it at the end:
    calls, waits, bytes, how copies travelled. Empty before the first CUDA call."""
    driver = loaded_driver()
    if driver is None:
        return {}
    driver.causeway_statistics.restype = ctypes.c_size_t
    driver.causeway_statistics.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    room = 1 << 16
    while True:
        text = ctypes.create_string_buffer(room)
        length = driver.causeway_statistics(text, room)
        if length <= room:
            return json.loads(text.raw[:length]) if length else {}
        # More has been counted than there was room for, and more may come meanwhile.
        room = 2 * length


def fork() -> int:
    """Forks this process as `os.fork` does, together with its session: the child goes on with a copy of the GPU's memory, and with
    its code, streams, events and graphs, at the same addresses, while this process goes on undisturbed.

    Needs `CAUSEWAY_FORK=1`, or `CAUSEWAY_RESUME_TIMEOUT`. Calls of other threads wait meanwhile; these threads are not in the
    child. Raises `CausewayError` if the session cannot be forked, before anything has happened; in the child, if its session
    cannot be opened. PyTorch refuses CUDA in a forked process; this check is off in the child."""
    # In one call that keeps the interpreter's lock: a thread that got it meanwhile would wait with it in its next CUDA call.
    driver = loaded_driver(ctypes.PyDLL)
    if driver is None:
        raise CausewayError("this process has no session to fork: call fork() after the first use of CUDA, or os.fork() before it")
    fork_between = driver.causeway_fork_between
    fork_between.restype = ctypes.c_int
    fork_between.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    python = ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
    around = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in python]
    reason = ctypes.create_string_buffer(4096)
    sys.audit("os.fork")
    child = fork_between(*around, reason, len(reason))
    if child < 0:
        raise CausewayError(f"cannot fork the session: {reason.value.decode(errors='replace')}")
    if child == 0:
        if reason.value:
            raise CausewayError(f"the fork has no session: {reason.value.decode(errors='replace')}")
        torch = sys.modules.get("torch.cuda")
        if torch is not None:
            torch._is_in_bad_fork = lambda: False
    return child
