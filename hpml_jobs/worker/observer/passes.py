"""The passes of a script over its loaders."""

from dataclasses import dataclass
from typing import Any
from weakref import ref


@dataclass(eq=False, slots=True)
class Pass:
    """One pass over a loader, and the iterations of which it is the outermost pass.

    `before` is the pass that got the last batch when this one began; a test interrupts a training
    pass. `dropped` tells when nobody has the iterator any more. `length` are its batches, if the
    loader knows them; `drawn` the samples of the latest, 0 where its sampler draws none.
    `in_thread`: another thread than the main one has read it.
    """

    loader: Any
    before: "Pass | None" = None
    steps: int = 0
    batches: int = 0
    is_over: bool = False
    dropped: ref[Any] | None = None
    length: int | None = None
    drawn: int = 0
    in_thread: bool = False


class Passes:
    """The passes over loaders of a process, and `steps`, the iterations that it trains.

    `latest` is the pass that got the last batch. `left` is the last one that the script left within
    an epoch for a new pass over its loader.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.latest: Pass | None = None
        self.left: Pass | None = None

    def begin(self, loader: Any) -> Pass:
        """Return a new pass over a loader."""
        return Pass(loader, self.latest, length=_length(loader))

    def end(self, one_pass: Pass) -> None:
        """Note that a pass is over: the one that it interrupted goes on."""
        one_pass.is_over = True
        if self.latest is one_pass:
            self.latest = one_pass.before or one_pass

    @property
    def training_pass(self) -> Pass | None:
        """The pass that got the last batch, if it may have more."""
        is_read = self.latest is not None and not self.latest.is_over
        return self.latest if is_read else None

    @property
    def goes_on_in_thread(self) -> bool:
        """Whether another thread reads the pass that got the last batch of the main thread."""
        return self.latest is not None and self.latest.in_thread

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
