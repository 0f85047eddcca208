"""What is a part given: ways to run a command, and what of it is wanted?"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_test.bundle import CAUSEWAY
from gpu_test.commands import run
from gpu_test.report import Report
from gpu_test.server import Server

# Transports that two ends on one machine can use.
MODULES = ("tcp", "shm")


@dataclass
class Session:
    """What a part is given."""

    report: Report
    server: Server
    native: bool  # whether this machine has a GPU of its own to compare with
    quick: bool  # fewer repetitions, for a short look
    chosen: list[str] = field(default_factory=list)  # words of which a title must contain one; empty for all
    modules: tuple[str, ...] = (
        MODULES  # what is measured over each transport is measured over these
    )
    limit_s: float = 560  # a part that repeats what it measures does so for as long as this
    interrupted: Callable[[], bool] = lambda: False  # whether it is to end at once, and to say what it has

    def is_selected(self, title):
        """Whether something with this title was asked for."""
        return not self.chosen or any(word in title for word in self.chosen)

    def paths(self):
        """Pairs of a name and the function that makes a command run that way."""
        return [*self.native_way(), ("remote", self.server.command)]

    def paths_by_module(self):
        """As `ways`, with one remote way for each module, named by it."""
        remote = ((via, functools.partial(self.server.command, via=via)) for via in self.modules)
        return [*self.native_way(), *remote]

    def native_way(self):
        """The way that uses this machine's own GPU, if there is one."""
        return [("native", list)] if self.native else []

    def gpus(self):
        """How many GPUs this machine has."""
        return len(run(["nvidia-smi", "-L"], 30).output.splitlines()) if self.native else 0

    @contextlib.contextmanager
    def two_servers(self):
        """Two more servers on this machine, with a GPU each where there are two; else both have the same one.
        Gives their addresses."""
        two_gpus = self.gpus() > 1
        servers = []
        try:
            for number in range(2):
                log = self.report.folder / f"gpu-server-{number}.log"
                own = {"CUDA_VISIBLE_DEVICES": str(number)} if two_gpus else {}
                servers.append(Server(CAUSEWAY, self.server.gpu, log, own))
            yield [server.address for server in servers]
        finally:
            for server in servers:
                server.stop()

    def report_deaths(self):
        """A failure if the server had to be restarted."""
        if self.server.deaths:
            self.report.failed("server", f"it died {self.server.deaths} times and was restarted")
