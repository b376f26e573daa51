"""The exchange of a script by torch's profiler: under FSDP, or with a hook of the script's own."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import torch
from torch._C._autograd import _profiler_enabled

from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.worker.instruments.collectives import Collective, Ledger, Wait
from hpml_jobs.worker.instruments.phases import EpochPhases, Interval, split_phases
from hpml_jobs.worker.instruments.recorder import IterationMarks
from hpml_jobs.worker.instruments.timing import Clock, HostClock, Stamp, Window
from hpml_jobs.worker.instruments.trace import (
    NO_DEVICE_EVENTS,
    Content,
    Event,
    content_of,
    measured_window,
    read_trace,
    start_profiler,
)

MOST_ITERATIONS = 50
"""Iterations of a window that is profiled: a thousand operators take 3 MB of memory."""

LEAST_WAIT_S = 20e-6
"""Seconds without computation that are a wait for a message that is under way: between two kernels,
or two operators, some microseconds pass anyway."""


class Trace:
    """The profiler over a window, begun where this is made.

    The exception with which the driver refuses the profiler is raised there.
    """

    def __init__(self, clock: Clock, device: torch.device, processes: int) -> None:
        if _profiler_enabled():  # which another one would cancel
            raise RuntimeError("the script has one on")
        self._clock = clock
        self._on_cuda = device.type == "cuda"
        self._processes = processes
        self._profiler = start_profiler(device)
        self._is_on = True
        clock.synchronize()  # so that the stamp, and the mark in the trace, are of one point
        self._mark = measured_window((device,))
        self._mark.__enter__()
        self._zero: Stamp = clock.stamp()

    def stop(self) -> None:
        """Stop the profiler, if it is on."""
        if self._is_on:
            self._is_on = False
            self._mark.__exit__(None, None, None)
            self._profiler.stop()

    def split(
        self, window: Window, marks: Sequence[IterationMarks], accumulate: int, *, is_sharded: bool
    ) -> tuple[EpochPhases, Ledger]:
        """Return the phases of a window that is over, and its collectives, by the host's clock.

        `marks` are those of micro-steps, `accumulate` of which are an iteration. Communication is
        exposed while nothing computes. If the size of a message is not known, none is returned.

        Raises:
            OSError, RuntimeError, ValueError: the trace cannot be read, has no messages, or unknown
                ones.
        """
        self.stop()
        events = read_trace(self._profiler, self._processes)
        messages = [e for e in events if e.is_collective and e.on_device == self._on_cuda]
        if not messages:
            raise ValueError(NO_DEVICE_EVENTS if self._on_cuda else "no collective of gloo")
        if unknown := {event.name for event in messages if event.kind is None}:
            raise ValueError(f"no known collective: {', '.join(sorted(unknown))}")
        of_host = Window(HostClock(), lambda: None)
        of_host.start, of_host.end = self._on_host(window.start), self._on_host(window.end)
        steps = [IterationMarks(*map(self._on_host, step)) for step in marks]
        ledger = Ledger(HostClock())
        ends = [step.stepped for step in steps]
        for event in sorted(messages, key=lambda event: event.start_s):
            start, end, kind = 1e9 * event.start_s, 1e9 * event.end_s, event.kind
            if kind and end > of_host.start and start < of_host.end:
                number = min(bisect_left(ends, start), len(ends) - 1)
                in_forward = start < steps[number].forward
                purpose = _purpose(kind, in_forward=in_forward, is_sharded=is_sharded)
                size = _size(content_of(event))
                ledger.collectives.append(Collective(number, kind, purpose, *size, start, end))
        waiting = waits(messages, [e for e in events if e.computes(on_cuda=self._on_cuda)])
        for number, (start, end) in enumerate(pairwise([of_host.start, *ends])):
            # the empty one says that there are waits: `split_phases` then asks for no others
            inside = [each for each in waiting if each[0] < end and each[1] > start]
            ledger.waits += [Wait(number, *wait) for wait in (*inside, (end, end))]
        phases = split_phases(of_host, steps, ledger, overlaps=True, accumulate=accumulate)
        if None in map(content_of, messages):
            talk = msgspec.structs.replace(phases.communication, messages=())
            phases = phases._replace(communication=talk)
        return phases, ledger

    def _on_host(self, stamp: Stamp) -> float:
        """Return nanoseconds since the mark."""
        return 1e9 * self._clock.seconds(self._zero, stamp)


def _purpose(kind: CollectiveKind, *, in_forward: bool, is_sharded: bool) -> Purpose:
    """Return what a message has, by when it is sent."""
    if kind is CollectiveKind.BROADCAST:
        return Purpose.BUFFERS
    if kind is CollectiveKind.ALL_GATHER and is_sharded:
        return Purpose.PARAMETERS
    return Purpose.OUTPUTS if in_forward else Purpose.GRADIENTS


def _size(content: Content | None) -> tuple[str, int, int]:
    """Return dtype, elements and bytes of a message; zeros where they are not known."""
    if content is None:
        return "", 0, 0
    return str(content.dtype).removeprefix("torch."), content.elements, content.bytes


def waits(messages: Iterable[Event], computation: Iterable[Event]) -> list[Interval]:
    """Return when a message is under way and nothing computes, in nanoseconds."""
    changes = [
        (at, of, change)
        for of, events in enumerate((messages, computation))
        for event in events
        for at, change in ((event.start_s, 1), (event.end_s, -1))
    ]
    under_way, since, found = [0, 0], None, []
    for at_s, of, change in sorted(changes):
        under_way[of] += change
        is_wait = under_way[0] > 0 and not under_way[1]
        if is_wait and since is None:
            since = at_s
        elif since is not None and not is_wait:
            found += [(1e9 * since, 1e9 * at_s)] if at_s - since >= LEAST_WAIT_S else []
            since = None
    return found
