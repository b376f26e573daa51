"""The passes of a script over its loaders, and what is known of the loaders."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakSet, ref


@dataclass(eq=False, slots=True)
class Pass:
    """One pass over a loader, and the iterations of which it is the outermost pass.

    `before` is the pass that got the last batch when this one began; a test interrupts a training
    pass. `dropped` tells when nobody has the iterator any more. `in_thread`: another thread than
    the main one reads it. `length` are its batches, if the loader knows them; `drawn` the samples
    of the latest, 0 where its sampler draws none.
    """

    loader: Any
    before: "Pass | None" = None
    steps: int = 0
    batches: int = 0
    is_over: bool = False
    dropped: ref[Any] | None = None
    in_thread: bool = False
    length: int | None = None
    drawn: int = 0

    @property
    def is_read(self) -> bool:
        """Whether it has no more batches, as far as is known."""
        return self.is_over or self.batches == self.length


class Passes:
    """The passes over loaders of a process, and `steps`, the iterations that it trains.

    `latest` is the pass that got the last batch. `left` is the last one that the script left within
    an epoch for a new pass over its loader. `trained` are the loaders whose batches are trained,
    `tests` others.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.latest: Pass | None = None
        self.left: Pass | None = None
        self.trained: WeakSet[Any] = WeakSet()
        self.tests: WeakSet[Any] = WeakSet()

    def begin(self, loader: Any) -> Pass:
        """Return a new pass over a loader."""
        return Pass(loader, self.latest, length=_length(loader))

    def end(self, one_pass: Pass) -> None:
        """Note that a pass is over: the one that it interrupted goes on."""
        one_pass.is_over = True
        if self.latest is one_pass:
            self.latest = one_pass.before or one_pass

    def train(self, one_pass: Pass) -> None:
        """Note that the batches of a pass are trained: its loader is no test's from now on."""
        self.trained.add(one_pass.loader)
        self.tests.discard(one_pass.loader)

    def end_of_test(self, one_pass: Pass) -> None:
        """Note that a pass has ended without a step: its loader is a test's, unless it trains."""
        if one_pass.loader not in self.trained:
            self.tests.add(one_pass.loader)

    @property
    def training_pass(self) -> Pass | None:
        """The pass that got the last batch, if it may have more."""
        is_read = self.latest is not None and not self.latest.is_over
        return self.latest if is_read else None

    @property
    def reads_all(self) -> bool:
        """Whether the loader that got the last batch draws every sample of its data."""
        loader: Any = self.latest and self.latest.loader
        sampler = getattr(loader and loader.batch_sampler, "sampler", None)
        length = _length(sampler)
        return length is not None and length == _length(loader.dataset)

    @property
    def loader_workers(self) -> int:
        """The workers of the loader that got the last batch."""
        return int(self.latest.loader.num_workers) if self.latest else 0


def _length(loader: Any) -> int | None:
    """Return the length of a loader or a sampler, if it says so; a stream may be endless."""
    try:
        return len(loader)
    except TypeError:
        return None
