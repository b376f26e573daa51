"""Phases of an instrumented epoch from its stamps, and its communication from the collectives."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from hpml_jobs.core.formulas import union_s
from hpml_jobs.core.measurements import (
    Communication,
    IterationPhases,
    Phases,
    Purpose,
)
from hpml_jobs.worker.instruments.collectives import Collective, Ledger, Wait, aggregate
from hpml_jobs.worker.instruments.recorder import IterationMarks
from hpml_jobs.worker.instruments.summary import block_values
from hpml_jobs.worker.instruments.timing import Clock, Seconds, Stamp, Window

Interval = tuple[float, float]
"""Start and end in seconds."""

Entry = TypeVar("Entry", Collective, Wait)


class Gaps(NamedTuple):
    """What of a script's iteration is no phase of training: its waits for loaders, and the rest.

    The rest is until the forward pass begins, and `after`: between the steps of optimizers, and
    after the last one.
    """

    waits: Sequence[tuple[Stamp, Stamp]]
    after: Sequence[tuple[Stamp, Stamp]]


class Other(NamedTuple):
    """Seconds that nothing accounts for: before the forward pass, and after the exchange.

    In `IterationPhases` the first are part of `h2d_s`, the second of `optimizer_s`.
    """

    before_s: float = 0.0
    after_s: float = 0.0


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


def split_phases(  # noqa: PLR0913  (one epoch, as it was recorded)
    window: Window,
    marks: Sequence[IterationMarks],
    ledger: Ledger,
    *,
    overlaps: bool,
    accumulate: int = 1,
    gaps: Sequence[Gaps] = (),
) -> EpochPhases:
    """Split an epoch into phases and communication.

    `overlaps` says whether collectives start before backward() returns. `marks`, and the iterations
    in the ledger, are those of micro-steps, `accumulate` of which are an iteration; their phases
    are summed, and the ledger has the iterations afterwards. `gaps` are those of a script.
    """
    clock = ledger.clock
    collectives = _by_iteration(ledger.collectives)
    replica_waits, waits = (
        _by_iteration(ledger.replica_waits),
        _by_iteration(ledger.waits),
    )
    previous_end, rows = window.start, []
    exposed_s: list[float] = []
    unaccounted: list[Other] = []
    for index, iteration in enumerate(marks):
        events = _Events(
            collectives=collectives[index],
            replica_waits=replica_waits[index],
            waits=waits[index],
            knows_waits=ledger.knows_waits,
            gaps=gaps[index] if gaps else None,
        )
        row, parts_s, other = _split_iteration(
            clock, previous_end, iteration, events, overlaps=overlaps
        )
        rows.append(row)
        unaccounted.append(other)
        exposed_s += parts_s
        previous_end = iteration.stepped
    iterations_s = np.add.reduceat(
        np.array(rows), np.arange(0, len(rows), accumulate), axis=0
    )
    total = IterationPhases(*iterations_s.sum(axis=0).tolist())
    other = Other(*np.sum(unaccounted, axis=0).tolist())
    last_stall_s = clock.seconds(previous_end, window.end)
    durations_s = ledger.durations_s()
    for entry in ledger.collectives:
        entry.iteration //= accumulate
    first_of = marks[::accumulate]
    starts_s = [
        clock.seconds(first_of[e.iteration].batch, e.start) for e in ledger.collectives
    ]
    return EpochPhases(
        phases=Phases(
            stall_s=total.stall_s + last_stall_s,
            h2d_s=0.0 if gaps else total.h2d_s,
            forward_s=total.forward_s,
            backward_s=total.backward_s,
            comm_exposed_s=total.comm_exposed_s,
            optimizer_s=max(0.0, total.optimizer_s - other.after_s),
            comm_forward_s=total.comm_forward_s,
            pack_s=total.pack_s,
            replicas_s=(
                total.replicas_forward_s + total.replicas_backward_s
                if ledger.replica_waits
                else None
            ),
            comm_optimizer_s=total.comm_optimizer_s,
            work_blocks_s=block_values(_work_s(iterations_s), np.mean),
            other_s=sum(other) if gaps else None,
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


def _work_s(iterations_s: Seconds) -> Seconds:
    """Return each iteration without its exposed communication."""
    columns = IterationPhases(*iterations_s.T)
    exposed_s = (
        columns.comm_exposed_s + columns.comm_forward_s + columns.comm_optimizer_s
    )
    work_s: Seconds = iterations_s[:, :6].sum(axis=1) - exposed_s
    return work_s


def served_durations(
    collectives: Sequence[Collective],
    starts_s: Sequence[float],
    durations_s: Sequence[float],
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


class _Events(NamedTuple):
    """What was recorded inside one iteration."""

    collectives: Sequence[Collective]
    replica_waits: Sequence[Wait]
    waits: Sequence[Wait]
    knows_waits: bool
    gaps: Gaps | None


def _by_iteration(entries: Iterable[Entry]) -> dict[int, list[Entry]]:
    by_iteration: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_iteration[entry.iteration].append(entry)
    return by_iteration


def _split_iteration(
    clock: Clock,
    previous_end: Stamp,
    marks: IterationMarks,
    events: _Events,
    *,
    overlaps: bool,
) -> tuple[IterationPhases, list[float], Other]:
    """Split one iteration; return its phases, the exposed part of each collective, and `Other`."""

    def since_batch(start: Stamp, end: Stamp) -> Interval:
        """Return an interval on a time axis that starts at the `batch` mark, like that of `at`."""
        return clock.seconds(marks.batch, start), clock.seconds(marks.batch, end)

    def interval(entry: Collective | Wait) -> Interval:
        return since_batch(entry.start, entry.end)

    at = IterationMarks(
        0.0, *(clock.seconds(marks.batch, stamp) for stamp in marks[1:])
    )
    busy = [(interval(entry), entry.purpose) for entry in events.collectives]
    gradients = [part for part, purpose in busy if purpose is Purpose.GRADIENTS]
    not_gradients = [part for part, purpose in busy if purpose is not Purpose.GRADIENTS]
    waits = [interval(wait) for wait in events.waits]
    for_replicas = [interval(wait) for wait in events.replica_waits]
    if events.knows_waits:
        parts = (
            (at.copied, at.forward),
            (at.forward, at.exchanged),
            (at.exchanged, at.stepped),
        )
        exposed = [_clipped(waits, *part) for part in parts]
    else:
        exposed = [*_exposed(at, gradients, not_gradients, waits, overlaps=overlaps)]
    in_forward_s, exposed_s, in_optimizer_s = map(union_s, exposed)
    packs = gradients and not overlaps and not waits
    phases = IterationPhases(
        stall_s=clock.seconds(previous_end, marks.batch),
        h2d_s=at.copied,
        forward_s=at.forward - at.copied,
        backward_s=max(0.0, at.exchanged - at.forward - exposed_s),
        comm_exposed_s=exposed_s,
        optimizer_s=at.stepped - at.exchanged,
        comm_forward_s=in_forward_s,
        pack_s=max(0.0, at.exchanged - at.backward - exposed_s) if packs else 0.0,
        comm_total_s=union_s([*gradients, *not_gradients]),
        gradients_s=union_s(gradients),
        replicas_forward_s=union_s(_clipped(for_replicas, at.copied, at.forward)),
        replicas_backward_s=union_s(_clipped(for_replicas, at.forward, at.exchanged)),
        buffers_s=union_s(part for part, purpose in busy if purpose is Purpose.BUFFERS),
        comm_optimizer_s=in_optimizer_s,
    )
    other = Other()
    if events.gaps:
        waits = [since_batch(start, end) for start, end in events.gaps.waits]
        after = [since_batch(start, end) for start, end in events.gaps.after]
        phases, other = _with_gaps(phases, at, waits, after, exposed[2])
    return phases, _exposed_parts([part for part, _ in busy], exposed), other


def _with_gaps(
    phases: IterationPhases,
    at: IterationMarks,
    waits: Sequence[Interval],
    after: Sequence[Interval],
    exposed: Sequence[Interval],
) -> tuple[IterationPhases, Other]:
    """Return the phases of a script's iteration, and of them what no hook accounts for.

    The iteration begins `stall_s` before the mark `batch`; `exposed` is the communication after the
    exchange.
    """

    def waited_s(start: float, end: float) -> float:
        return union_s(_clipped(waits, start, end))

    start = at.batch - phases.stall_s
    before_s = max(0.0, at.copied - start - waited_s(start, at.copied))
    after_s = sum(
        max(0.0, end - start - union_s(_clipped([*waits, *exposed], start, end)))
        for start, end in after
    )
    of_phases = phases._replace(
        stall_s=waited_s(start, at.stepped),
        h2d_s=before_s,
        forward_s=max(0.0, phases.forward_s - waited_s(at.copied, at.forward)),
        backward_s=max(0.0, phases.backward_s - waited_s(at.forward, at.exchanged)),
        optimizer_s=max(0.0, phases.optimizer_s - waited_s(at.exchanged, at.stepped)),
    )
    return of_phases, Other(before_s, after_s)


def _exposed(
    at: IterationMarks,
    gradients: Sequence[Interval],
    not_gradients: Sequence[Interval],
    waits: Sequence[Interval],
    *,
    overlaps: bool,
) -> tuple[list[Interval], list[Interval], list[Interval]]:
    """Return when communication is exposed: in forward, in the exchange, and in the optimizer.

    Gradients are from the last gradient on, other messages in forward and in the optimizer. Where
    collectives run beside forward and backward (fsdp), they are exposed while the computing stream
    waits for one: inside the recorded waits, and after the last gradient, whose reduce-scatter
    begins as soon as it is ready.
    """
    optimizer = _clipped(not_gradients, at.exchanged, at.stepped)
    if waits:
        busy = [*gradients, *not_gradients]
        waiting = [part for wait in waits for part in _clipped(busy, *wait)]
        if gradients:
            waiting += _clipped([max(gradients)], at.forward, at.exchanged)
        forward = _clipped(waiting, at.copied, at.forward)
        return forward, _clipped(waiting, at.forward, at.exchanged), optimizer
    exchange: list[Interval] = []
    if gradients:
        starts = [start for start, _ in gradients]
        # With overlap the last bucket is sent as soon as the last gradient is ready.
        last_gradient = max(starts) if overlaps else min(starts)
        exchange = _clipped(gradients, max(last_gradient, at.forward), at.exchanged)
    return _clipped(not_gradients, at.copied, at.forward), exchange, optimizer


def _exposed_parts(
    collectives: Iterable[Interval], exposed: Iterable[Iterable[Interval]]
) -> list[float]:
    """Return the seconds of each collective that are exposed and not queued behind earlier ones."""
    intervals = [interval for part in exposed for interval in part]
    parts_s, busy_until = [], float("-inf")
    for start, end in collectives:
        parts_s.append(union_s(_clipped(intervals, max(start, busy_until), end)))
        busy_until = max(busy_until, end)
    return parts_s


def _clipped(intervals: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """Return the parts of intervals inside [start, end]."""
    clipped = ((max(first, start), min(last, end)) for first, last in intervals)
    return [(first, last) for first, last in clipped if first < last]
