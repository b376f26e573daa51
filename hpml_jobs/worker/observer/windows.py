"""What was seen of a window of a script, in order, and its iterations, which follow from it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from hpml_jobs.core.measurements import Role
from hpml_jobs.worker.instruments import timing
from hpml_jobs.worker.instruments.recorder import IterationMarks
from hpml_jobs.worker.instruments.timing import Clock, IterationTimes, Stamp, Window

DEPTH = 4
"""How deep a batch may be nested."""


class Kind(IntEnum):
    """What was seen; forward passes and beginnings of steps in the instrumented window only."""

    REQUEST = 0  # the script asks a loader for a batch, or for an iterator
    BATCH = 1  # it gets a batch; without a loader, it calls the model with one
    END = 2  # it is told that there are no more
    FORWARD = 3
    FORWARDED = 4
    STEP = 5
    STEPPED = 6


@dataclass(eq=False, slots=True)
class Pass:
    """One pass over a loader, and the optimizer steps in it.

    `before` is the pass that got the last batch when this one began; a test interrupts a training
    pass. `dropped` tells when nobody has the iterator any more.
    """

    loader: Any
    before: "Pass | None" = None
    steps: int = 0
    batches: int = 0
    is_over: bool = False
    dropped: ref[Any] | None = None


class Event(NamedTuple):
    """Something that was seen: of a loader with its pass, of a batch with its samples.

    `host_ns` is the host's time after the stamp, which a device may pass later.
    """

    kind: Kind
    stamp: Stamp
    source: Pass | None = None
    samples: int = 0
    host_ns: int = 0

    @classmethod
    def now(cls, kind: Kind, clock: Clock, source: Pass | None = None) -> "Event":
        """Return what is seen now."""
        return cls(kind, clock.stamp(), source, 0, timing.perf_counter_ns())


@dataclass(eq=False)
class Recording:
    """A window while it is open. `owner` is the pass whose end is its end; None with window=.

    `is_ending`: the pass has no more batches, but one that was fetched ahead is to be trained.
    """

    window: Window
    role: Role
    events: list[Event] = field(default_factory=list)
    owner: Pass | None = None
    steps: int = 0
    is_ending: bool = False


class Iterations(NamedTuple):
    """The iterations of a window; `samples` has one value for each, `accumulate` their batches.

    `groups` are the events of each, until its stamp in `ends`. `ahead`: the first has the batch of
    the second too.
    """

    times: IterationTimes
    samples: list[int]
    accumulate: int
    groups: list[list[Event]]
    ends: list[Stamp]
    ahead: bool = False


def split_iterations(clock: Clock, recording: Recording, *, ahead: bool = False) -> Iterations:
    """Split a window whose end is stamped into iterations.

    An iteration ends where the script asks for a batch for the first time after a step; without a
    loader at the step's end. A step that GradScaler skipped is not seen: such an iteration has
    twice the batches, and is divided. `ahead`: the loader is asked for a batch before the one
    before it is trained, so the first iteration gets two.
    """
    window = recording.window
    events = [event for event in recording.events if event.source is None or event.source.steps]
    groups = list(_divided([*_groups(events)], ahead=ahead))
    tail: list[Event] = []
    if len(groups) > 1 and not any(event.kind is Kind.STEPPED for event in groups[-1]):
        tail = groups.pop()
        if any(event.kind is Kind.BATCH for event in tail):  # trained, but without a step
            groups[-1] += tail
            tail = []
    starts = [group[0].stamp for group in groups[1:]]
    if not any(event.source for event in events):
        starts = [group[-1].stamp for group in groups[:-1]]
    ends = [*starts, tail[0].stamp if tail else window.end]
    sizes = [[e.samples for e in group if e.kind is Kind.BATCH] for group in groups]
    accumulate = _usual([len(size) for size in sizes])
    waits = [[*_waits(clock, group)] for group in groups]
    of_batches = [wait_s for group in waits for kind, wait_s in group if kind is Kind.BATCH]
    times = IterationTimes(
        np.array([clock.seconds(*ends_of) for ends_of in pairwise([window.start, *ends])]),
        np.array([sum(wait_s for _, wait_s in group) for group in waits]),
        clock.seconds(tail[0].stamp, window.end) if tail else 0.0,
        np.array(of_batches) if of_batches and accumulate > 1 else None,
    )
    ahead = ahead and len(sizes[0]) > accumulate  # else the last step had no batch of its own
    if ahead:  # each batch belongs to the iteration that trains it
        is_whole = any(event.kind is Kind.END for event in groups[-1])
        sizes = _shifted(sizes, is_whole=is_whole)
    return Iterations(times, [sum(size) for size in sizes], accumulate, groups, ends, ahead)


def _groups(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the events of each iteration; the last may be without a step."""
    has_loader = any(event.source for event in events)
    group: list[Event] = []
    has_stepped = False
    for event in events:
        if has_stepped and (event.kind is Kind.REQUEST or not has_loader):
            yield group
            group, has_stepped = [], False
        group.append(event)
        has_stepped = has_stepped or event.kind is Kind.STEPPED
    if group:
        yield group


def _divided(groups: list[list[Event]], *, ahead: bool) -> Iterator[list[Event]]:
    """Yield the groups, those with several times the usual number of batches in parts."""
    usual = _usual([_count(group, Kind.BATCH) for group in groups])
    for number, group in enumerate(groups):
        extra = int(ahead and number == 0)
        part: list[Event] = []
        for event in group:
            is_full = usual and _count(part, Kind.BATCH) >= usual + extra
            if is_full and event.kind is Kind.REQUEST and _count(group, Kind.STEPPED):
                yield part
                part, extra = [], 0
            part.append(event)
        yield part


def _count(events: Sequence[Event], kind: Kind) -> int:
    return sum(event.kind is kind for event in events)


def _usual(counts: Sequence[int]) -> int:
    """Return the most common number; the first and the last iteration may have another."""
    inner = counts[1:-1] or counts
    return Counter(inner).most_common(1)[0][0] if inner else 0


def _shifted(sizes: list[list[int]], *, is_whole: bool) -> list[list[int]]:
    """Return the batches of each iteration where the loader is one batch ahead, until its end."""
    flat = [size for group in sizes for size in group]
    ends = np.cumsum([len(group) for group in sizes]) - 1
    ends[-1:] += is_whole
    return [flat[first:last] for first, last in pairwise([0, *ends.tolist()])]


def _waits(clock: Clock, events: Sequence[Event]) -> Iterator[tuple[Kind, float]]:
    """Yield how long the script waits for each batch, and for the end of a pass, in seconds."""
    request: Event | None = None
    for event in events:
        if event.kind is Kind.REQUEST:
            request = request or event
        elif event.kind in (Kind.BATCH, Kind.END) and request is not None:
            yield event.kind, clock.seconds(request.stamp, event.stamp)
            request = None


def size_of(batch: Any, *, tokens: bool = False, depth: int = 0) -> int:
    """Return the samples of a batch: the first dimension of the first tensor in it.

    With `tokens` times its second dimension. 0 if there is none.

    >>> size_of({"x": np.zeros((32, 128)), "y": np.zeros(32)}), size_of([[np.zeros(4)], "name"])
    (32, 4)
    >>> size_of((None, np.zeros((32, 128))), tokens=True), size_of("name")
    (4096, 0)
    """
    shape = getattr(batch, "shape", None)
    if isinstance(shape, tuple):
        has_tokens = tokens and len(shape) > 1
        return int(shape[0] * (shape[1] if has_tokens else 1)) if shape else 0
    if depth == DEPTH or isinstance(batch, str | bytes):
        return 0
    parts = batch.values() if isinstance(batch, Mapping) else batch
    if not isinstance(batch, Mapping | list | tuple):
        parts = getattr(batch, "__dict__", {}).values()
    sizes = (size_of(part, tokens=tokens, depth=depth + 1) for part in parts)
    return next(filter(None, sizes), 0)


class MicroStep(NamedTuple):
    """What was seen from a batch on, and its stamps."""

    events: list[Event]
    marks: IterationMarks


def mark_phases(start: Stamp, iterations: Iterations) -> list[MicroStep] | str:
    """Return the micro-steps of a window from its start, or why they cannot be told apart.

    Without a loader a batch begins where the last one ends.
    """
    each = iterations.accumulate
    if iterations.ahead and each > 1:
        return "batches are fetched ahead of the forward passes that accumulate their gradients"
    result: list[MicroStep] = []
    for group, end in zip(iterations.groups, iterations.ends, strict=True):
        parts = [group] if each < 2 else _micro_steps(group)
        if len(parts) != each and each > 1 and group is not iterations.groups[-1]:
            return "the number of batches whose gradients are accumulated changes"
        last_of = [*(part[0].stamp for part in parts[1:]), end]
        for part, stepped in zip(parts, last_of, strict=True):
            batch = next((e for e in reversed(part) if e.kind in (Kind.BATCH, Kind.END)), None)
            steps = [event.stamp for event in part if event.kind is Kind.STEP]
            if len(steps) > 1:
                return "several optimizers step in an iteration"
            forward = _forward(part, before_step=bool(steps))
            if forward is None:
                return "the model's forward pass is not between its batch and the optimizer's step"
            first, last = forward
            step = steps[0] if steps else stepped
            at_batch = batch.stamp if batch and batch.source else start
            marks = IterationMarks(at_batch, first, last, step, step, stepped)
            result.append(MicroStep(part, marks))
            start = stepped
    return result


def _micro_steps(group: Sequence[Event]) -> list[list[Event]]:
    """Return the events of each batch of an iteration."""
    parts: list[list[Event]] = [[]]
    for event in group:
        begins = event.kind is Kind.REQUEST or (event.kind is Kind.BATCH and not event.source)
        if begins and _count(parts[-1], Kind.BATCH):
            parts.append([])
        parts[-1].append(event)
    return parts


def _forward(part: Sequence[Event], *, before_step: bool) -> tuple[Stamp, Stamp] | None:
    """Return when the first forward pass after the last batch begins, and when the last ends."""
    last = max((n for n, e in enumerate(part) if e.kind in (Kind.BATCH, Kind.END)), default=-1)
    after = part[last + 1 :]
    if before_step:
        after = after[: next((n for n, e in enumerate(after) if e.kind is Kind.STEP), 0)]
    begins = [event.stamp for event in after if event.kind is Kind.FORWARD]
    ends = [event.stamp for event in after if event.kind is Kind.FORWARDED]
    return (begins[0], ends[-1]) if begins and ends else None
