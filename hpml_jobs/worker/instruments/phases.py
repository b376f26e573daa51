"""Where an instrumented epoch went: phases from stamps, communication from collectives."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from hpml_jobs.core.formulas import union_s
from hpml_jobs.core.measurements import Communication, Phases
from hpml_jobs.worker.instruments.collectives import Collective, Ledger, by_kind
from hpml_jobs.worker.instruments.timing import Clock, Seconds, Stamp, Window

Interval = tuple[float, float]


class IterationMarks(NamedTuple):
    """The stamps of one iteration; on CUDA the device passes them when the work before is done."""

    batch: Stamp  # the batch is there
    copied: Stamp  # it is on the device
    forward: Stamp  # forward and loss are done
    backward: Stamp  # backward() returned
    exchanged: Stamp  # gradients have met
    stepped: Stamp  # step and zero_grad are done, loss and hits are counted


class Parts(NamedTuple):
    """One iteration in seconds; the first six add up to it."""

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


class Anatomy(NamedTuple):
    """An instrumented epoch on one rank.

    `parts` is an array (iterations, fields of `Parts`); `start_s` and `duration_s` are arrays over
    collectives, starts counted from the beginning of their iteration's `batch there`. `served_s`
    are durations without waiting in the queue behind earlier ones of the same iteration.
    """

    phases: Phases
    communication: Communication
    parts: Seconds
    start_s: Seconds
    duration_s: Seconds
    served_s: Seconds


def split_phases(
    window: Window, moments: Sequence[IterationMarks], ledger: Ledger, *, overlaps: bool
) -> Anatomy:
    """Phases and communication; `overlaps`: collectives start before backward is over."""
    clock = ledger.clock
    of_iteration: dict[int, list[Collective]] = defaultdict(list)
    for entry in ledger.collectives:
        of_iteration[entry.iteration].append(entry)
    before, rows = window.start, []
    for index, those in enumerate(moments):
        rows.append(_parts(clock, before, those, of_iteration[index], overlaps=overlaps))
        before = those.stepped
    parts = np.array(rows)
    total = Parts(*parts.sum(axis=0).tolist())
    last_stall_s = clock.seconds(before, window.end)
    durations_s = ledger.durations_s()
    starts_s = [clock.seconds(moments[e.iteration].batch, e.start) for e in ledger.collectives]
    return Anatomy(
        phases=Phases(
            stall_s=total.stall_s + last_stall_s,
            h2d_s=total.h2d_s,
            forward_s=total.forward_s,
            backward_s=total.backward_s,
            comm_exposed_s=total.comm_exposed_s,
            optimizer_s=total.optimizer_s,
            comm_forward_s=total.comm_forward_s,
            pack_s=total.pack_s,
        ),
        communication=Communication(
            total_s=total.comm_total_s,
            gradients_s=total.gradients_s,
            messages=by_kind(ledger.collectives, durations_s),
        ),
        parts=parts,
        start_s=np.array(starts_s),
        duration_s=np.array(durations_s),
        served_s=np.array(served(ledger.collectives, starts_s, durations_s)),
    )


def served(
    collectives: Sequence[Collective], starts_s: Sequence[float], durations_s: Sequence[float]
) -> list[float]:
    """Durations counted from the end of what came before: buckets wait for each other in line.

    Their sum over an iteration is the length of its busy time, so one late rank counts once.
    """
    found: list[float] = []
    iteration, reached = -1, 0.0
    for entry, start, duration in zip(collectives, starts_s, durations_s, strict=True):
        if entry.iteration != iteration:
            iteration, reached = entry.iteration, start
        end = start + duration
        found.append(max(0.0, end - max(start, reached)))
        reached = max(reached, end)
    return found


def _parts(
    clock: Clock,
    before: Stamp,
    those: IterationMarks,
    collectives: Sequence[Collective],
    *,
    overlaps: bool,
) -> Parts:
    """One iteration, on a time axis that begins when its batch is there."""

    def at(stamp: Stamp) -> float:
        return clock.seconds(those.batch, stamp)

    copied, forward, backward = at(those.copied), at(those.forward), at(those.backward)
    exchanged, stepped = at(those.exchanged), at(those.stepped)
    gradients, others = _intervals(collectives, at)
    exposed_s = 0.0
    if gradients:
        starts = [start for start, _ in gradients]
        # With overlap the last bucket is sent when the last gradient is there.
        last_gradient = max(starts) if overlaps else min(starts)
        exposed_s = _within(gradients, max(last_gradient, forward), exchanged)
    pack_s = 0.0 if overlaps else max(0.0, exchanged - backward - exposed_s)
    return Parts(
        stall_s=clock.seconds(before, those.batch),
        h2d_s=copied,
        forward_s=forward - copied,
        backward_s=max(0.0, exchanged - forward - exposed_s),
        comm_exposed_s=exposed_s,
        optimizer_s=stepped - exchanged,
        comm_forward_s=_within(others, copied, forward),
        pack_s=pack_s if gradients else 0.0,
        comm_total_s=union_s([*gradients, *others]),
        gradients_s=union_s(gradients),
    )


def _intervals(
    collectives: Sequence[Collective], at: Callable[[Stamp], float]
) -> tuple[list[Interval], list[Interval]]:
    """Busy intervals of the gradients' collectives, and of all others."""
    gradients: list[Interval] = []
    others: list[Interval] = []
    for entry in collectives:
        interval = (at(entry.start), at(entry.end))
        (gradients if entry.purpose == "gradients" else others).append(interval)
    return gradients, others


def _within(intervals: Sequence[Interval], least: float, most: float) -> float:
    """Length of the union of intervals inside [least, most]."""
    cut = ((max(start, least), min(end, most)) for start, end in intervals)
    return union_s((start, end) for start, end in cut if start < end)
