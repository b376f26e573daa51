"""What was seen of a window of a script, in order, and its iterations, which follow from it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise, takewhile
from typing import Any, NamedTuple
from weakref import WeakSet, ref

import numpy as np

from hpml_jobs.core.measurements import Role
from hpml_jobs.worker.instruments import timing
from hpml_jobs.worker.instruments.phases import Gaps
from hpml_jobs.worker.instruments.recorder import IterationMarks
from hpml_jobs.worker.instruments.timing import Clock, IterationTimes, Stamp, Window

SEVERAL = "several optimizers step in an iteration"
"""Why an iteration has no phases: the model is trained more than once in it, or another one is."""

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
    STEPPED = 6  # the first step of an iteration
    STEPPED_TOO = 7  # another one: of the same optimizer, or of another
    UNTRAINED = 9  # the model is called, without a loader, but nothing trains this alone
    MADE = 8  # it has the iterator that it asked for, or an exception


STEPS = (Kind.STEPPED, Kind.STEPPED_TOO)


@dataclass(eq=False, slots=True)
class Pass:
    """One pass over a loader, and the iterations of which it is the outermost pass.

    `before` is the pass that got the last batch when this one began; a test interrupts a training
    pass. `dropped` tells when nobody has the iterator any more. `in_thread`: another thread than
    the main one reads it. `length` are its batches, if the loader knows them.
    """

    loader: Any
    before: "Pass | None" = None
    steps: int = 0
    batches: int = 0
    is_over: bool = False
    dropped: ref[Any] | None = None
    in_thread: bool = False
    length: int | None = None

    @property
    def is_read(self) -> bool:
        """Whether it has no more batches, as far as is known."""
        return self.is_over or self.batches == self.length


class Event(NamedTuple):
    """Something that was seen: of a loader with its pass, of a batch with its samples.

    `host_ns` is the host's time after the stamp, which a device may pass later.
    """

    kind: Kind
    stamp: Stamp
    source: Pass | None = None
    samples: int = 0
    host_ns: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether it is of training: not of a loader that is read beside it, or by a test."""
        return self.source is None or self.source.steps > 0

    @classmethod
    def now(cls, kind: Kind, clock: Clock, source: Pass | None = None) -> "Event":
        """Return what is seen now."""
        return cls(kind, clock.stamp(), source, 0, timing.perf_counter_ns())


@dataclass(eq=False)
class Recording:
    """A window while it is open. `owner` is the pass whose end is its end; None with window=.

    `outer` is the outermost pass: the one that the script asks first in an iteration. `steps` are
    the iterations, `optimizers` what stepped. `is_ending`: the pass has no more batches, but some
    that were fetched ahead are to be trained; `after_end` are the steps since then. `fetched` are
    the samples of the batches that the windows before it have fetched, but not trained.
    `has_repeats`: an optimizer steps several times with a batch.
    """

    window: Window
    role: Role
    events: list[Event] = field(default_factory=list)
    owner: Pass | None = None
    outer: Pass | None = None
    steps: int = 0
    optimizers: WeakSet[Any] = field(default_factory=WeakSet)
    is_ending: bool = False
    after_end: int = 0
    fetched: list[int] = field(default_factory=list)
    has_repeats: bool = False
    _stepped: set[int] = field(default_factory=set)

    def is_asked_by(self, source: Pass | None) -> bool:
        """Return whether a request of a pass, or a batch without one, can begin an iteration."""
        return self.outer is None or self.outer.is_over or self.outer is source

    def read(self) -> list[Pass]:
        """Return the passes that got a batch since the last step of an iteration, in order."""
        since = takewhile(lambda event: event.kind is not Kind.STEPPED, reversed(self.events))
        got = [event.source for event in since if event.kind is Kind.BATCH and event.source]
        return [source for source in dict.fromkeys(reversed(got)) if not source.is_over]

    def count_step(self, optimizer: int) -> Kind:
        """Count a step, and return whether it is the first of an iteration.

        It is where the outermost pass was asked since the last one; where there is none, or it has
        no more batches, where the same optimizer has stepped since.
        """
        since = takewhile(lambda event: event.kind is not Kind.STEPPED, reversed(self.events))
        asked = (event.source for event in since if event.kind is Kind.REQUEST)
        is_first = not self.steps or (self.outer is not None and self.outer in asked)
        if not is_first and optimizer in self._stepped:
            is_first = self.outer is None or (self.outer.is_read and not self.has_repeats)
            self.has_repeats = self.has_repeats or not is_first
        if is_first:
            self.steps += 1
            self._stepped.clear()
        self._stepped.add(optimizer)
        return Kind.STEPPED if is_first else Kind.STEPPED_TOO


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


def split_iterations(clock: Clock, recording: Recording, *, ahead: bool = False) -> Iterations:
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
    tail: list[Event] = []
    if len(groups) > 1 and not any(event.kind is Kind.STEPPED for event in groups[-1]):
        tail = groups.pop()
        if _count(tail, Kind.BATCH):  # trained, but without a step
            groups[-1] += tail
            tail = []
    ends = [
        following[0].stamp if _asks(following[0]) else group[-1].stamp
        for group, following in pairwise(groups)
    ]
    ends.append(tail[0].stamp if tail else window.end)
    batches = [_trained(group) for group in groups]
    sizes = [[e.samples for e in group if e.kind is Kind.BATCH] for group in batches]
    accumulate = _usual([*map(len, sizes)], ahead=ahead)
    waits = [[(e, clock.seconds(*s)) for e, *s in _timed_waits(group)] for group in groups]
    of_batches = [wait_s for group in waits for wait_s in _by_batch(group)]
    times = IterationTimes(
        np.array([clock.seconds(*ends_of) for ends_of in pairwise([window.start, *ends])]),
        np.array([sum(wait_s for _, wait_s in group) for group in waits]),
        clock.seconds(tail[0].stamp, window.end) if tail else 0.0,
        np.array(of_batches) if of_batches and accumulate > 1 else None,
    )
    ahead = ahead and max(map(len, sizes)) > accumulate  # else a step had no batch of its own
    fetched: list[int] = []
    if ahead:  # each batch belongs to the iteration that trains it
        is_whole = recording.owner is not None and recording.owner.is_over
        flat = [*recording.fetched, *(size for of_group in sizes for size in of_group)]
        starts = [accumulate * number for number in range(len(sizes))]
        end = len(flat) if is_whole else starts[-1] + accumulate
        sizes = [flat[first:last] for first, last in pairwise([*starts, end])]
        fetched = flat[end:]
    samples = [sum(size) for size in sizes]
    return Iterations(times, samples, accumulate, groups, ends, batches, ahead, fetched)


def _asks(event: Event) -> bool:
    """Return whether the script asks the outermost loader."""
    return event.kind is Kind.REQUEST and event.is_counted


def _groups(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the events of each iteration; the last may be without a step."""
    group: list[Event] = []
    stepped = trained = 0  # events up to the last step, and to the last one before the last batch
    for event in events:
        if stepped and _asks(event):
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
    first = next((n for n, event in enumerate(group) if event.kind is Kind.STEPPED), len(group))
    got = [(n, e) for n, e in enumerate(group) if e.kind in (Kind.BATCH, Kind.END) and e.is_counted]
    return [event for number, event in got if event.source or number < first]


def _is_without_batch(group: Sequence[Event]) -> bool:
    return bool(_count(group, Kind.STEPPED)) and not _count(group, Kind.BATCH)


def _divided(groups: list[list[Event]], *, ahead: bool) -> Iterator[list[Event]]:
    """Yield the groups, those with several times the usual number of batches in parts.

    The first of a pass stays whole where the loader is ahead.
    """
    usual = _usual([_count(group, Kind.BATCH) for group in groups], ahead=ahead)
    last_pass: Pass | None = None
    for group in groups:
        source = next((e.source for e in reversed(group) if _asks(e)), last_pass)
        number = _count(group, Kind.BATCH)
        is_fixed = number <= usual or not usual or number % usual > 0
        is_fixed = is_fixed or (ahead and source is not last_pass)
        last_pass = source
        part: list[Event] = []
        for event in group:
            is_full = not is_fixed and _count(part, Kind.BATCH) >= usual
            if is_full and _asks(event) and _count(group, Kind.STEPPED):
                yield part
                part = []
            part.append(event)
        yield part


def _count(events: Sequence[Event], kind: Kind) -> int:
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


def _timed_waits(events: Sequence[Event]) -> Iterator[tuple[Event, Stamp, Stamp]]:
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


def parts_of(value: Any) -> Iterable[Any]:
    """Return the values of a mapping, a list, a tuple, or the attributes of an object."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, Mapping):
        return value.values()
    return getattr(value, "__dict__", {}).values()


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
    sizes = (size_of(part, tokens=tokens, depth=depth + 1) for part in parts_of(batch))
    return next(filter(None, sizes), 0)


class MicroStep(NamedTuple):
    """What was seen from a batch on, its stamps, and what of them is no part of training."""

    events: list[Event]
    marks: IterationMarks
    gaps: Gaps


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
            batch = part[place].stamp if (place := _last_batch(part)) >= 0 else start
            batch = batch if place >= 0 and part[place].source else start
            steps = [number for number, event in enumerate(part) if event.kind is Kind.STEP]
            if steps and _count(part[steps[0] : steps[-1]], Kind.FORWARD):
                return SEVERAL
            forward = _forward(part, place, before_step=bool(steps))
            if forward is None:
                return "the model's forward pass is not between its batch and the optimizer's step"
            step = part[steps[0]].stamp if steps else stepped
            waits = [(first, last) for _, first, last in _timed_waits(part)]
            done = [event.stamp for event in part if event.kind in STEPS]
            ends = [*(part[number].stamp for number in steps[1:]), stepped]
            after = [*zip(done, ends, strict=False)]  # a micro-step has no step
            marks = IterationMarks(batch, *forward, step, step, stepped)
            result.append(MicroStep(part, marks, Gaps(waits, after)))
            start = stepped
    return result


def _micro_steps(group: Sequence[Event]) -> list[list[Event]]:
    """Return the events of each batch of an iteration."""
    parts: list[list[Event]] = [[]]
    for event in group:
        begins = _asks(event) or (event.kind is Kind.BATCH and not event.source)
        if begins and _count(parts[-1], Kind.BATCH):
            parts.append([])
        parts[-1].append(event)
    return parts


def _last_batch(part: Sequence[Event]) -> int:
    """Return the place of the last batch, or of the end of its pass; -1 without one."""
    places = (n for n, e in enumerate(part) if e.kind in (Kind.BATCH, Kind.END) and e.is_counted)
    return max(places, default=-1)


def _forward(part: Sequence[Event], batch: int, *, before_step: bool) -> tuple[Stamp, Stamp] | None:
    """Return when the first forward pass after the batch begins, and when the last ends."""
    after = part[batch + 1 :]
    if before_step:
        after = after[: next((n for n, e in enumerate(after) if e.kind is Kind.STEP), 0)]
    begins = [event.stamp for event in after if event.kind is Kind.FORWARD]
    ends = [event.stamp for event in after if event.kind is Kind.FORWARDED]
    return (begins[0], ends[-1]) if begins and ends else None
