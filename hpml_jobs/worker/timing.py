"""The clock of an epoch: a window between two synchronisation points, two stamps per iteration."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray

Devices = tuple[torch.device, ...]
Seconds = NDArray[np.float64]


class Times(NamedTuple):
    """What the clock of one epoch showed on one rank; seconds.

    `step_s` and `stall_s` are arrays over iterations: end of one step to the end of the next, and
    the part of it in which the device waited for its batch. `stall_total_s` also holds what came
    after the last step: the loader saying that there is no more.
    """

    epoch_s: float
    stall_total_s: float
    step_s: Seconds
    stall_s: Seconds


class Stamps(Protocol):
    """Marks in time: epoch start, then `batch there`, `step done` per iteration, epoch end."""

    def mark(self) -> None:
        """This moment, in the order of the device's work; never waits for the device."""

    def gaps(self) -> Seconds:
        """Seconds from each mark to the next; call it after the device was synchronised."""


class HostStamps:
    """Marks of the host's clock: right where the host itself computes."""

    def __init__(self) -> None:
        self._ns: list[int] = []

    def mark(self) -> None:
        """This moment."""
        self._ns.append(time.perf_counter_ns())

    def gaps(self) -> Seconds:
        """Seconds from each mark to the next."""
        return np.array([then - first for first, then in pairwise(self._ns)]) / 1e9


class CudaStamps:
    """Marks in the device's own stream, made beforehand and read after the epoch.

    The device passes a mark when it has done all work before it: from `step done` to `batch there`
    it had nothing to do, whatever the host did meanwhile.
    """

    def __init__(self, iterations: int) -> None:
        self._events = [
            torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            for _ in range(2 * iterations + 2)
        ]
        self._used = 0

    def mark(self) -> None:
        """Put the next event into the current stream of the current device."""
        self._events[self._used].record()
        self._used += 1

    def gaps(self) -> Seconds:
        """Seconds from each mark to the next (resolution about 0.5 microseconds)."""
        events = self._events[: self._used]
        return np.array([first.elapsed_time(then) for first, then in pairwise(events)]) / 1e3


class EpochClock:
    """The window of one epoch: barrier, synchronise, t0 … synchronise, t1 of this rank, barrier.

    Durations are of this rank's own clock; clocks of two nodes are never compared.
    """

    def __init__(self, devices: Devices, iterations: int, barrier: Callable[[], None]) -> None:
        self._devices = devices
        self._barrier = barrier
        on_cuda = devices[0].type == "cuda"
        self._stamps: Stamps = CudaStamps(iterations) if on_cuda else HostStamps()
        self.mark = self._stamps.mark
        self._t0 = self._t1 = 0

    def __enter__(self) -> Self:
        self._barrier()
        synchronise(self._devices)
        self._t0 = time.perf_counter_ns()
        self.mark()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure:
            return  # the other ranks will not come to the barrier either
        self.mark()
        synchronise(self._devices)
        self._t1 = time.perf_counter_ns()
        self._barrier()

    def read(self) -> Times:
        """The epoch's times, once it is over."""
        epoch_s = (self._t1 - self._t0) / 1e9
        gaps = self._stamps.gaps()
        stalls, work = gaps[0::2], gaps[1::2]
        stall_s = stalls[:-1]
        # Device and host clocks differ in the last digits: the part never exceeds the whole.
        stall_total_s = min(float(stalls.sum()), epoch_s)
        return Times(epoch_s, stall_total_s, step_s=stall_s + work, stall_s=stall_s)


def synchronise(devices: Devices) -> None:
    """Wait until every device has done its work; the host itself needs no waiting for."""
    for device in devices:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
