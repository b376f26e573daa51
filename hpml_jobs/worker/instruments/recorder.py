"""Stamps of the iterations of an epoch: two each in a bare epoch, six in an instrumented one."""

from typing import NamedTuple

from hpml_jobs.worker.instruments import timing
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.timing import Clock, Stamp


class IterationMarks(NamedTuple):
    """The stamps of one instrumented iteration, each taken when the step beside it is done.

    On CUDA the device passes a stamp once it has finished all work queued before it.
    """

    batch: Stamp  # the loader has returned the batch
    copied: Stamp  # host-to-device copy
    forward: Stamp  # forward pass and loss
    backward: Stamp  # backward()
    exchanged: Stamp  # gradients are averaged over the ranks
    stepped: Stamp  # optimizer step and zero_grad, loss and hits added up


class BareRecorder:
    """Records the first and the last stamp of each iteration: batch returned, step done.

    `launches_s` are the times of the host between the two, in which it launches the work.
    """

    STAMPS = 2

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.marks: list[list[Stamp]] = []
        self.launches_s: list[float] = []
        self._began_ns = 0
        self._stamp = clock.stamp
        self._iteration: list[Stamp] = []

    def begin(self, index: int) -> None:
        """Record that the batch of iteration `index` has been returned."""
        del index
        self._began_ns = timing.perf_counter_ns()
        self._iteration = [self._stamp()]

    def mark(self) -> None:
        """Do nothing: a bare epoch has no stamps inside an iteration."""

    def end(self) -> None:
        """Record that the iteration is done."""
        self._iteration.append(self._stamp())
        self.marks.append(self._iteration)
        self.launches_s.append((timing.perf_counter_ns() - self._began_ns) / 1e9)


class PhaseRecorder(BareRecorder):
    """Records all of `IterationMarks`, and sets the ledger's current iteration."""

    STAMPS = len(IterationMarks._fields)

    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        super().__init__(clock)
        self._ledger = ledger

    def begin(self, index: int) -> None:
        """Record that the batch of iteration `index` has been returned."""
        super().begin(index)
        self._ledger.iteration = index

    def mark(self) -> None:
        """Record that the current phase is done."""
        self._iteration.append(self._stamp())
