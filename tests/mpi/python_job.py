"""A job whose ranks are processes of this one, each with a pipe to each other one, and graphs of what they call."""

import contextlib
import ctypes
import multiprocessing


def all_ranks_end_well(ranks, run, *arguments):
    """Whether `run(rank, pipes, *arguments)` ends without an error in a process for each rank."""
    start = multiprocessing.get_context("spawn")
    pipes = [[None] * ranks for _ in range(ranks)]
    for one in range(ranks):
        for other in range(one):
            pipes[one][other], pipes[other][one] = start.Pipe()
    processes = [
        start.Process(target=run, args=(rank, Pipes(ends), *arguments)) for rank, ends in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return all(process.exitcode == 0 for process in processes)


class Pipes:
    """A rank's way to the others."""

    def __init__(self, ends):
        self.ends = ends

    def __len__(self):
        """How many ranks there are, this one among them."""
        return len(self.ends)

    def exchange(self, words):
        """A word for each rank, for one from each rank: as a group of causeway_comm wants it."""
        for end, word in zip(self.ends, words, strict=True):
            if end is not None:
                end.send(word)
        return [words[at] if end is None else end.recv() for at, end in enumerate(self.ends)]

    def meet(self):
        """Waits for all ranks."""
        self.exchange([b""] * len(self))


@contextlib.contextmanager
def capturing(gpu, stream):
    """What is called within becomes a graph, whose executable one is there afterwards."""
    graph, launchable = ctypes.c_void_p(), ctypes.c_void_p()
    gpu.call("cuStreamBeginCapture_v2", stream, 0)
    yield launchable
    gpu.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    gpu.call("cuGraphInstantiateWithFlags", ctypes.byref(launchable), graph, ctypes.c_ulonglong(0))
    gpu.call("cuGraphDestroy", graph)
