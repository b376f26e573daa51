"""The states of a session whose windows are epochs: passes over a loader in which it trains."""

from typing import Any
from weakref import ref

import torch
from torch.optim import Optimizer

from hpml_jobs.worker.observer.passes import Pass
from hpml_jobs.worker.observer.recording import Kind, Recording
from hpml_jobs.worker.observer.states import Counting, Open, SessionProtocol
from hpml_jobs.worker.observer.training import ObservedTraining


class OfEpochs(Counting):
    """A training whose windows are epochs."""

    def is_elsewhere(self, optimizer: Optimizer) -> bool:
        """Note which optimizer steps; return whether windows are measured instead from now on.

        They are where another thread reads the loader, which hides its epochs.
        """
        if id(optimizer) != self._training.optimizer:
            self._training.other = ref(optimizer)
        latest = self._passes.latest
        if latest is None or not latest.in_thread:
            return False
        self._session.measure_windows(optimizer)
        return True


class BetweenEpochs(OfEpochs):
    """The next pass begins a window, unless its loader is a test's."""

    def begin_pass(self, loader: Any) -> Pass | None:
        """Begin a window."""
        if loader in self._passes.tests:
            return self.see_pass(loader)
        return self._session.open().see_pass(loader)

    def step(self, optimizer: Optimizer) -> None:
        """Count it."""
        if self.is_elsewhere(optimizer):
            return
        one_pass = self._passes.training_pass
        if one_pass:
            self._passes.train(one_pass)
        self._passes.steps += 1


class EpochBegun(Open, OfEpochs):
    """A window that has begun with a pass, of which it is not known whether it trains."""

    def begin_pass(self, loader: Any) -> Pass | None:
        """Begin the window anew, unless a batch was read in it, or the loader is a test's.

        One whose test was read to its end in the window may be trained now.
        """
        is_test = loader in self._passes.tests and not self._recording.has_ended(loader)
        if is_test or self._recording.read():
            return self.see_pass(loader)
        return self._session.open().see_pass(loader)

    def step(self, optimizer: Optimizer) -> None:
        """Note it if a pass is read: the window is an epoch of it; else count it."""
        if self.is_elsewhere(optimizer):
            return
        self._find_owner()
        if self._recording.owner is None:
            self._passes.steps += 1
            return
        self._session.state = InEpoch(self._session, self._training, self._recording)
        self._passes.steps += self._recording.note_step(optimizer)

    def _find_owner(self) -> None:
        """Find the pass whose end is that of the window."""
        recording = self._recording
        recording.find_outer(self._session.batch_size)
        recording.owner = recording.outer
        if recording.owner:
            self._passes.train(recording.owner)


class InEpoch(EpochBegun):
    """An epoch is trained: a pass that has batches left."""

    def begin_pass(self, loader: Any) -> Pass | None:
        """End the window with its last step if the script has left the pass for a new one."""
        owner = self._recording.owner
        if owner is None or owner.loader is not loader or self._is_testing():
            return self.see_pass(loader)
        self._passes.left = owner
        self._session.end_at_last_step(self._recording)
        return self._session.state.begin_pass(loader)

    def _is_testing(self) -> bool:
        """Return whether the script cannot train now: without gradients, or not for training."""
        model = self._training.model.inner
        return not torch.is_grad_enabled() or (model is not None and not model.training)

    def request(self, one_pass: Pass) -> None:
        """Note it; a window that is profiled may be full before its pass is over."""
        if one_pass is self._passes.left:
            self.refuse()
        elif self.is_full() and self._recording.is_asked_by(one_pass):
            self._session.end_now(self._recording)
        else:
            self._recording.note(Kind.REQUEST, one_pass)

    def end_pass(self, one_pass: Pass) -> None:
        """Note it; the window may end with its pass."""
        super().end_pass(one_pass)
        if one_pass is self._recording.owner:
            self.end_own_pass()

    def end_own_pass(self) -> None:
        """End the window, or wait for the steps of batches that were read ahead.

        How many these are is known after the first epoch of a training.
        """
        steps = self._training.ahead
        if self._training.find_next(self._recording) is not None:
            steps = None
        if steps == 0:
            self._session.end_now(self._recording)
        else:
            state = AfterPass(self._session, self._training, self._recording, steps)
            self._session.state = state

    def drop(self, one_pass: Pass) -> None:
        """End the window with its last step if it is its pass that the script has left."""
        is_left = one_pass is self._recording.owner and not one_pass.is_over
        super().drop(one_pass)
        if is_left:
            self._session.end_at_last_step(self._recording)

    def step(self, optimizer: Optimizer) -> None:
        """Note it; with the second iteration the outermost pass is known."""
        if self.is_elsewhere(optimizer):
            return
        recording = self._recording
        if recording.steps < 2 or (recording.owner and recording.owner.is_over):
            self._find_owner()
        self._passes.steps += recording.note_step(optimizer)

    def is_whole(self) -> bool:
        """Return whether the window has as many batches as the one before, or all iterations."""
        results, owner = self._training.results, self._recording.owner
        batches = results[-1].batches if results else None
        return self.is_full() or (owner is not None and owner.batches == batches)

    def close(self) -> None:
        """End the window if it is a whole one, and write the last result."""
        if self.is_whole() and not self._recording.has_failed:
            self._session.end_at_last_step(self._recording)
        self._session.end()


class AfterPass(InEpoch):
    """The pass of the window has no more batches, but some that were read ahead may be trained.

    `steps` are those to come; None where the window is the first one of a training. It then ends
    where another pass begins.
    """

    def __init__(
        self,
        session: SessionProtocol,
        training: ObservedTraining,
        recording: Recording,
        steps: int | None,
    ) -> None:
        super().__init__(session, training, recording)
        self._steps = steps
        recording.is_ending = True

    def begin_pass(self, loader: Any) -> Pass | None:
        """End the window with its last step, unless the loader is read beside its pass."""
        if self._recording.is_read_beside(loader):
            return self.see_pass(loader)
        self._session.end_at_last_step(self._recording)
        return self._session.state.begin_pass(loader)

    def end_own_pass(self) -> None:
        """Do nothing: a loader that is read ahead is asked again."""

    def step(self, optimizer: Optimizer) -> None:
        """Note it, and end the window with the last one."""
        if self.is_elsewhere(optimizer):
            return
        self._passes.steps += self._recording.note_step(optimizer)
        if self._steps is not None and self._recording.after_end >= self._steps:
            self._session.end_now(self._recording)

    def is_whole(self) -> bool:
        """Return True: the pass has all of its batches."""
        return True
