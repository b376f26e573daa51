"""The phases and the exchange of gradients of a script under DDP, recorded in one window."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import Any

from torch.distributed.distributed_c10d import _get_default_group

from hpml_jobs.core.measurements import Role
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import EpochPhases, split_phases
from hpml_jobs.worker.observer import hooks, refusals
from hpml_jobs.worker.observer.calls import WatchedModel, is_compiled
from hpml_jobs.worker.observer.hooks import GuardedLedger
from hpml_jobs.worker.observer.iterations import Iterations
from hpml_jobs.worker.observer.marks import MicroStep, mark_phases
from hpml_jobs.worker.observer.process import (
    WRAPPERS,
    guarded,
    has_group,
    is_capturing,
    world_size,
)
from hpml_jobs.worker.observer.recording import Kind, Recording

PASSES = 3
"""Forward passes of a batch, each with two stamps; stamps of the steps of an iteration."""

MESSAGES = 15
"""Messages of an iteration where DDP does not know theirs."""

OWN_LIMIT = 0.1
"""Collectives of the script in an iteration, beside those of DDP, which may not be recorded."""


def _collectives_called() -> int:
    """Return how many collectives the process group has had, those of DDP included; 0: unknown."""
    if not has_group():
        return 0
    try:
        return int(_get_default_group()._get_sequence_number_for_group())  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # a backend without numbers
        return 0


class ExchangeRecorder:
    """The instruments of a script's instrumented window.

    `missing` is the reason why phases and exchange are not split; None where they are. `ledger` is
    that of the instrumented window.
    """

    def __init__(self, model: WatchedModel) -> None:
        self.model = model
        self.ledger: Ledger | None = None
        self.missing: str | None = None
        self._recording: Recording | None = None
        self._called_before = 0
        self._undo: list[Callable[[], Any]] = []

    def prepare(self, recording: Recording, iterations: Iterations) -> None:
        """Make ready to record a window like the one that ended, or say in `missing` why not."""
        module = self.model.module
        if recording.has_others:
            self.missing = refusals.SEVERAL
        elif module is None:
            self.missing = refusals.NO_MODEL
        # what is changed in a compiled wrapper would be compiled anew
        elif WRAPPERS and is_compiled(module):
            self.missing = refusals.COMPILED_WRAPPER
        elif world_size() == 1:
            return
        elif self._sends_more(iterations) or not hooks.hook_into_wrappers(module):
            self.missing = refusals.NOT_BY_DDP

    def _sends_more(self, iterations: Iterations) -> bool:
        """Return whether the window that ended had more collectives than DDP's."""
        called = _collectives_called() - self._called_before
        most = hooks.most_messages(iterations.accumulate) + OWN_LIMIT
        return called > most * len(iterations.samples)

    def stamps(self, role: Role, before: Iterations) -> int:
        """Return how many stamps an iteration needs at most, beside those of the session.

        `before` are the iterations of the window before.
        """
        if role is not Role.INSTRUMENTED:
            return 0
        batches = max(1, before.accumulate)
        messages = hooks.most_messages(batches) if hooks.HOOKS else 0
        of_messages = 2 * ceil(messages if messages < inf else MESSAGES)
        return 2 * PASSES * batches + PASSES + of_messages

    def start(self, recording: Recording) -> None:
        """Begin to record phases and messages in an instrumented window."""
        self._called_before = _collectives_called()
        if recording.role is not Role.INSTRUMENTED or self.model.module is None:
            return
        self._recording = recording
        self.model.watch(recording)
        self.ledger = GuardedLedger(recording.clock)
        self._undo = hooks.record_messages(self.current_ledger)

    def stop(self) -> None:
        """Undo what `start` did."""
        while self._undo:
            self._undo.pop()()
        if self._recording:
            self._recording = None
            self.model.watch(None)

    def begin_step(self) -> None:
        """Note that the gradients are there."""
        if self._recording:
            self._recording.note(Kind.STEP)

    @guarded
    def current_ledger(self) -> GuardedLedger | None:
        """Return the ledger, for a message that begins now and does not go into a CUDA graph."""
        if (
            self._recording is None
            or not isinstance(self.ledger, GuardedLedger)
            or is_capturing()
        ):
            return None
        # of which `_number` makes the step
        self.ledger.iteration = len(self._recording.events)
        return self.ledger

    def _sent_more(self, ledger: Ledger, iterations: Iterations) -> bool:
        """Return whether the script has sent more in a window than was recorded."""
        called = _collectives_called() - self._called_before
        of_script = called - len(ledger.collectives)
        return world_size() > 1 and of_script > OWN_LIMIT * len(iterations.samples)

    def split(self, recording: Recording, iterations: Iterations) -> EpochPhases | None:
        """Return the phases of the instrumented window; None with the reason in `missing`."""
        steps = mark_phases(recording.window.start, iterations)
        ledger = self.ledger or Ledger(recording.clock)
        if self._sent_more(ledger, iterations):
            self.missing = refusals.NOT_BY_DDP
        if recording.has_others:
            self.missing = refusals.SEVERAL
        if isinstance(steps, str):
            self.missing = self.missing or steps
            return None
        if self.missing:
            return None
        _number(ledger, recording, steps)
        return split_phases(
            recording.window,
            [step.marks for step in steps],
            ledger,
            overlaps=True,
            accumulate=max(1, iterations.accumulate),
            gaps=[step.gaps for step in steps],
        )


def _number(ledger: Ledger, recording: Recording, steps: Sequence[MicroStep]) -> None:
    """Give each message of a ledger its micro-step instead of the events before it."""
    places = {id(event): place for place, event in enumerate(recording.events)}
    starts = [places[id(step.events[0])] for step in steps]
    for collective in ledger.collectives:
        last_event = collective.iteration - 1
        number = bisect_right(starts, last_event) - 1
        collective.iteration = max(0, number)
