"""A training of a script from its first step on: its instruments and its measured windows."""

import gc
from collections.abc import Callable
from math import ceil, inf
from statistics import median
from typing import Any
from weakref import ref

from torch.optim import Optimizer

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.outliers import LIKE, unlike
from hpml_jobs.core.script import READS_ALL
from hpml_jobs.worker.instruments.phases import EpochPhases
from hpml_jobs.worker.instruments.summary import time_epoch
from hpml_jobs.worker.instruments.timing import Clock, HostClock, Window
from hpml_jobs.worker.observer.calls import WatchedModel
from hpml_jobs.worker.observer.exchange import ExchangeRecorder
from hpml_jobs.worker.observer.iterations import Iterations, split_iterations
from hpml_jobs.worker.observer.meters import Meters, clock_of, devices_of
from hpml_jobs.worker.observer.passes import Passes
from hpml_jobs.worker.observer.recording import Recording
from hpml_jobs.worker.observer.result import (
    Findings,
    MeasuredWindow,
    Subject,
    Writer,
)

SPARE_SHARE = 0.1
"""Stamps to spare: an iteration may have a test of its own, or the end of a pass."""

OTHER_STAMPS = 40
"""Stamps of the beginning of a trace, and of a window's ends."""

ROLES = (Role.WARMUP, Role.TIMED, Role.INSTRUMENTED)
"""The windows of a training, in order."""


def new_window(role: Role, clock: Clock) -> Recording:
    """Return a window that has not begun; no rank waits for others there."""
    return Recording(Window(clock, lambda: None), role, clock)


class ObservedTraining:
    """What is known of a training, and its windows, one after the other.

    Without `window` a window is a pass over a loader in which the optimizer steps, with it so many
    iterations. `see_batch` is called with each batch of a script that reads no loader. `results`
    are those of the windows that count, `passes` the batches of all windows. `ahead`: a step comes
    after the loader has no more batches, because it is read ahead of training; None before the
    first window has ended.
    """

    def __init__(
        self,
        subject: Subject,
        loaders: Passes,
        optimizer: Optimizer,
        window: tuple[int, int] | None,
        see_batch: Callable[[Any], None] | None,
    ) -> None:
        self.window = window
        self.results: list[MeasuredWindow] = []
        self.passes: list[int] = []
        self.ahead: bool | None = None
        self._optimizer = ref(optimizer)
        self._subject = subject
        self._loaders = loaders
        self._unlike = ""
        self._clock: Clock = HostClock()
        self._devices = devices_of(optimizer)
        self.model = WatchedModel(optimizer, see_batch)
        self.exchange = ExchangeRecorder(self.model)
        self._writer = Writer(subject, self._devices[0])
        self._meters = Meters(self._devices[0])
        self.write()

    def is_own(self, optimizer: Optimizer) -> bool:
        """Return whether an optimizer is the one whose steps are measured."""
        return self._optimizer() is optimizer

    @property
    def role(self) -> Role | None:
        """The role of the next window; None after the last one."""
        measured = [result.epoch.role for result in self.results]
        if self.exchange.missing:
            measured.append(Role.INSTRUMENTED)
        return next((role for role in ROLES if role not in measured), None)

    def most_iterations(self, role: Role) -> float:
        """Return the iterations after which a window ends."""
        warm_up, measured = self.window or (inf, inf)
        return warm_up if role is Role.WARMUP else measured

    def open(self, role: Role) -> Recording:
        """Begin the next window, and return it."""
        with self._subject.start.apart():
            self.exchange.stop()
            if not self._clock.runs_behind_host:
                self._clock = clock_of(self._devices)
            self._clock.prepare(self._most_stamps(role))
            self._writer.report(role, self.results)
            gc.collect()  # else the objects of the last window make Python collect in this one
            recording = new_window(role, self._clock)
            if self.window and self.results:
                recording.fetched = self.results[-1].iterations.fetched
            self.exchange.start(recording)
            self._meters.start()
        recording.window.__enter__()
        return recording

    def _most_stamps(self, role: Role) -> int:
        """Return how many stamps a window takes at most, as the windows before it show."""
        if not self.results:  # the warm-up may create events
            return OTHER_STAMPS
        lengths = [len(result.iterations.samples) for result in self.results]
        iterations = self.window[1] if self.window else max(lengths)
        last = self.results[-1]
        by_iteration = last.events / max(1, lengths[-1])
        by_iteration += self.exchange.stamps(role, last.iterations)
        return OTHER_STAMPS + ceil((1 + SPARE_SHARE) * by_iteration * iterations)

    def take(self, recording: Recording) -> None:
        """Take the times of a window that has ended, if it is a whole one."""
        role = recording.role
        batches = recording.owner.batches if recording.owner else 0
        self.passes.append(batches)
        if self.results and batches < self.results[-1].batches:
            self._unlike = unlike(f"{self.results[-1].batches} batches", str(batches))
            self.exchange.stop()
            return
        if not self.results:
            self.ahead = recording.after_end > 0
        iterations = split_iterations(recording, ahead=self.ahead is True)
        self.ahead = self.ahead or iterations.ahead
        phases = self._split(recording, iterations, batches)
        self.exchange.stop()
        if phases or role is not Role.INSTRUMENTED:
            self._add(recording, iterations, batches, phases)
        if role is Role.TIMED:
            self._meters.cards.read()
            self.exchange.prepare(recording, iterations)
            self._writer.fingerprint(self.model)
        self.write()

    def _split(
        self, recording: Recording, iterations: Iterations, batches: int
    ) -> EpochPhases | None:
        """Return the phases of an instrumented window, if it has phases."""
        if recording.role is not Role.INSTRUMENTED:
            return None
        timed = self.results[-1]
        size, timed_size = (
            median(of_window.samples) for of_window in (iterations, timed.iterations)
        )
        if batches > timed.batches:
            self.exchange.missing = unlike(f"{timed.batches} batches", str(batches))
        elif abs(size - timed_size) > LIKE * timed_size:
            samples = f"{timed_size:g} samples an iteration"
            self.exchange.missing = unlike(samples, f"{size:g}")
        else:
            return self.exchange.split(recording, iterations)
        return None

    def _add(
        self,
        recording: Recording,
        iterations: Iterations,
        batches: int,
        phases: EpochPhases | None,
    ) -> None:
        """Add the result of a window that counts."""
        epoch = time_epoch(
            recording.role,
            recording.window,
            iterations.times,
            iterations.samples,
            phases.phases if phases else None,
        )
        if recording.role is not Role.WARMUP:
            epoch = self._meters.add_to(epoch)
        self.results.append(
            MeasuredWindow(epoch, iterations, batches, len(recording.events), phases)
        )

    def write(self) -> None:
        """Write what is known."""
        self._writer.write(self._findings())

    def leave(self) -> None:
        """End the process after the last window, if all processes come to it."""
        self._writer.leave(self._findings())

    def _findings(self) -> Findings:
        return Findings(
            results=self.results,
            passes=self.passes,
            steps=self._loaders.steps,
            window=self.window,
            model=self.model,
            ledger=self.exchange.ledger,
            loader_workers=self._loaders.loader_workers,
            cards=self._meters.cards.state,
            missing=self._missing(),
        )

    def _missing(self) -> list[str]:
        """Return a reason for each value that could not be measured."""
        missing = [*self._meters.missing]
        phases = self.exchange.missing or self._unlike
        if phases and not any(result.phases for result in self.results):
            missing.append(f"phases: {phases}")
        if self._subject.cell.processes > 1 and self._loaders.reads_all:
            missing.append(f"speedup of an epoch: {READS_ALL}")
        return missing
