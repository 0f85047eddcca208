"""Teams of kernels that communicate, for Python: libcauseway_comm.so, by ctypes. What kernels do with them
stands in the headers of `device/include`, which NVRTC takes as they are.

    team = Team.create(2)                       # two ranks in this process, on the current context's GPU
    team = Team.join(nonce, rank, ranks)        # or this process's rank of several (torchrun, mpirun)
    data = team.window(1 << 20)                 # each rank's part: data.address(rank)
    launch(kernel, team.handle(rank), data.handle(rank))

A handle is what a kernel takes by value: 24 bytes for a `causeway::Team`, 32 for a `causeway::Window`. The
GPU has to be in use before (a tensor on it, say). All ranks make the same windows in the same order."""

import ctypes

import causeway_comm

TEAM_BYTES, WINDOW_BYTES = 24, 32


class Options(ctypes.Structure):
    """`causeway_team_options`; 0 stands for what is usual."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("queues", "capacity", "threads", "limit_milliseconds")]


class Window:
    """Memory of which every rank has a part."""

    def __init__(self, team, number):
        self._team, self.number = team, number

    def handle(self, rank):
        """What a rank's kernels are given."""
        handle = ctypes.create_string_buffer(WINDOW_BYTES)
        call = self._team.library.causeway_window_handle
        self._team.must(call(self._team.pointer, self.number, rank, handle))
        return handle.raw

    def address(self, rank):
        """Where a rank's part lies."""
        return int.from_bytes(self.handle(rank)[:8], "little")

    def free(self):
        """Frees it, when no kernel uses it any more."""
        self._team.must(self._team.library.causeway_window_free(self._team.pointer, self.number))


class Team:
    """This process's ranks of a team."""

    def __init__(self, library, pointer, ranks, ranks_here):
        self.library, self.pointer, self.ranks, self.ranks_here = library, pointer, ranks, ranks_here
        if not pointer:
            raise self.error()

    @classmethod
    def create(cls, ranks, devices=None, library="libcauseway_comm.so", **options):
        """A team whose ranks are all in this process: on the current context's GPU, or on these devices."""
        loaded = load(library)
        numbers = (ctypes.c_int * ranks)(*devices) if devices else None
        return cls(loaded, loaded.causeway_team_create(ranks, numbers, Options(**options)), ranks, ranks)

    @classmethod
    def join(cls, nonce, rank, ranks, library="libcauseway_comm.so", **options):
        """This process's rank. All have the same nonce (`causeway_comm.new_nonce`), a new one a team."""
        loaded = load(library)
        joined = loaded.causeway_team_join(nonce.encode(), rank, ranks, Options(**options))
        return cls(loaded, joined, ranks, 1)

    def error(self):
        """The library's last error, as an exception."""
        return causeway_comm.CommError(self.library.causeway_comm_error().decode(errors="replace"))

    def must(self, status):
        """A number that is not negative; else an exception."""
        if status < 0:
            raise self.error()
        return status

    def handle(self, rank):
        """What a rank's kernels are given."""
        handle = ctypes.create_string_buffer(TEAM_BYTES)
        self.must(self.library.causeway_team_handle(self.pointer, rank, handle))
        return handle.raw

    def window(self, nbytes, in_host=False):
        """A window of so many bytes for each rank, zeroed."""
        return Window(self, self.must(self.library.causeway_window_create(self.pointer, in_host, nbytes)))

    def register(self, addresses, nbytes, in_host=False):
        """A window of the program's memory, such as tensors' `data_ptr()`: an address for each rank here."""
        if len(addresses) != self.ranks_here:
            raise ValueError(
                f"a window has an address for each of this process's {self.ranks_here} ranks, "
                f"and not {len(addresses)}"
            )
        parts = (ctypes.c_uint64 * self.ranks_here)(*addresses)
        number = self.library.causeway_window_register(self.pointer, in_host, parts, nbytes)
        return Window(self, self.must(number))

    def check(self):
        """Raises CommError when the team has ended, which says why."""
        self.must(self.library.causeway_team_check(self.pointer))

    def abort(self):
        """Ends all waits of its kernels."""
        self.library.causeway_team_abort(self.pointer)

    def close(self):
        """Ends it, when its kernels have ended."""
        if self.pointer:
            self.library.causeway_team_destroy(self.pointer)
            self.pointer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def load(path):
    """The library, with the types of its functions."""
    library = causeway_comm.load(path)
    team, rank, number, text = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p
    status, options = ctypes.c_int, ctypes.POINTER(Options)
    types = {
        "team_create": (team, rank, ctypes.POINTER(ctypes.c_int), options),
        "team_join": (team, text, rank, rank, options),
        "team_destroy": (None, team),
        "team_handle": (status, team, rank, text),
        "team_check": (status, team),
        "team_abort": (None, team),
        "window_create": (status, team, rank, number),
        "window_register": (status, team, rank, ctypes.POINTER(number), number),
        "window_free": (status, team, rank),
        "window_handle": (status, team, rank, rank, text),
    }
    for name, (result, *arguments) in types.items():
        function = getattr(library, f"causeway_{name}")
        function.restype, function.argtypes = result, arguments
    return library
