"""A training of a script from its first step on: its instruments and its measured windows."""

from math import ceil, inf
from statistics import median
from weakref import ref

import msgspec
from torch.optim import Optimizer

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.noise import LIKE, unlike
from hpml_jobs.core.script import READS_ALL
from hpml_jobs.worker.instruments.phases import EpochPhases
from hpml_jobs.worker.instruments.summary import time_epoch
from hpml_jobs.worker.instruments.timing import Clock, HostClock, Window
from hpml_jobs.worker.observer.calls import Calls, WatchedModel
from hpml_jobs.worker.observer.exchange import ExchangeRecorder
from hpml_jobs.worker.observer.iterations import Iterations, split_iterations
from hpml_jobs.worker.observer.launches import least_launch_s, waits_for_device
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

    Without `window` a window is a pass over a loader in which an optimizer steps, with it so many
    iterations. `calls` are those of the model of a script that reads no loader. `results` are those
    of the windows that count, `passes` the batches of all windows. `ahead`: the steps of an epoch
    after the loader has no more batches, because it is read ahead of training; None before the
    first epoch has ended. `other`: the last other optimizer that has stepped.
    """

    def __init__(
        self,
        subject: Subject,
        loaders: Passes,
        optimizer: Optimizer,
        window: tuple[int, int] | None,
        calls: Calls | None,
    ) -> None:
        self.window = window
        self.calls = calls
        self.results: list[MeasuredWindow] = []
        self.passes: list[int] = []
        self.ahead: int | None = None
        self.optimizer = id(optimizer)
        self.other: ref[Optimizer] | None = None
        self._subject = subject
        self._loaders = loaders
        self._unlike = ""
        self._clock: Clock = HostClock()
        self._devices = devices_of(optimizer)
        self.model = WatchedModel(optimizer, calls)
        self.exchange = ExchangeRecorder(self.model)
        self._writer = Writer(subject, optimizer, self._devices[0])
        self._meters = Meters(self._devices[0])
        self.write()

    @property
    def role(self) -> Role | None:
        """The role of the next window; None after the last one."""
        measured = [result.epoch.role for result in self.results]
        if self.exchange.missing:
            measured.append(Role.INSTRUMENTED)
        return next((role for role in ROLES if role not in measured), None)

    def most_iterations(self, role: Role) -> float:
        """Return the iterations after which a window ends; a pass that is profiled may go on."""
        warm_up, measured = self.window or (inf, inf)
        if role is Role.WARMUP:
            return warm_up
        profiled = self.exchange.profiler.most_iterations
        if role is Role.INSTRUMENTED and profiled:
            return min(measured, profiled)
        return measured

    def open(self) -> Recording | None:
        """Begin the next window, and return it; None if there is none."""
        with self._subject.start.apart():
            self.exchange.stop()
            role = self.role
            if role is None:
                return None
            if not self._clock.runs_behind_host:
                self._clock = clock_of(self._devices)
            self._clock.prepare(self._most_stamps(role))
            self._writer.report(role, self.results)
            recording = new_window(role, self._clock)
            if self.window and self.results:
                recording.fetched = self.results[-1].iterations.fetched
            self.exchange.start(recording, self._devices[0])
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
        is_profiled = (
            role is Role.INSTRUMENTED and self.exchange.profiler.most_iterations
        )
        if is_profiled and self.results:
            batches = self.results[-1].batches  # the pass may go on
        self.passes.append(batches)
        if self.results and batches < self.results[-1].batches:
            self._unlike = unlike(f"{self.results[-1].batches} batches", str(batches))
            self.exchange.stop()
            return
        if not self.results:
            self.ahead = recording.after_end
        is_ahead = bool(self.ahead) or any(
            result.iterations.ahead for result in self.results
        )
        iterations = split_iterations(recording.clock, recording, ahead=is_ahead)
        phases = self._split(recording, iterations, batches)
        self.exchange.stop()
        if phases or role is not Role.INSTRUMENTED:
            self._add(recording, iterations, batches, phases)
        if phases and recording.clock.runs_behind_host:
            self._add_launches(recording.clock, iterations)
        if role is Role.TIMED:
            self._meters.cards.read()
            self.exchange.prepare(iterations)
            self._writer.fingerprint(self.model.wrapper)
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
        if not self.has_trained(recording):
            self.exchange.missing = (
                "another optimizer steps now than in the first epoch"
            )
        elif batches > timed.batches:
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
        self._writer.add_optimizers(recording.optimizers)
        self.results.append(
            MeasuredWindow(epoch, iterations, batches, len(recording.events), phases)
        )

    def _add_launches(self, clock: Clock, instrumented: Iterations) -> None:
        """Add the host's time to the timed epoch where it launches all the time."""
        if waits_for_device(clock, instrumented):
            return
        number = ROLES.index(Role.TIMED)
        timed = self.results[number]
        launch_s = least_launch_s(timed.iterations)
        epoch = msgspec.structs.replace(timed.epoch, launch_s=launch_s)
        self.results[number] = timed._replace(epoch=epoch)

    def has_trained(self, recording: Recording) -> bool:
        """Return whether the optimizer of the first step has stepped in a window."""
        return self.optimizer in map(id, recording.optimizers)

    def find_next(self, recording: Recording) -> Optimizer | None:
        """Return the optimizer of the training that comes after this one, a pretraining.

        It is the last one of an epoch that has trained another model only; None without one.
        """
        if (
            recording.role is Role.WARMUP
            or not recording.owner
            or self.has_trained(recording)
        ):
            return None
        other = self.other() if self.other else None
        if other is None or not self._writer.is_other(other):
            return None
        return other

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
            model=self.model.module,
            wrapper=self.model.wrapper,
            ledger=self.exchange.ledger,
            loader_workers=self._loaders.loader_workers,
            cards=self._meters.cards.state,
            missing=self._missing(),
        )

    def _missing(self) -> list[str]:
        """Return a reason for each value that could not be measured."""
        missing = [*self._meters.missing]
        phases = self.exchange.missing or self._unlike or self.exchange.postponed
        if phases and not any(result.phases for result in self.results):
            missing.append(f"phases: {phases}")
        if self._subject.cell.processes > 1 and self._loaders.reads_all:
            missing.append(f"speedup of an epoch: {READS_ALL}")
        return missing
