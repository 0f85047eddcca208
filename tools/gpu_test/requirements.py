"""What the metrics of the yardstick must be, for a client and a server on one machine, over loopback TCP and
over shared memory."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

# Time to the first tensor without the time of `import torch`, in milliseconds.
START_WITHOUT_IMPORT = "start_to_first_tensor_less_import"


@dataclass
class Requirement:
    """One metric, and when it is good enough."""

    metric: str
    text: str
    holds: Callable[[list[float], list[float]], bool]  # of all native and all remote values
    needs_native: bool = True

    def verdict(self, native, remote):
        """met, MISSED, or unknown where there is nothing to compare with."""
        if not remote or (self.needs_native and not native):
            return "unknown"
        return "met" if self.holds(native, remote) else "MISSED"


def at_most(metric, limit, unit="us"):
    """A bound that needs no native metric."""
    text = f"<= {limit:g} {unit}"
    return Requirement(metric, text, lambda _, remote: median(remote) <= limit, needs_native=False)


def at_most_more(metric, more, unit="us"):
    """So much more than natively."""
    text = f"<= native + {more:g} {unit}"
    return Requirement(metric, text, lambda native, remote: median(remote) <= median(native) + more)


def at_most_times(metric, factor):
    """So many times the native metric, of what is to be small."""
    text = f"<= {factor:g} x native"
    return Requirement(metric, text, lambda native, remote: median(remote) <= factor * median(native))


def at_least_times(metric, factor):
    """So many times the native metric, of what is to be large."""
    text = f">= {factor:g} x native"
    return Requirement(metric, text, lambda native, remote: median(remote) >= factor * median(native))


def always_true(metric):
    """A verdict of the program itself, in every run."""
    return Requirement(metric, "1", lambda _, remote: min(remote) == 1, needs_native=False)


def within_spread(metric):
    """The middle of the remote values lies where native values lie."""
    text = "within native's spread"
    return Requirement(metric, text, lambda native, remote: min(native) <= median(remote) <= max(native))


RIGHT = [
    always_true("all_correct"),
    always_true("all_parts_ran"),
    within_spread("gpt_train_first_loss"),
    within_spread("gpt_train_last_loss"),
    within_spread("conv_train_first_loss"),
    within_spread("conv_train_last_loss"),
    within_spread("gpt_generate_checksum"),
    within_spread("gpt_generate_item_checksum"),
]

LOCAL_CALLS = [
    at_most("launch_empty_1000_call", 0.5),
    at_most("launch_empty_1000_done", 4.0),
    at_most("devicesync_idle", 0.5),
    at_most("streamquery_idle", 0.5),
    at_most("event_query_done_call", 0.5),
    at_most("malloc_free_1MiB", 3),
    at_most("mallocasync_freeasync_1MiB", 0.7),
    at_most("event_create_destroy", 0.3),
    at_most("stream_create_destroy", 1),
    at_least_times("gpt_generate", 0.95),
    at_least_times("gpt_generate_item", 0.95),
    at_most_times(START_WITHOUT_IMPORT, 1.3),
]

# By the module that joins client and server. Copies are the business of the part `bench`.
BY_MODULE = {
    "tcp": [
        *RIGHT,
        *LOCAL_CALLS,
        at_most_more("launch_devicesync", 20),
        at_most_more("launch_record_query_until_done", 20),
        at_most_more("event_record_synchronize", 20),
        at_most_times("gpt_train_step", 1.05),
        at_most_times("conv_train_step", 1.10),
    ],
    "shm": [
        *RIGHT,
        *LOCAL_CALLS,
        at_most_more("launch_devicesync", 3),
        at_most_times("gpt_train_step", 1.02),
        at_most_times("conv_train_step", 1.02),
    ],
}
