"""The iterations of a window of a script, from what was seen in it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

import numpy as np

from hpml_jobs.worker.instruments.timing import Clock, IterationTimes, Stamp
from hpml_jobs.worker.observer.passes import Pass
from hpml_jobs.worker.observer.recording import Event, Kind, Recording


class Iterations(NamedTuple):
    """The iterations of a window; `samples` has one value for each, `accumulate` their batches.

    `groups` are the events of each, until its stamp in `ends`; `batches` those that are trained,
    with the ends of passes. `ahead`: each batch is fetched before the one before it is trained.
    `fetched` are the samples of that which is fetched for a later window.
    """

    times: IterationTimes
    samples: list[int]
    accumulate: int
    groups: list[list[Event]]
    ends: list[Stamp]
    batches: list[list[Event]]
    ahead: bool = False
    fetched: list[int] = []


def split_iterations(recording: Recording, *, ahead: bool = False) -> Iterations:
    """Split a window whose end is stamped into iterations.

    An iteration ends where the script asks the outermost loader for a batch for the first time
    after a step; without a loader, and where it has no more batches, at the end of its last step. A
    step that GradScaler skipped is not seen: such an iteration has twice the batches, and is
    divided in an epoch. `ahead`: the loader is read a batch ahead, so the first iteration of a pass
    gets that of the second one too.
    """
    window, clock = recording.window, recording.clock
    groups = list(_groups(recording.events))
    ahead = ahead or any(map(_trains_fetched, groups))
    if recording.owner:
        groups = list(_divided(groups, ahead=ahead))
    tail = _cut_tail(groups)
    ends = []
    for group, following in pairwise(groups):
        ends.append(following[0].stamp if asks(following[0]) else group[-1].stamp)
    ends.append(tail[0].stamp if tail else window.end)
    batches = [_trained(group) for group in groups]
    sizes = [_sizes(group) for group in batches]
    accumulate = median_low(map(len, sizes))
    times = _times(clock, groups, [window.start, *ends])
    if tail:
        times = times._replace(last_stall_s=clock.seconds(ends[-1], window.end))
    if accumulate <= 1:
        times = times._replace(batch_stall_s=None)
    # else the step after the last batch is that of the batches left
    ahead = ahead and max(map(len, sizes)) > accumulate
    fetched: list[int] = []
    if ahead:
        sizes, fetched = _trained_sizes(recording.fetched, batches)
    samples = [sum(size) for size in sizes]
    return Iterations(times, samples, accumulate, groups, ends, batches, ahead, fetched)


def _sizes(batches: Sequence[Event]) -> list[int]:
    return [event.samples for event in batches if event.kind is Kind.BATCH]


def _times(
    clock: Clock, groups: Sequence[Sequence[Event]], bounds: Sequence[Stamp]
) -> IterationTimes:
    """Return the times of iterations between their bounds, and the waits for their batches."""
    stalls_s: list[float] = []
    by_batch_s: list[float] = []
    for group in groups:
        waits_s = [
            (event, clock.seconds(first, last))
            for event, first, last in timed_waits(group)
        ]
        stalls_s.append(sum(wait_s for _, wait_s in waits_s))
        by_batch_s += _by_batch(waits_s)
    steps_s = [clock.seconds(*of_step) for of_step in pairwise(bounds)]
    of_batches = np.array(by_batch_s) if by_batch_s else None
    return IterationTimes(np.array(steps_s), np.array(stalls_s), 0.0, of_batches)


def _cut_tail(groups: list[list[Event]]) -> list[Event]:
    """Take the events after the last iteration off its groups, and return them.

    Batches that were trained without a step belong to the last iteration.
    """
    if len(groups) < 2 or any(event.kind is Kind.STEPPED for event in groups[-1]):
        return []
    tail = groups.pop()
    if not count(tail, Kind.BATCH):
        return tail
    groups[-1] += tail
    return []


def _trained_sizes(
    fetched: list[int], groups: Sequence[Sequence[Event]]
) -> tuple[list[list[int]], list[int]]:
    """Return the samples of the batches that each iteration trains, and of the one fetched last.

    An iteration trains that which was fetched before it, and all but the last of its own; all at
    the end of the pass.
    """
    trained = []
    for group in groups:
        sizes = [*fetched, *_sizes(group)]
        is_end = len(group) > 0 and group[-1].kind is Kind.END
        number = len(sizes) - (not is_end)
        trained.append(sizes[:number])
        fetched = sizes[number:]
    return trained, fetched


def asks(event: Event) -> bool:
    """Return whether the script asks the outermost loader."""
    return event.kind is Kind.REQUEST and event.is_counted


def _groups(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the events of each iteration; the last may be without a step."""
    group: list[Event] = []
    stepped = 0  # events up to the last step
    for event in events:
        if stepped and begins_batch(event):
            yield group
            group, stepped = [], 0
        elif stepped and event.kind is Kind.STEPPED:  # without a batch of its own
            yield group[:stepped]
            group, stepped = group[stepped:], 0
        group.append(event)
        stepped = len(group) if event.kind is Kind.STEPPED else stepped
    if group:
        yield group


def begins_batch(event: Event) -> bool:
    """Return whether the script asks the outermost loader, or without one calls its model."""
    return asks(event) or (event.kind is Kind.BATCH and event.source is None)


def _trained(group: Sequence[Event]) -> list[Event]:
    """Return the batches that an iteration trains or fetches, and the end of their pass."""
    kinds = (Kind.BATCH, Kind.END)
    return [event for event in group if event.kind in kinds and event.is_counted]


def _trains_fetched(group: Sequence[Event]) -> bool:
    """Return whether an iteration trains when its loader has no more batches."""
    is_last = bool(count(group, Kind.END) and count(group, Kind.STEPPED))
    return is_last and not count(group, Kind.BATCH)


def _divided(groups: list[list[Event]], *, ahead: bool) -> Iterator[list[Event]]:
    """Yield the groups, those with several times the usual number of batches in parts.

    The first of a pass stays whole where the loader is ahead.
    """
    usual = median_low(count(group, Kind.BATCH) for group in groups)
    last_pass: Pass | None = None
    for group in groups:
        source = next((e.source for e in reversed(group) if asks(e)), last_pass)
        number = count(group, Kind.BATCH)
        is_fixed = number <= usual or not usual or number % usual > 0
        is_fixed = is_fixed or (ahead and source is not last_pass)
        last_pass = source
        part: list[Event] = []
        for event in group:
            is_full = not is_fixed and count(part, Kind.BATCH) >= usual
            if is_full and asks(event) and count(group, Kind.STEPPED):
                yield part
                part = []
            part.append(event)
        yield part


def count(events: Sequence[Event], kind: Kind) -> int:
    """Return how many events of training are of a kind."""
    return sum(event.kind is kind and event.is_counted for event in events)


def _by_batch(waits: Sequence[tuple[Event, float]]) -> Iterator[float]:
    """Yield how long the script waits until it has each batch, in seconds."""
    before_s = 0.0
    for event, wait_s in waits:
        before_s += wait_s
        if event.kind is Kind.BATCH and event.is_counted:
            yield before_s
            before_s = 0.0


def timed_waits(events: Sequence[Event]) -> Iterator[tuple[Event, Stamp, Stamp]]:
    """Yield what ends each wait for a loader, when it begins, and when it ends.

    Those of a loader that another one reads are part of the other's.
    """
    requests: list[Event] = []
    for event in events:
        if event.source is None:
            continue
        if event.kind is Kind.REQUEST:
            requests.append(event)
            continue
        sources = [request.source for request in requests]
        if event.source not in sources:
            continue
        place = sources.index(event.source)
        request = requests[place]
        del requests[place:]
        if not requests:
            yield event, request.stamp, event.stamp
