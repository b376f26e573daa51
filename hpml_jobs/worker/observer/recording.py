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
    STEPPED = 6
    MADE = 7  # it has the iterator that it asked for, or an exception


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
    pass has no more batches, but one that was read ahead may be trained; `after_end` are the steps
    since then. `beside` are loaders that are read between the steps of another's pass.
    `fetched` are the samples of the batch that the windows before it have fetched, but not trained.
    `has_others`: another optimizer steps, too. `has_failed`: an exception ends the script in it.
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

    def note_step(self) -> None:
        """Note that the optimizer has stepped: an iteration is over."""
        for one_pass in self.read():
            if one_pass is not self.outer:
                self.beside.add(one_pass.loader)
        self.steps += 1
        if self.outer:
            self.outer.steps += 1
        self.after_end += self.is_ending
        self.note(Kind.STEPPED)

    @property
    def has_batch(self) -> bool:
        """Whether a step may be of a batch of its own: one at most comes after the last batch."""
        is_asked = any(event.source is self.outer for event in self._since_step())
        return is_asked and not self.after_end

    def _since_step(self) -> Iterator[Event]:
        """Yield the events since the last step, the latest first."""
        return takewhile(
            lambda event: event.kind is not Kind.STEPPED, reversed(self.events)
        )

    def read(self) -> list[Pass]:
        """Return the passes that got a batch since the last step, in order."""
        sources = [
            event.source for event in self._since_step() if event.kind is Kind.BATCH
        ]
        passes = dict.fromkeys(source for source in reversed(sources) if source)
        return [one_pass for one_pass in passes if not one_pass.is_over]

    def find_outer(self) -> None:
        """Find the outermost pass: of those that were read since the last iteration the first."""
        passes = self.read()
        if passes and self.outer not in passes:
            self.outer = passes[0]

    def end_at_last_step(self) -> None:
        """End the window with its last step, or with the end of its pass if that is later."""
        while not self._is_last(self.events[-1]):
            self.events.pop()  # e.g. a batch that is not trained
        self.window.end_at(self.events[-1].stamp)

    def _is_last(self, event: Event) -> bool:
        is_end = (
            self.is_ending and event.kind is Kind.END and event.source is self.owner
        )
        return is_end or event.kind is Kind.STEPPED


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
