"""The iterations of a window of a script, from what was seen in it."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from hpml_jobs.worker.instruments.timing import Clock, IterationTimes, Stamp
from hpml_jobs.worker.observer.passes import Pass
from hpml_jobs.worker.observer.recording import STEPS, Event, Kind, Recording


class Iterations(NamedTuple):
    """The iterations of a window; `samples` has one value for each, `accumulate` their batches.

    `groups` are the events of each, until its stamp in `ends`; `batches` those that are trained,
    with the ends of passes. `ahead`: the first has batches of later ones too. `fetched` are the
    samples of those that it has fetched for a later window.
    """

    times: IterationTimes
    samples: list[int]
    accumulate: int
    groups: list[list[Event]]
    ends: list[Stamp]
    batches: list[list[Event]]
    ahead: bool = False
    fetched: list[int] = []


def split_iterations(
    clock: Clock, recording: Recording, *, ahead: bool = False
) -> Iterations:
    """Split a window whose end is stamped into iterations.

    An iteration ends where the script asks the outermost loader for a batch for the first time
    after a step; without a loader, and where it has no more batches, at the end of its last step. A
    step that GradScaler skipped is not seen: such an iteration has twice the batches, and is
    divided. `ahead`: the loader is asked for batches before those before them are trained, so the
    first iteration of a pass gets some of later ones.
    """
    window = recording.window
    groups = list(_groups(recording.events))
    if any(event.source for group in groups for event in _trained(group)):
        ahead = ahead or any(_is_without_batch(group) for group in groups[1:])
    groups = list(_divided(groups, ahead=ahead))
    tail = _cut_tail(groups)
    ends = []
    for group, following in pairwise(groups):
        ends.append(following[0].stamp if asks(following[0]) else group[-1].stamp)
    ends.append(tail[0].stamp if tail else window.end)
    batches = [_trained(group) for group in groups]
    sizes = []
    for group in batches:
        sizes.append([event.samples for event in group if event.kind is Kind.BATCH])
    accumulate = _usual([*map(len, sizes)], ahead=ahead)
    last_stall_s = clock.seconds(ends[-1], window.end) if tail else 0.0
    stalls_s: list[float] = []
    by_batch_s: list[float] = []
    for group in groups:
        waits = [
            (event, clock.seconds(first, last))
            for event, first, last in timed_waits(group)
        ]
        stalls_s.append(sum(wait_s for _, wait_s in waits))
        by_batch_s += _by_batch(waits)
    times = IterationTimes(
        np.array(
            [clock.seconds(*of_step) for of_step in pairwise([window.start, *ends])]
        ),
        np.array(stalls_s),
        last_stall_s,
        np.array(by_batch_s) if by_batch_s and accumulate > 1 else None,
    )
    # else a step had no batch of its own
    ahead = ahead and max(map(len, sizes)) > accumulate
    fetched: list[int] = []
    if ahead:
        sizes, fetched = _trained_sizes(recording, sizes, accumulate)
    samples = [sum(size) for size in sizes]
    return Iterations(times, samples, accumulate, groups, ends, batches, ahead, fetched)


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
    recording: Recording, sizes: Sequence[Sequence[int]], accumulate: int
) -> tuple[list[list[int]], list[int]]:
    """Return the samples of each batch by the iteration that trains it, and those of later windows.

    `sizes` are those of the batches that each iteration fetches.
    """
    flat = [*recording.fetched, *chain.from_iterable(sizes)]
    starts = [accumulate * number for number in range(len(sizes))]
    is_whole = recording.owner is not None and recording.owner.is_over
    end = len(flat) if is_whole else starts[-1] + accumulate
    trained = [flat[first:last] for first, last in pairwise([*starts, end])]
    return trained, flat[end:]


def asks(event: Event) -> bool:
    """Return whether the script asks the outermost loader."""
    return event.kind is Kind.REQUEST and event.is_counted


def _groups(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the events of each iteration; the last may be without a step."""
    group: list[Event] = []
    # events up to the last step, and to the last one before the last batch
    stepped = trained = 0
    for event in events:
        if stepped and asks(event):
            yield group
            group, stepped, trained = [], 0, 0
        elif stepped and event.kind is Kind.STEPPED:  # without a request
            end = trained or stepped
            yield group[:end]
            group, stepped, trained = group[end:], 0, 0
        group.append(event)
        stepped = len(group) if event.kind in STEPS else stepped
        trained = stepped if event.kind is Kind.BATCH else trained
    if group:
        yield group


def _trained(group: Sequence[Event]) -> list[Event]:
    """Return the batches that an iteration trains or fetches, and the end of their pass.

    Without a loader these are the model's forward passes up to the first step: later ones, as those
    of a GAN, train another model with the same batch.
    """
    first = next(
        (n for n, event in enumerate(group) if event.kind is Kind.STEPPED), len(group)
    )
    got = [
        (n, e)
        for n, e in enumerate(group)
        if e.kind in (Kind.BATCH, Kind.END) and e.is_counted
    ]
    return [event for number, event in got if event.source or number < first]


def _is_without_batch(group: Sequence[Event]) -> bool:
    return bool(count(group, Kind.STEPPED)) and not count(group, Kind.BATCH)


def _divided(groups: list[list[Event]], *, ahead: bool) -> Iterator[list[Event]]:
    """Yield the groups, those with several times the usual number of batches in parts.

    The first of a pass stays whole where the loader is ahead.
    """
    usual = _usual([count(group, Kind.BATCH) for group in groups], ahead=ahead)
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


def _usual(counts: Sequence[int], *, ahead: bool) -> int:
    """Return the most common number of batches; the first and the last iteration may have another.

    Where the loader is ahead, few of them may have the usual number: it is the mean.
    """
    if ahead:
        return round(sum(counts) / len(counts))
    inner = counts[1:-1] or counts
    return Counter(inner).most_common(1)[0][0] if inner else 0


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
