"""The clock of an epoch: a window between two synchronisation points, stamps, and its phases."""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

Devices = tuple[torch.device, ...]
Seconds = NDArray[np.float64]
Stamp = Any
"""A moment: nanoseconds of the host's clock, or an event in the device's own stream."""


class Clock(Protocol):
    """Where stamps come from. A stamp never waits for the device."""

    def stamp(self) -> Stamp:
        """This moment, in the order of the device's work."""

    def seconds(self, first: Stamp, then: Stamp) -> float:
        """Seconds between two stamps; call it after the device was synchronised."""


class HostClock:
    """The host's monotonic clock: right where the host itself computes."""

    stamp = staticmethod(time.perf_counter_ns)

    def seconds(self, first: int, then: int) -> float:
        """Seconds between two stamps."""
        return (then - first) / 1e9


class CudaClock:
    """Events in the device's own stream, made beforehand and read after the epoch.

    The device passes an event when it has done all work before it: between two of them it had
    that work to do, whatever the host did meanwhile. Resolution is about 0.5 microseconds.
    """

    def __init__(self, events: int) -> None:
        self._ready = [self._event() for _ in range(events)]

    @staticmethod
    def _event() -> torch.cuda.Event:
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def stamp(self) -> torch.cuda.Event:
        """The next event, in the current stream of the current device."""
        event = self._ready.pop() if self._ready else self._event()
        event.record()
        return event

    def seconds(self, first: torch.cuda.Event, then: torch.cuda.Event) -> float:
        """Seconds between two events; the device must have passed both."""
        return float(first.elapsed_time(then)) / 1e3


def clock_for(devices: Devices, events: int) -> Clock:
    """The clock of a rank's devices, with so many events made beforehand."""
    return CudaClock(events) if devices[0].type == "cuda" else HostClock()


class Window:
    """One epoch: barrier, synchronise, t0 … synchronise, t1 of this rank, barrier.

    `epoch_s` is of this rank's own host clock; clocks of two nodes are never compared. `start` and
    `end` are stamps of the same two moments on the devices' clock.
    """

    def __init__(self, devices: Devices, clock: Clock, barrier: Callable[[], None]) -> None:
        self._devices = devices
        self._clock = clock
        self._barrier = barrier
        self._t0 = self._t1 = 0
        self.start: Stamp = None
        self.end: Stamp = None

    def __enter__(self) -> Self:
        self._barrier()
        synchronise(self._devices)
        self._t0 = time.perf_counter_ns()
        self.start = self._clock.stamp()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure:
            return  # the other ranks will not come to the barrier either
        self.end = self._clock.stamp()
        synchronise(self._devices)
        self._t1 = time.perf_counter_ns()
        self._barrier()

    @property
    def epoch_s(self) -> float:
        """Seconds between the two synchronisation points."""
        return (self._t1 - self._t0) / 1e9


class Times(NamedTuple):
    """What the stamps of one epoch showed on one rank; seconds, arrays over iterations.

    `step_s` is from the end of one step to the end of the next, `stall_s` the part of it in which
    the device waited for its batch. `last_stall_s` came after the last step: the loader saying
    that there is no more.
    """

    step_s: Seconds
    stall_s: Seconds
    last_stall_s: float


def read_times(clock: Clock, window: Window, moments: Sequence[Sequence[Stamp]]) -> Times:
    """Steps and stalls from each iteration's moments: `batch there` first, `step done` last."""
    ends = [window.start, *(those[-1] for those in moments)]
    stall_s = [
        clock.seconds(before, those[0]) for before, those in zip(ends, moments, strict=False)
    ]
    step_s = [clock.seconds(before, end) for before, end in pairwise(ends)]
    return Times(
        np.array(step_s), np.array(stall_s), last_stall_s=clock.seconds(ends[-1], window.end)
    )


def synchronise(devices: Devices) -> None:
    """Wait until every device has done its work; the host itself needs no waiting for."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
