"""What the figures of the yardstick must be, for a client and a server on one machine, over loopback TCP and over shared memory."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

# Time to the first tensor without the time of `import torch`, in milliseconds.
START_WITHOUT_IMPORT = "start_to_first_tensor_less_import"


@dataclass
class Requirement:
    """One figure, and when it is good enough."""

    figure: str
    text: str
    holds: Callable[[list[float], list[float]], bool]  # of all native and all remote values
    needs_native: bool = True

    def verdict(self, native, remote):
        """met, MISSED, or unknown where there is nothing to compare with."""
        if not remote or (self.needs_native and not native):
            return "unknown"
        return "met" if self.holds(native, remote) else "MISSED"


def at_most(figure, limit, unit="us"):
    return Requirement(figure, f"<= {limit:g} {unit}", lambda _, remote: statistics.median(remote) <= limit, needs_native=False)


def at_most_more(figure, more, unit="us"):
    return Requirement(
        figure,
        f"<= native + {more:g} {unit}",
        lambda native, remote: statistics.median(remote) <= statistics.median(native) + more,
    )


def at_most_times(figure, factor):
    return Requirement(
        figure, f"<= {factor:g} x native", lambda native, remote: statistics.median(remote) <= factor * statistics.median(native)
    )


def at_least_times(figure, factor):
    return Requirement(
        figure, f">= {factor:g} x native", lambda native, remote: statistics.median(remote) >= factor * statistics.median(native)
    )


def always_true(figure):
    return Requirement(figure, "1", lambda _, remote: min(remote) == 1, needs_native=False)


def within_spread(figure):
    """The middle of the remote values lies where native values lie."""
    return Requirement(
        figure, "within native's spread", lambda native, remote: min(native) <= statistics.median(remote) <= max(native)
    )


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
