"""Clocks that never wait for the device, and the window of an epoch between two barriers."""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray

perf_counter_ns = time.perf_counter_ns
"""The host's monotonic clock in nanoseconds."""

Devices = tuple[torch.device, ...]
Seconds = NDArray[np.float64]
Stamp = Any
"""A point in time: nanoseconds of the host's clock, or an event in the device's current stream."""

CYCLES_PER_S = 2e9
"""Clock of the fastest GPUs."""


class HostClock:
    """The host's monotonic clock, for work that the host itself computes."""

    runs_behind_host = False
    stamp = staticmethod(perf_counter_ns)

    def prepare(self, stamps: int) -> None:
        """Do nothing: the host's clock needs no preparation."""

    def join_devices(self) -> None:
        """Do nothing: the host itself computes."""

    def synchronize(self) -> None:
        """Do nothing: the CPU has no queue."""

    def seconds(self, first: int, second: int) -> float:
        """Return the seconds between two stamps."""
        return (second - first) / 1e9

    def occupy(self, seconds: float) -> bool:
        """Return False: what the host is told to do, it does at once."""
        del seconds
        return False

    def is_passed(self, stamp: int) -> bool:
        """Return True: a stamp of the host is in the past."""
        del stamp
        return True


class DeviceClock:
    """Events of the devices, created before an epoch, read after it, used again in the next one.

    The device passes an event once it has finished all work queued before it, so the time between
    two events is the time that the device needed for the work between them. On CUDA the resolution
    is about 0.5 microseconds (reference of cudaEventElapsedTime).
    """

    runs_behind_host = True

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._module = torch.get_device_module(devices[0])
        self._events: list[torch.Event] = []
        self._taken = 0
        self._ends = {device: self._module.Event() for device in devices[1:]}

    def prepare(self, stamps: int) -> None:
        """Create events until there are as many, and make all of them available again.

        torch creates the device's event at the first record, so that is done here, outside of the
        measured loop.
        """
        while len(self._events) < stamps:
            self._add_event().record()
        self._taken = 0

    def _add_event(self) -> torch.Event:
        event: torch.Event = self._module.Event(enable_timing=True)
        self._events.append(event)
        return event

    def stamp(self) -> torch.Event:
        """Record the next event in the current stream of the current device."""
        is_left = self._taken < len(self._events)
        event = self._events[self._taken] if is_left else self._add_event()
        self._taken += 1
        event.record()
        return event

    def join_devices(self) -> None:
        """Let the first device's stream wait for the present streams of the others."""
        first = self._module.current_stream(self._devices[0])
        for device, end in self._ends.items():
            end.record(self._module.current_stream(device))
            first.wait_event(end)

    def synchronize(self) -> None:
        """Wait until every device has finished its queued work, in all of its streams."""
        synchronize(self._devices)

    def seconds(self, first: torch.Event, second: torch.Event) -> float:
        """Return the seconds between two events; the device must have passed both."""
        return float(first.elapsed_time(second)) / 1e3

    def occupy(self, seconds: float) -> bool:
        """Let the current stream count clock cycles: about this long at 2 GHz, else longer."""
        self._module._sleep(round(seconds * CYCLES_PER_S))
        return True

    def is_passed(self, stamp: torch.Event) -> bool:
        """Return whether the device has finished all work queued before the event."""
        return bool(stamp.query())


Clock = HostClock | DeviceClock
"""A source of stamps. Taking a stamp never waits for the device.

A strategy has one clock for all of its epochs (`ParallelStrategy.clock`). `prepare` makes ready for
a number of stamps; those taken before must not be read any more, and `seconds` only after
`synchronize`. `runs_behind_host` says that the host queues work, which a device does later.
"""


def clock_for(devices: Devices, stamps: int = 0) -> Clock:
    """Return a clock for these devices, ready for a number of stamps."""
    clock: Clock = HostClock() if devices[0].type == "cpu" else DeviceClock(devices)
    clock.prepare(stamps)
    return clock


class Window:
    """One epoch: barrier, synchronize, t0 … synchronize, t1, barrier.

    `epoch_s` is measured by this rank's own host clock; clocks of two nodes are never compared.
    `start` and `end` are stamps of the same two points on the devices' clock. After a failure the
    barrier is left out, since the other ranks wait for this one elsewhere; `ranks_are_alone` if
    they do not, because nothing is exchanged inside the window.
    """

    def __init__(
        self,
        clock: Clock,
        barrier: Callable[[], None],
        *,
        ranks_are_alone: bool = False,
    ) -> None:
        self._clock = clock
        self._barrier = barrier
        self._ranks_are_alone = ranks_are_alone
        self._t0 = self._t1 = 0
        self.start: Stamp = None
        self.end: Stamp = None

    def __enter__(self) -> Self:
        self._barrier()
        self._clock.synchronize()
        self._t0 = perf_counter_ns()
        self.start = self._clock.stamp()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure:
            if self._ranks_are_alone:
                self._barrier()
            return
        self.end = self._clock.stamp()
        self._clock.synchronize()
        self._t1 = perf_counter_ns()
        self._barrier()

    def end_at(self, stamp: Stamp) -> None:
        """End at a stamp that was taken before, instead of where `with` ended or would end."""
        self._clock.synchronize()
        self.end = stamp
        self._t1 = self._t0 + round(1e9 * self._clock.seconds(self.start, stamp))

    @property
    def epoch_s(self) -> float:
        """Seconds between the two synchronization points."""
        return (self._t1 - self._t0) / 1e9

    @property
    def started_s(self) -> float:
        """The first synchronization point on the monotonic clock, which a node's processes share.

        On Linux perf_counter is that clock (CLOCK_MONOTONIC).
        """
        return self._t0 / 1e9


class IterationTimes(NamedTuple):
    """Times of one epoch on one rank, in seconds; arrays have one value per iteration.

    `step_s` is from the end of the previous iteration to the end of this one. `stall_s` is the part
    of it in which the device waited for its batch; `batch_stall_s` has one value per batch where an
    iteration has several. `last_stall_s` is the time after the last
    iteration, in which the loader reports that there are no more batches.
    """

    step_s: Seconds
    stall_s: Seconds
    last_stall_s: float
    batch_stall_s: Seconds | None = None


def read_times(
    clock: Clock, window: Window, marks: Sequence[Sequence[Stamp]]
) -> IterationTimes:
    """Return step and stall times from the first (batch) and last (end) mark of each iteration."""
    ends = [window.start, *(iteration[-1] for iteration in marks)]
    stall_s = [
        clock.seconds(previous_end, iteration[0])
        for previous_end, iteration in zip(ends, marks, strict=False)
    ]
    step_s = [clock.seconds(previous_end, end) for previous_end, end in pairwise(ends)]
    return IterationTimes(
        np.array(step_s),
        np.array(stall_s),
        last_stall_s=clock.seconds(ends[-1], window.end),
    )


def synchronize(devices: Devices) -> None:
    """Wait until every device has finished its queued work; the CPU has no queue."""
    for device in devices:
        torch.get_device_module(device).synchronize(device)
