"""What is seen of a script in a window, in order."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import takewhile
from math import prod
from typing import Any, NamedTuple
from weakref import WeakSet

from hpml_jobs.core.measurements import Role
from hpml_jobs.worker.instruments.timing import Clock, Stamp, Window
from hpml_jobs.worker.observer.passes import Pass

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
    STEPPED_TOO = 7  # another one with the same batch
    MADE = 8  # it has the iterator that it asked for, or an exception


STEPS = (Kind.STEPPED, Kind.STEPPED_TOO)


class Event(NamedTuple):
    """Something that was seen: of a loader with its pass, of a batch with its samples."""

    kind: Kind
    stamp: Stamp
    source: Pass | None = None
    samples: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether it is of training: not of a loader that is read beside it, or by a test."""
        return self.source is None or self.source.steps > 0


@dataclass(eq=False)
class Recording:
    """A window and what was seen in it.

    `owner` is the pass whose end is its end; None with window=. `outer` is the outermost pass: the
    one that the script asks first in an iteration. `steps` are the iterations. `is_ending`: the
    pass has no more batches, but some that were fetched ahead are to be trained; `after_end` are
    the steps since then. `beside` are loaders that are read between the steps of another's pass.
    `fetched` are the samples of the batches that the windows before it have fetched, but not
    trained. `has_repeats`: the optimizer steps several times with a batch. `has_others`: another
    optimizer steps, too. `has_failed`: an exception ends the script in it.
    """

    window: Window
    role: Role
    clock: Clock
    events: list[Event] = field(default_factory=list)
    owner: Pass | None = None
    outer: Pass | None = None
    steps: int = 0
    is_ending: bool = False
    after_end: int = 0
    beside: WeakSet[Any] = field(default_factory=WeakSet)
    fetched: list[int] = field(default_factory=list)
    has_repeats: bool = False
    has_others: bool = False
    has_failed: bool = False

    def note(self, kind: Kind, source: Pass | None = None) -> None:
        """Note what is seen now."""
        self.events.append(Event(kind, self.clock.stamp(), source))

    def note_batch(
        self, batch: Any, source: Pass | None = None, *, batch_size: int | None
    ) -> None:
        """Note a batch that the script has now, with the samples that its loader has drawn for it.

        Where it draws none, they are `batch_size`; without that samples are tokens.
        """
        stamp = self.clock.stamp()  # before its tokens are counted
        drawn = source.drawn if source else 0
        samples = (drawn or batch_size) if batch_size else tokens_of(batch)
        self.events.append(Event(Kind.BATCH, stamp, source, samples))

    def note_step(self) -> bool:
        """Note that the optimizer has stepped; return whether it is the first of an iteration."""
        is_first = self._begins_iteration()
        for one_pass in self.read():
            if one_pass is not self.outer:
                self.beside.add(one_pass.loader)
        self.steps += is_first
        if self.outer:
            self.outer.steps += 1
        if self.is_ending:
            self.after_end += 1
        self.note(Kind.STEPPED if is_first else Kind.STEPPED_TOO)
        return is_first

    def _begins_iteration(self) -> bool:
        """Return whether a step is the first of an iteration.

        It is where the outermost pass was asked since the last one; where it has no more batches,
        unless the optimizer steps several times with each.
        """
        if not self.steps or self.outer is None or self.outer in self._asked():
            return True
        is_first = self.outer.is_read and not self.has_repeats
        self.has_repeats = not is_first
        return is_first

    def _asked(self) -> Iterator[Pass | None]:
        """Yield the passes that were asked since the last step of an iteration."""
        return (
            event.source for event in self._since_step() if event.kind is Kind.REQUEST
        )

    def _since_step(self) -> Iterator[Event]:
        """Yield the events since the last step of an iteration, the latest first."""
        return takewhile(
            lambda event: event.kind is not Kind.STEPPED, reversed(self.events)
        )

    def read(self) -> list[Pass]:
        """Return the passes that got a batch since the last step of an iteration, in order."""
        sources = [
            event.source for event in self._since_step() if event.kind is Kind.BATCH
        ]
        passes = dict.fromkeys(source for source in reversed(sources) if source)
        return [one_pass for one_pass in passes if not one_pass.is_over]

    def find_outer(self, batch_size: int | None) -> None:
        """Find the outermost pass: of those that were read since the last iteration the first.

        Where they have batches of other sizes, it is one with batches of this size.
        """
        passes = self.read()
        if passes and self.outer not in passes:
            outer = (one_pass for one_pass in passes if one_pass.drawn == batch_size)
            self.outer = next(outer, passes[0])

    def is_asked_by(self, source: Pass | None) -> bool:
        """Return whether a request of a pass, or a batch without one, can begin an iteration."""
        return self.outer is None or self.outer.is_over or self.outer is source

    def end_now(self) -> None:
        """End the window."""
        self.window.__exit__(None)

    def end_at_last_step(self) -> None:
        """End the window with its last step, or with the end of its pass if that is later."""
        while not self._is_last(self.events[-1]):
            self.events.pop()  # e.g. a batch that is not trained
        self.window.end_at(self.events[-1].stamp)

    def _is_last(self, event: Event) -> bool:
        is_end = (
            self.is_ending and event.kind is Kind.END and event.source is self.owner
        )
        return is_end or event.kind in STEPS


def parts_of(value: Any) -> Iterable[Any]:
    """Return the values of a mapping, a list, a tuple, or the attributes of an object."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, Mapping):
        return value.values()
    return getattr(value, "__dict__", {}).values()


def tokens_of(batch: Any, depth: int = 0) -> int:
    """Return the tokens of a batch: the first two dimensions of the first tensor in it; 0 if none.

    >>> import numpy as np
    >>> tokens_of([None, {"x": np.zeros((32, 128, 8)), "y": np.zeros(32)}]), tokens_of("name")
    (4096, 0)
    """
    shape = getattr(batch, "shape", None)
    if isinstance(shape, tuple):
        return int(prod(shape[:2])) if shape else 0
    if depth == DEPTH or isinstance(batch, str | bytes):
        return 0
    return next(
        filter(None, (tokens_of(part, depth + 1) for part in parts_of(batch))), 0
    )
