"""Phases of an instrumented epoch from its stamps, and its communication from the collectives."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hpml_jobs.core.formulas import union_s
from hpml_jobs.core.measurements import Communication, Phases, Purpose
from hpml_jobs.worker.instruments.collectives import (
    Collective,
    Ledger,
    ReplicaWait,
    Wait,
    aggregate,
)
from hpml_jobs.worker.instruments.recorder import IterationMarks
from hpml_jobs.worker.instruments.timing import Clock, Seconds, Stamp, Window

Interval = tuple[float, float]
"""Start and end in seconds."""


class IterationPhases(NamedTuple):
    """Phases of one iteration in seconds; the first six add up to the iteration.

    The others are parts of them: see `Phases` and `Communication`.
    """

    stall_s: float
    h2d_s: float
    forward_s: float
    backward_s: float
    comm_exposed_s: float
    optimizer_s: float
    comm_forward_s: float
    pack_s: float
    comm_total_s: float
    gradients_s: float
    replicas_forward_s: float
    replicas_backward_s: float
    buffers_s: float
    comm_optimizer_s: float


class EpochPhases(NamedTuple):
    """An instrumented epoch on one rank; all times are in seconds.

    `iterations_s` has shape (iterations, fields of `IterationPhases`). `start_s` and `duration_s`
    have one value per collective; starts count from the `batch` mark of the iteration. `served_s`
    are durations without the time queued behind earlier collectives of the same iteration;
    `exposed_s` the parts of these that are exposed, which add up to the exposed communication.
    `last_stall_s` is the time after the last iteration.
    """

    phases: Phases
    communication: Communication
    iterations_s: Seconds
    start_s: Seconds
    duration_s: Seconds
    served_s: Seconds
    exposed_s: Seconds
    last_stall_s: float


def split_phases(
    window: Window,
    marks: Sequence[IterationMarks],
    ledger: Ledger,
    *,
    overlaps: bool,
    accumulate: int = 1,
) -> EpochPhases:
    """Split an epoch into phases and communication.

    `overlaps` says whether collectives start before backward() returns. `marks`, and the iterations
    in the ledger, are those of micro-steps, `accumulate` of which are an iteration; their phases
    are summed, and the ledger has the iterations afterwards.
    """
    clock = ledger.clock
    collectives: dict[int, list[Collective]] = defaultdict(list)
    waits: dict[int, list[Wait]] = defaultdict(list)
    for entry in ledger.collectives:
        collectives[entry.iteration].append(entry)
    replica_waits: dict[int, list[ReplicaWait]] = defaultdict(list)
    for replica_wait in ledger.replica_waits:
        replica_waits[replica_wait.iteration].append(replica_wait)
    for wait in ledger.waits:
        waits[wait.iteration].append(wait)
    previous_end, rows = window.start, []
    exposed_s: list[float] = []
    for index, iteration in enumerate(marks):
        events = _Events(collectives[index], replica_waits[index], waits[index])
        row, parts_s = _split_iteration(clock, previous_end, iteration, events, overlaps=overlaps)
        rows.append(row)
        exposed_s += parts_s
        previous_end = iteration.stepped
    iterations_s = np.add.reduceat(np.array(rows), np.arange(0, len(rows), accumulate), axis=0)
    total = IterationPhases(*iterations_s.sum(axis=0).tolist())
    last_stall_s = clock.seconds(previous_end, window.end)
    durations_s = ledger.durations_s()
    for entry in ledger.collectives:
        entry.iteration //= accumulate
    first_of = marks[::accumulate]
    starts_s = [clock.seconds(first_of[e.iteration].batch, e.start) for e in ledger.collectives]
    return EpochPhases(
        phases=Phases(
            stall_s=total.stall_s + last_stall_s,
            h2d_s=total.h2d_s,
            forward_s=total.forward_s,
            backward_s=total.backward_s,
            comm_exposed_s=total.comm_exposed_s,
            optimizer_s=total.optimizer_s,
            comm_forward_s=total.comm_forward_s,
            pack_s=total.pack_s,
            replicas_s=(
                total.replicas_forward_s + total.replicas_backward_s
                if ledger.replica_waits
                else None
            ),
            comm_optimizer_s=total.comm_optimizer_s,
        ),
        communication=Communication(
            total_s=total.comm_total_s,
            gradients_s=total.gradients_s,
            buffers_s=total.buffers_s,
            messages=aggregate(ledger.collectives, durations_s),
        ),
        iterations_s=iterations_s,
        start_s=np.array(starts_s),
        duration_s=np.array(durations_s),
        served_s=np.array(served_durations(ledger.collectives, starts_s, durations_s)),
        exposed_s=np.array(exposed_s),
        last_stall_s=last_stall_s,
    )


def served_durations(
    collectives: Sequence[Collective], starts_s: Sequence[float], durations_s: Sequence[float]
) -> list[float]:
    """Return durations without queueing: each counts from the end of the collectives before it.

    They add up to the busy time of the iteration, so one late rank counts once, not per bucket.
    """
    served_s: list[float] = []
    iteration, busy_until = -1, 0.0
    for entry, start, duration in zip(collectives, starts_s, durations_s, strict=True):
        if entry.iteration != iteration:
            iteration, busy_until = entry.iteration, start
        end = start + duration
        served_s.append(max(0.0, end - max(start, busy_until)))
        busy_until = max(busy_until, end)
    return served_s


def _exposed_parts(
    clock: Clock, marks: IterationMarks, collectives: Sequence[Collective], exposed: "_Exposed"
) -> list[float]:
    """Return the seconds of each collective that are exposed and not queued behind earlier ones."""
    intervals = [interval for part in exposed for interval in part]
    parts_s, busy_until = [], float("-inf")
    for entry in collectives:
        start, end = clock.seconds(marks.batch, entry.start), clock.seconds(marks.batch, entry.end)
        parts_s.append(union_s(_clipped(intervals, max(start, busy_until), end)))
        busy_until = max(busy_until, end)
    return parts_s


class _Events(NamedTuple):
    """What was recorded inside one iteration."""

    collectives: Sequence[Collective]
    replica_waits: Sequence[ReplicaWait]
    waits: Sequence[Wait]


class _Exposed(NamedTuple):
    """The intervals of exposed communication of one iteration, by the phase that contains them."""

    forward: list[Interval]
    exchange: list[Interval]
    optimizer: list[Interval]


def _exposed(clock: Clock, marks: IterationMarks, events: _Events, *, overlaps: bool) -> _Exposed:
    """Return when communication is exposed, on a time axis that starts at the `batch` mark.

    Gradients are from the last gradient on, other messages in forward and in the optimizer. Where
    collectives run beside forward and backward (fsdp), they are exposed while the computing stream
    waits for one: inside the recorded waits, and after the last gradient, whose reduce-scatter
    begins as soon as it is ready.
    """

    def at(stamp: Stamp) -> float:
        return clock.seconds(marks.batch, stamp)

    copied, forward, exchanged = at(marks.copied), at(marks.forward), at(marks.exchanged)
    gradients, others, _ = _intervals(events.collectives, at)
    optimizer = _clipped(others, exchanged, at(marks.stepped))
    if events.waits:
        running = [*gradients, *others]
        waiting = [
            part
            for wait in events.waits
            for part in _clipped(running, at(wait.start), at(wait.end))
        ]
        if gradients:
            last_start, last_end = max(gradients)
            waiting += _clipped([(last_start, last_end)], forward, exchanged)
        return _Exposed(
            _clipped(waiting, copied, forward), _clipped(waiting, forward, exchanged), optimizer
        )
    exchange: list[Interval] = []
    if gradients:
        starts = [start for start, _ in gradients]
        # With overlap the last bucket is sent as soon as the last gradient is ready.
        last_gradient = max(starts) if overlaps else min(starts)
        exchange = _clipped(gradients, max(last_gradient, forward), exchanged)
    return _Exposed(_clipped(others, copied, forward), exchange, optimizer)


def _split_iteration(
    clock: Clock,
    previous_end: Stamp,
    marks: IterationMarks,
    events: _Events,
    *,
    overlaps: bool,
) -> tuple[IterationPhases, list[float]]:
    """Split one iteration; return its phases, and the exposed part of each collective."""

    def at(stamp: Stamp) -> float:
        return clock.seconds(marks.batch, stamp)

    copied, forward, backward = at(marks.copied), at(marks.forward), at(marks.backward)
    exchanged, stepped = at(marks.exchanged), at(marks.stepped)
    gradients, others, buffers = _intervals(events.collectives, at)
    waits = [(at(wait.start), at(wait.end)) for wait in events.replica_waits]
    exposed = _exposed(clock, marks, events, overlaps=overlaps)
    exposed_s = union_s(exposed.exchange)
    packs = gradients and not overlaps and not events.waits
    phases = IterationPhases(
        stall_s=clock.seconds(previous_end, marks.batch),
        h2d_s=copied,
        forward_s=forward - copied,
        backward_s=max(0.0, exchanged - forward - exposed_s),
        comm_exposed_s=exposed_s,
        optimizer_s=stepped - exchanged,
        comm_forward_s=union_s(exposed.forward),
        pack_s=max(0.0, exchanged - backward - exposed_s) if packs else 0.0,
        comm_total_s=union_s([*gradients, *others]),
        gradients_s=union_s(gradients),
        replicas_forward_s=union_s(_clipped(waits, copied, forward)),
        replicas_backward_s=union_s(_clipped(waits, forward, exchanged)),
        buffers_s=union_s(buffers),
        comm_optimizer_s=union_s(exposed.optimizer),
    )
    return phases, _exposed_parts(clock, marks, events.collectives, exposed)


def _intervals(
    collectives: Sequence[Collective], at: Callable[[Stamp], float]
) -> tuple[list[Interval], list[Interval], list[Interval]]:
    """Return the busy intervals of gradients, of all other messages, and of buffers among them."""
    gradients: list[Interval] = []
    others: list[Interval] = []
    buffers: list[Interval] = []
    for entry in collectives:
        interval = (at(entry.start), at(entry.end))
        (gradients if entry.purpose is Purpose.GRADIENTS else others).append(interval)
        if entry.purpose is Purpose.BUFFERS:
            buffers.append(interval)
    return gradients, others, buffers


def _clipped(intervals: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """Return the parts of intervals inside [start, end]."""
    clipped = ((max(first, start), min(last, end)) for first, last in intervals)
    return [(first, last) for first, last in clipped if first < last]
