"""The states of a session without a window, and in a window of a number of iterations.

`session.py` has the table of all states.
"""

from typing import Any, Protocol

import torch
from torch.optim import Optimizer

from hpml_jobs.core.measurements import Role
from hpml_jobs.worker.observer.passes import Pass, Passes
from hpml_jobs.worker.observer.recording import Kind, Recording
from hpml_jobs.worker.observer.result import Subject
from hpml_jobs.worker.observer.training import ObservedTraining

StepArguments = tuple[tuple[Any, ...], dict[str, Any]]


class State:
    """What is done at each event. Here: nothing, when the measurement is over or cannot go on."""

    def begin_pass(self, loader: Any) -> Pass | None:
        """See that an iterator of a loader is made; return its pass, if it is to be seen."""
        del loader
        return None

    def request(self, one_pass: Pass) -> None:
        """See that the script asks for a batch."""

    def make(self, one_pass: Pass) -> None:
        """See that the script has the iterator that it asked for, or an exception."""

    def receive(self, one_pass: Pass, batch: Any) -> None:
        """See that the script gets a batch."""

    def end_pass(self, one_pass: Pass) -> None:
        """See that the script is told that a pass has no more batches."""

    def drop(self, one_pass: Pass) -> None:
        """See that the script has left a pass, before its end or after it."""

    def begin_step(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> StepArguments | None:
        """See that an optimizer begins to step; return other arguments for it, if there are."""
        del args, options
        return None

    def step(self, optimizer: Optimizer) -> None:
        """See that an optimizer has stepped."""

    def call(self, inputs: Any) -> None:
        """See that a script without a loader calls its model, maybe to train it."""

    def use_profiler(self) -> None:
        """See that the script begins to use torch's profiler."""

    def fail(self) -> None:
        """See that an exception ends the script."""

    def close(self) -> None:
        """See that the process ends."""


NOTHING = State()
"""The state in which no event is seen."""


class SessionProtocol(Protocol):
    """What a state uses of its session."""

    subject: Subject
    passes: Passes
    batch_size: int | None
    state: State

    def open(self) -> "Counting":
        """Begin the next window, if there is one; return the state that follows."""

    def end_now(self, recording: Recording) -> None:
        """End a window now, and take its times."""

    def end_at_last_step(self, recording: Recording) -> None:
        """End a window that the script has left, with its last step, and take its times."""

    def measure_windows(self, optimizer: Optimizer) -> None:
        """Begin anew at a step, with windows of iterations instead of epochs."""

    def refuse(self, reason: str) -> None:
        """End the measurement without a result."""

    def end(self) -> None:
        """End the measurement with the process, and write its last result."""


class Counting(State):
    """A training is known, and no window is open: passes and steps are counted."""

    def __init__(self, session: SessionProtocol, training: ObservedTraining) -> None:
        self._session = session
        self._training = training
        self._passes = session.passes

    def begin_pass(self, loader: Any) -> Pass | None:
        """Count it."""
        return self.see_pass(loader)

    def see_pass(self, loader: Any) -> Pass:
        """Return a new pass, whose iterator is asked for now."""
        one_pass = self._passes.begin(loader)
        self.request(one_pass)
        return one_pass

    def request(self, one_pass: Pass) -> None:
        """End without a result if the script had left this pass for another epoch."""
        if one_pass is self._passes.left:
            self.refuse()

    def refuse(self) -> None:
        """End the measurement: the script reads a pass further that was taken for an epoch."""
        self._session.refuse(
            f"{self._session.subject.script.path} reads the loader that it trains on within an "
            "epoch of it, so its epochs cannot be told apart: give the iterations to warm up and "
            "to time, e.g. window=50,200"
        )

    def receive(self, one_pass: Pass, batch: Any) -> None:
        """Count it."""
        del batch
        one_pass.batches += 1
        self._passes.latest = one_pass

    def end_pass(self, one_pass: Pass) -> None:
        """Count it; a loader that is read to its end without a step is a test's."""
        self._passes.end(one_pass)
        self._passes.end_of_test(one_pass)

    def drop(self, one_pass: Pass) -> None:
        """Count it."""
        if not one_pass.is_over:
            self._passes.end(one_pass)

    def step(self, optimizer: Optimizer) -> None:
        """Count it."""
        del optimizer
        self._passes.steps += 1

    def close(self) -> None:
        """Write the last result."""
        self._session.end()


class Done(Counting):
    """All windows are measured; the script goes on."""


class Open(Counting):
    """A window is open, and its events are noted."""

    def __init__(
        self, session: SessionProtocol, training: ObservedTraining, recording: Recording
    ) -> None:
        super().__init__(session, training)
        self._recording = recording
        self._most = training.most_iterations(recording.role)

    def request(self, one_pass: Pass) -> None:
        """Note it."""
        if one_pass is self._passes.left:
            self.refuse()
        else:
            self._recording.note(Kind.REQUEST, one_pass)

    def make(self, one_pass: Pass) -> None:
        """Note it."""
        self._recording.note(Kind.MADE, one_pass)

    def receive(self, one_pass: Pass, batch: Any) -> None:
        """Note it."""
        one_pass.batches += 1
        self._passes.latest = one_pass
        self._recording.note_batch(batch, one_pass, batch_size=self._session.batch_size)
        self._training.exchange.profiler.count_batch()

    def end_pass(self, one_pass: Pass) -> None:
        """Note it."""
        super().end_pass(one_pass)
        self._recording.note(Kind.END, one_pass)

    def begin_step(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> StepArguments | None:
        """Note it in an instrumented window."""
        if self._recording.role is not Role.INSTRUMENTED:
            return None
        return self._training.exchange.begin_step(args, options)

    def use_profiler(self) -> None:
        """End that of this window: there is only one in a process."""
        self._training.exchange.profiler.cut("the script has one of its own")

    def fail(self) -> None:
        """Remember it: the window is no whole one."""
        self._recording.has_failed = True

    def is_full(self) -> bool:
        """Return whether the window has all of its iterations."""
        return self._recording.steps >= self._most


class InWindow(Open):
    """A window of a number of iterations."""

    def request(self, one_pass: Pass) -> None:
        """Note it, in the next window if this one is full."""
        if self.is_full() and self._recording.is_asked_by(one_pass):
            self._session.end_now(self._recording)
            self._session.open().request(one_pass)
            return
        self._recording.note(Kind.REQUEST, one_pass)

    def call(self, inputs: Any) -> None:
        """Note it as a request of a batch that the script has."""
        calls = self._training.calls
        if calls is None or not torch.is_grad_enabled():
            return
        if calls.settle():
            self._training.exchange.profiler.count_batch()
        if self.is_full() and self._recording.is_asked_by(None):
            self._session.end_now(self._recording)
            self._session.open().call(inputs)
            return
        calls.begin(self._recording, inputs, batch_size=self._session.batch_size)

    def step(self, optimizer: Optimizer) -> None:
        """Note it."""
        recording, calls = self._recording, self._training.calls
        if calls:
            if calls.settle():
                self._training.exchange.profiler.count_batch()
            calls.forget()
        elif recording.outer is None or recording.outer.is_over:
            recording.find_outer(self._session.batch_size)
        self._passes.steps += recording.note_step(optimizer)

    def close(self) -> None:
        """End the window if it is full, and write the last result."""
        if self._recording.steps and self.is_full() and not self._recording.has_failed:
            self._session.end_at_last_step(self._recording)
        self._session.end()
