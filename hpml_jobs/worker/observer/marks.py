"""The phases of the iterations of a window of a script, from what was seen in it."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.worker.instruments.phases import Gaps
from hpml_jobs.worker.instruments.recorder import IterationMarks
from hpml_jobs.worker.instruments.timing import Stamp
from hpml_jobs.worker.observer import refusals
from hpml_jobs.worker.observer.iterations import (
    Iterations,
    begins_batch,
    count,
    timed_waits,
)
from hpml_jobs.worker.observer.recording import Event, Kind


class MicroStep(NamedTuple):
    """What was seen from a batch on, its stamps, and what of them is no part of training."""

    events: list[Event]
    marks: IterationMarks
    gaps: Gaps


def mark_phases(start: Stamp, iterations: Iterations) -> list[MicroStep] | str:
    """Return the micro-steps of a window from its start, or why they cannot be told apart."""
    accumulate = iterations.accumulate
    result: list[MicroStep] = []
    for group, end in zip(iterations.groups, iterations.ends, strict=True):
        parts = _micro_steps(group) if accumulate > 1 else [group]
        is_last = group is iterations.groups[-1]
        if accumulate > 1 and len(parts) != accumulate and not is_last:
            return refusals.ACCUMULATION_CHANGES
        ends = [*(part[0].stamp for part in parts[1:]), end]
        for part, stepped in zip(parts, ends, strict=True):
            micro_step = _mark(part, start, stepped)
            if isinstance(micro_step, str):
                return micro_step
            result.append(micro_step)
            start = stepped
    return result


def _mark(part: list[Event], start: Stamp, end: Stamp) -> MicroStep | str:
    """Return the micro-step of a batch between two stamps, or why it has no phases.

    Without a loader the batch begins where the last one ends.
    """
    place = _last_batch(part)
    has_loader = place >= 0 and part[place].source is not None
    steps = [number for number, event in enumerate(part) if event.kind is Kind.STEP]
    forward = _forward(part[place + 1 : steps[0] if steps else None])
    if forward is None:
        return refusals.NO_FORWARD
    step = part[steps[0]].stamp if steps else end
    batch = part[place].stamp if has_loader else start
    marks = IterationMarks(batch, *forward, step, step, end)
    waits = [(first, last) for _, first, last in timed_waits(part)]
    after = [(event.stamp, end) for event in part if event.kind is Kind.STEPPED]
    return MicroStep(part, marks, Gaps(waits, after))


def _micro_steps(group: Sequence[Event]) -> list[list[Event]]:
    """Return the events of each batch of an iteration."""
    parts: list[list[Event]] = [[]]
    for event in group:
        if begins_batch(event) and count(parts[-1], Kind.BATCH):
            parts.append([])
        parts[-1].append(event)
    return parts


def _last_batch(part: Sequence[Event]) -> int:
    """Return the place of the last batch, or of the end of its pass; -1 without one."""
    places = (
        n
        for n, e in enumerate(part)
        if e.kind in (Kind.BATCH, Kind.END) and e.is_counted
    )
    return max(places, default=-1)


def _forward(events: Sequence[Event]) -> tuple[Stamp, Stamp] | None:
    """Return when the first forward pass begins, and when the last ends."""
    begins = [event.stamp for event in events if event.kind is Kind.FORWARD]
    ends = [event.stamp for event in events if event.kind is Kind.FORWARDED]
    if not begins or not ends:
        return None
    return begins[0], ends[-1]
