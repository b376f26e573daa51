"""The exchange of a script by torch's profiler: under FSDP, or with a hook of the script's own."""

import os
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import torch
from torch._C._autograd import _enable_record_function
from torch.distributed.distributed_c10d import _world
from torch.profiler import record_function

from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.worker.instruments.collectives import Collective, Ledger, Wait
from hpml_jobs.worker.instruments.phases import EpochPhases, Gaps, split_phases
from hpml_jobs.worker.instruments.recorder import IterationMarks
from hpml_jobs.worker.instruments.timing import Clock, HostClock, Stamp, Window
from hpml_jobs.worker.instruments.trace import (
    MARK,
    NO_DEVICE_EVENTS,
    TraceEvent,
    content_of,
    read_trace,
    record_numbers,
    start_profiler,
)

MOST_BATCHES = 50
"""Batches of a window that is profiled: a thousand operators take 3 MB of memory."""

MOST_MARKS, MARK_S = 20, 100e-6
"""How often the mark of a window is begun until that takes less than so many seconds."""

LEAST_WAIT_S = 20e-6
"""Seconds between two kernels or operators in which they wait for a message that is under way:
some microseconds pass anyway.
"""


class Trace:
    """The profiler over a window, begun where this is made.

    The exception with which the driver refuses the profiler is raised there. `cut` has the reason
    why the trace cannot be read: it was ended before the window.
    """

    def __init__(self, clock: Clock, device: torch.device, processes: int) -> None:
        self.cut = ""
        self._clock = clock
        self._on_cuda = device.type == "cuda"
        # Of an all-gather gloo reports what one rank sends, but not the ranks of its group.
        self._processes = processes if len(_world.pg_map) == 1 else 0
        self._thread = threading.get_ident()
        variables = dict(os.environ)
        self._profiler = start_profiler(device)
        self._variables = os.environ.keys() - variables.keys()
        if not self._on_cuda:  # CUPTI may read them at its end
            self._remove_variables()
        self._is_on = True
        os.register_at_fork(after_in_child=self._forget)
        self._begin_mark()

    def _begin_mark(self) -> None:
        """Begin the mark in the trace and take a stamp: again where the process lost its CPU."""
        for left in reversed(range(MOST_MARKS)):
            self._clock.synchronize()  # so that both are of one point
            self._mark = record_function(MARK)
            began = time.perf_counter()
            self._mark.__enter__()  # type: ignore[no-untyped-call]  # torch does not annotate it
            self._zero: Stamp = self._clock.stamp()
            if time.perf_counter() - began < MARK_S or not left:
                return
            self._mark.__exit__(None, None, None)

    def _forget(self) -> None:
        """Record nothing in a worker of a loader."""
        if self._is_on:
            _enable_record_function(False)

    def _remove_variables(self) -> None:
        """Take from the environment of the script what is set for the profiler."""
        while self._variables:
            os.environ.pop(self._variables.pop(), None)

    def stop(self, reason: str = "") -> None:
        """Stop the profiler, if it is on; with a reason the trace is not to be read."""
        self.cut = self.cut or reason
        if self._is_on and threading.get_ident() == self._thread:
            self._is_on = False
            self._mark.__exit__(None, None, None)
            self._profiler.stop()
            self._remove_variables()
            record_numbers(is_on=True)

    def split(
        self,
        window: Window,
        marks: Sequence[IterationMarks],
        accumulate: int,
        *,
        is_sharded: bool,
        gaps: Sequence[Gaps] = (),
    ) -> tuple[EpochPhases, Ledger]:
        """Return the phases of a window that is over, and its collectives, by the host's clock.

        `marks` and `gaps` are those of micro-steps, `accumulate` of which are an iteration.
        Communication is exposed while nothing computes. If the size of a message is not known, none
        is returned.

        Raises:
            OSError, RuntimeError, ValueError: the trace cannot be read, has no messages, or unknown
                ones.
        """
        self.stop()
        if self.cut or self._is_on:
            raise RuntimeError(self.cut or "it was stopped in another thread")
        of_host = Window(HostClock(), lambda: None)
        of_host.start, of_host.end = (
            self._on_host(window.start),
            self._on_host(window.end),
        )
        steps = [IterationMarks(*map(self._on_host, step)) for step in marks]
        messages, computation = self._read(of_host)
        collectives = [
            _collective(event, steps, is_sharded=is_sharded) for event in messages
        ]
        ledger = Ledger(HostClock())
        ledger.collectives = collectives
        ledger.waits = _waits_by_step(
            waits(messages, computation), of_host.start, steps
        )
        ledger.knows_waits = True
        phases = split_phases(
            of_host,
            steps,
            ledger,
            overlaps=True,
            accumulate=accumulate,
            gaps=[Gaps(*map(self._pairs_on_host, gap)) for gap in gaps],
        )
        if any(content_of(event) is None for event in messages):
            communication = msgspec.structs.replace(phases.communication, messages=())
            phases = phases._replace(communication=communication)
        return phases, ledger

    def _read(self, window: Window) -> tuple[list[TraceEvent], list[TraceEvent]]:
        """Return the messages of a window in order, and what computes in it."""
        folder, tempfile.tempdir = tempfile.tempdir, None
        traced = read_trace(self._profiler, self._processes)
        tempfile.tempdir = (
            folder  # the script may choose another one before it needs one
        )
        events = [
            event
            for event in traced
            if 1e9 * event.end_s > window.start and 1e9 * event.start_s < window.end
        ]
        messages = [
            e for e in events if e.is_collective and e.on_device == self._on_cuda
        ]
        computation = [e for e in events if e.computes(on_cuda=self._on_cuda)]
        if self._on_cuda and not messages and not computation:
            raise ValueError(NO_DEVICE_EVENTS)
        if not messages:
            backend = "NCCL" if self._on_cuda else "gloo"
            raise ValueError(f"no message of {backend}")
        return sorted(messages, key=lambda event: event.start_s), computation

    def _pairs_on_host(
        self, pairs: Sequence[tuple[Stamp, Stamp]]
    ) -> list[tuple[float, float]]:
        return [(self._on_host(first), self._on_host(last)) for first, last in pairs]

    def _on_host(self, stamp: Stamp) -> float:
        """Return nanoseconds since the mark."""
        return 1e9 * self._clock.seconds(self._zero, stamp)


def _collective(
    event: TraceEvent, steps: Sequence[IterationMarks], *, is_sharded: bool
) -> Collective:
    """Return a message of the trace, of the micro-step in which it starts."""
    if event.kind is None:
        raise ValueError(f"unknown collective {event.name}")
    start_ns = 1e9 * event.start_s
    place = bisect_left([step.stepped for step in steps], start_ns)
    number = min(place, len(steps) - 1)
    content = content_of(event)
    return Collective(
        iteration=number,
        kind=event.kind,
        purpose=_purpose(event.kind, start_ns, steps[number], is_sharded=is_sharded),
        dtype=content.name if content else "",
        elements=content.elements if content else 0,
        bytes=content.bytes if content else 0,
        start=start_ns,
        end=1e9 * event.end_s,
    )


def _waits_by_step(
    waits_s: Sequence[tuple[float, float]],
    start: float,
    steps: Sequence[IterationMarks],
) -> list[Wait]:
    """Return the waits of each micro-step; one that is in two of them is in both."""
    ends = [start, *(step.stepped for step in steps)]
    return [
        Wait(number, 1e9 * first_s, 1e9 * last_s)
        for number, (begin, end) in enumerate(pairwise(ends))
        for first_s, last_s in waits_s
        if 1e9 * first_s < end and 1e9 * last_s > begin
    ]


def _purpose(
    kind: CollectiveKind, start: float, step: IterationMarks, *, is_sharded: bool
) -> Purpose:
    """Return what a message carries, by its kind and the phase in which it starts."""
    if kind is CollectiveKind.ALL_GATHER and (is_sharded or start >= step.exchanged):
        return Purpose.PARAMETERS
    if kind is CollectiveKind.BROADCAST:
        return Purpose.PARAMETERS if start >= step.exchanged else Purpose.BUFFERS
    return (
        Purpose.GRADIENTS if step.forward <= start < step.exchanged else Purpose.OUTPUTS
    )


def waits(
    messages: Iterable[TraceEvent], computation: Iterable[TraceEvent]
) -> list[tuple[float, float]]:
    """Return when a message is under way and nothing computes, in seconds."""
    changes = []
    for of_computation, events in enumerate((messages, computation)):
        for event in events:
            changes.append((event.start_s, of_computation, 1))
            changes.append((event.end_s, of_computation, -1))
    result: list[tuple[float, float]] = []
    under_way = [0, 0]
    since_s, is_between = None, False
    for at_s, of_computation, change in sorted(changes):
        under_way[of_computation] += change
        is_wait = under_way[0] > 0 and not under_way[1]
        if is_wait and since_s is None:
            since_s, is_between = at_s, bool(of_computation)
        elif since_s is not None and not is_wait:
            is_pause = is_between and of_computation and at_s - since_s < LEAST_WAIT_S
            if not is_pause:
                result.append((since_s, at_s))
            since_s = None
    return result
