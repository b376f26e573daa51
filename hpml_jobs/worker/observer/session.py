"""The measurement of a script in one of its processes: which windows its events begin and end.

| event | before the first step | epochs of a loader | windows of iterations |
|---|---|---|---|
| pass begins | begin a warm-up | begin an epoch (1) | – |
| batch requested | note | note | note |
| pass ended | note | end the epoch (2) | note |
| pass dropped | – | end the epoch with its last step | – |
| stepped | begin the training | note: what is read is the epoch's | note; end a full window |
| model called | – | – | note a batch, if there is no loader |
| process ends | – | end the epoch if it is whole | end the window if it is full |

(1) Anew if no batch was read in the one that is open; after the one that is open if its own loader
is begun again to train. (2) After the step of a batch that was read ahead.

Warm-up, timed and instrumented windows begin and end alike: a role says what is recorded.
"""

from multiprocessing.util import Finalize
from typing import Any

import torch
from torch.optim import Optimizer

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.stack_files import write_stacks_on_signals
from hpml_jobs.worker.instruments.timing import HostClock
from hpml_jobs.worker.observer import refusals
from hpml_jobs.worker.observer.passes import Pass, Passes
from hpml_jobs.worker.observer.process import Start, global_rank, guarded, is_capturing
from hpml_jobs.worker.observer.recording import Kind, Recording
from hpml_jobs.worker.observer.result import Subject
from hpml_jobs.worker.observer.training import ObservedTraining, new_window

USUAL_WINDOW = (50, 200)
"""window= of a script without a loader, or with one that does not say how long it is."""


class Session:
    """The measurement of a process.

    `training` is None until an optimizer steps, `recording` while no window is open.
    """

    def __init__(self, start: Start) -> None:
        self.subject = Subject.read(start)
        write_stacks_on_signals(str(self.subject.folder.stacks_of(global_rank(start))))
        self.passes = Passes()
        self.training: ObservedTraining | None = None
        self.recording: Recording | None = None
        self._is_over = False

    @property
    def is_watching(self) -> bool:
        """Whether an event is to be seen: none inside of a CUDA graph, which takes no stamps."""
        if self._is_over:
            return False
        if is_capturing():
            self._say(refusals.IN_GRAPH)
            return False
        return True

    def _say(self, reason: str) -> None:
        """Note a reason why there may be no result."""
        self.subject.start.note(reason.format(script=self.subject.script.path))

    def begin_pass(self, loader: Any) -> Pass:
        """See that an iterator of a loader is made; return its pass."""
        if self.training is None:
            self._await_training()
        elif not self.training.window:
            self._begin_epoch(loader)
        one_pass = self.passes.begin(loader)
        self.request(one_pass)
        return one_pass

    def _await_training(self) -> None:
        """Begin what may be the warm-up: the device is unknown until an optimizer steps.

        With window= it begins with the first loader that is read, without it with the loader that
        is read when the first step comes.
        """
        recording = self.recording
        if recording and (self.subject.script.window or recording.read()):
            return
        self.recording = new_window(Role.WARMUP, HostClock())
        self.recording.window.__enter__()

    def _begin_epoch(self, loader: Any) -> None:
        """Begin a window with a pass, unless it is read within the one that is open."""
        recording = self.recording
        if recording and recording.owner:
            if not self._is_left(recording, recording.owner, loader):
                return
            self._end(recording)
        elif recording and recording.read():
            return
        self._open()

    def _is_left(self, recording: Recording, owner: Pass, loader: Any) -> bool:
        """Return whether a pass over a loader begins after the epoch that is open."""
        if recording.is_ending:
            return loader is owner.loader or loader not in recording.beside
        if owner.loader is not loader or self._is_testing():
            return False
        self.passes.left = owner
        return True

    def _is_testing(self) -> bool:
        """Return whether the script cannot train now: without gradients, or not for training."""
        model = self.training.model.inner if self.training else None
        return not torch.is_grad_enabled() or (model is not None and not model.training)

    def request(self, one_pass: Pass) -> None:
        """See that the script asks for a batch."""
        if one_pass is self.passes.left:
            self._refuse(refusals.READS_ON)
            return
        self._note(Kind.REQUEST, one_pass)

    def _note(self, kind: Kind, one_pass: Pass) -> None:
        """Note what is seen of a pass, if a window is open."""
        if self.recording:
            self.recording.note(kind, one_pass)

    def _is_full(self, recording: Recording) -> bool:
        if self.training is None:
            return False
        return recording.steps >= self.training.most_iterations(recording.role)

    def make(self, one_pass: Pass) -> None:
        """See that the script has the iterator that it asked for, or an exception."""
        self._note(Kind.MADE, one_pass)

    def receive(self, one_pass: Pass, batch: Any) -> None:
        """See that the script gets a batch."""
        one_pass.batches += 1
        self.passes.latest = one_pass
        if self.recording:
            batch_size = self.subject.batch_size
            self.recording.note_batch(batch, one_pass, batch_size=batch_size)

    def end_pass(self, one_pass: Pass) -> None:
        """See that the script is told that a pass has no more batches.

        Whether a step is to come is known after the first epoch.
        """
        self.passes.end(one_pass)
        self._note(Kind.END, one_pass)
        recording = self.recording
        if recording and one_pass is recording.owner:
            recording.is_ending = True
            self._end_after_steps(recording)

    def _end_after_steps(self, recording: Recording) -> None:
        """End an epoch whose pass is over after the step of the batch that was read ahead."""
        ahead = self.training.ahead if self.training else None
        if recording.is_ending and ahead is not None and recording.after_end >= ahead:
            self._end(recording, is_now=True)

    def drop(self, one_pass: Pass) -> None:
        """See that the script has left a pass, before its end or after it."""
        if one_pass.is_over:
            return
        self.passes.end(one_pass)
        if self.recording and one_pass is self.recording.owner:
            self._end(self.recording)

    def begin_step(self, optimizer: Optimizer) -> None:
        """See that an optimizer begins to step."""
        if self.training and self.training.is_own(optimizer):
            self.training.exchange.begin_step()

    def step(self, optimizer: Optimizer) -> None:
        """See that an optimizer has stepped: an iteration is a step of the first one."""
        training = self.training or self._begin_training(optimizer)
        if not training.is_own(optimizer):
            self._step_other(training)
            return
        training.model.awaits_batch = True
        if self.recording and self.passes.goes_on_in_thread:
            self._refuse(refusals.IN_THREAD)
            return
        self.passes.steps += 1
        recording = self.recording
        if recording:
            self._find_outer(training, recording)
        if recording and (training.window or recording.owner):
            self._end_iteration(recording)
        elif training.window:
            self._open()

    def _end_iteration(self, recording: Recording) -> None:
        """See that the optimizer has stepped in a window."""
        if recording.owner and recording.steps and not recording.has_batch:
            self._refuse(refusals.WITHOUT_BATCH)
            return
        recording.note_step()
        self._end_after_steps(recording)
        if self._is_full(recording):
            self._end(recording, is_now=True)
            self._open()

    def _begin_training(self, optimizer: Optimizer) -> ObservedTraining:
        """Learn what steps here; its warm-up is the window that is open."""
        one_pass, window = self.passes.training_pass, self.subject.script.window
        if one_pass is None or not one_pass.length:
            window = window or USUAL_WINDOW
        with self.subject.start.apart():
            self.training = ObservedTraining(
                self.subject,
                self.passes,
                optimizer,
                window,
                None if one_pass else self.call,
            )
        # Children of multiprocessing run no atexit, and the interpreter runs these at its end.
        Finalize(self, self.close, exitpriority=100)
        return self.training

    def _step_other(self, training: ObservedTraining) -> None:
        """See that another optimizer than the first has stepped."""
        if training.model.finds_batches:
            self._refuse(refusals.SEVERAL_OPTIMIZERS)
        elif self.recording:
            self.recording.has_others = True

    def _find_outer(self, training: ObservedTraining, recording: Recording) -> None:
        """Find the outermost pass: with the second iteration it is known, and ends an epoch."""
        if training.window is None:
            if recording.steps < 2 and not recording.is_ending:
                recording.find_outer()
                recording.owner = recording.outer
        elif recording.outer is None or recording.outer.is_over:
            recording.find_outer()

    def call(self, inputs: Any) -> None:
        """See that a script without a loader calls its model with a batch to train."""
        if self.recording:
            self.recording.note_batch(inputs, batch_size=self.subject.batch_size)

    def fail(self) -> None:
        """See that an exception ends the script: the window is no whole one."""
        if self.recording:
            self.recording.has_failed = True

    def _open(self) -> None:
        """Begin the next window, if there is one."""
        training = self.training
        if training and training.role:
            self.recording = training.open(training.role)

    def _end(self, recording: Recording, *, is_now: bool = False) -> None:
        """End a window now or with its last step, take its times, and leave after the last one."""
        if is_now:
            recording.window.__exit__(None)
        else:
            recording.end_at_last_step()
        self.recording, training = None, self.training
        if training is None:
            return
        with self.subject.start.apart():
            training.take(recording)
            if training.role:
                return
            training.model.unwatch()
            if self.subject.script.stop:
                training.leave()

    def _refuse(self, reason: str) -> None:
        """End the measurement without a result."""
        self._is_over = True
        self.release()
        with self.subject.start.apart():
            self._say(reason)
            if self.training:
                self.training.results.clear()
                self.training.write()

    @guarded
    def close(self) -> None:
        """See that the process ends: write the last result, and leave nothing behind."""
        recording, training = self.recording, self.training
        if training and self.is_watching:
            with self.subject.start.apart():
                if recording and self._is_whole(training, recording):
                    self._end(recording)
                self._is_over = True
                training.write()
        self.release()

    def _is_whole(self, training: ObservedTraining, recording: Recording) -> bool:
        """Return whether a window has all its iterations, or the batches of the one before."""
        if recording.has_failed or not recording.steps:
            return False
        if recording.owner is None:
            return self._is_full(recording)
        batches = training.results[-1].batches if training.results else None
        return recording.is_ending or recording.owner.batches == batches

    def release(self) -> None:
        """Undo all that a window has changed in the script."""
        if self.training:
            self.training.exchange.stop()
