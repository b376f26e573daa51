"""The phases and the exchange of gradients of a script, recorded in one window.

DDP's messages by a communication hook, every other one by the profiler.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import Any

import torch
from torch.distributed.distributed_c10d import _get_default_group

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import EpochPhases, split_phases
from hpml_jobs.worker.instruments.timing import Clock
from hpml_jobs.worker.observer import hooks
from hpml_jobs.worker.observer.calls import WatchedModel, is_compiled
from hpml_jobs.worker.observer.guard import guarded
from hpml_jobs.worker.observer.hooks import GuardedLedger
from hpml_jobs.worker.observer.iterations import Iterations
from hpml_jobs.worker.observer.marks import SEVERAL, MicroStep, mark_phases
from hpml_jobs.worker.observer.meters import parameters_of
from hpml_jobs.worker.observer.process import (
    WRAPPERS,
    has_group,
    is_capturing,
    script_has_profiler,
    world_size,
)
from hpml_jobs.worker.observer.recording import Kind, Recording
from hpml_jobs.worker.observer.traced import MOST_BATCHES, Trace

PASSES = 3
"""Forward passes of a batch, each with two stamps; stamps of the steps of an iteration."""

MESSAGES = 15
"""Messages of an iteration where DDP does not know theirs."""

OWN_LIMIT = 0.1
"""Collectives of the script in an iteration, beside those of DDP, which may not be recorded."""

POSTPONED = "messages beside those of DDP take one more epoch to measure"


def _collectives_called() -> int:
    """Return how many collectives the process group has had, those of DDP included; 0: unknown."""
    if not has_group():
        return 0
    try:
        return int(_get_default_group()._get_sequence_number_for_group())  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # a backend without numbers
        return 0


class Profiler:
    """torch's profiler over the beginning of an instrumented window, where it is needed.

    Its windows have `most_iterations`; None where it is not needed. `is_starting`: it is this one
    that makes a profiler now, not the script.
    """

    def __init__(self) -> None:
        self.most_iterations: int | None = None
        self.is_starting = False
        self.trace: Trace | None = None
        self._batches = self._batches_left = 0

    def plan(self, accumulate: int) -> None:
        """Let the next window be profiled, whose iterations have so many batches."""
        self.most_iterations = max(2, MOST_BATCHES // accumulate)
        self._batches = accumulate * self.most_iterations

    def start(self, clock: Clock, device: torch.device) -> str | None:
        """Start; return why it is refused: this window goes on, as those of other ranks do."""
        self.is_starting = True
        self._batches_left = self._batches + 1  # one may be ahead
        refusal = None
        try:
            if script_has_profiler():
                raise RuntimeError("the script has one of its own")
            self.trace = Trace(clock, device, world_size())
        except Exception as error:
            refusal = f"torch's profiler did not start: {type(error).__name__}: {error}"
        self.is_starting = False
        return refusal

    def count_batch(self) -> None:
        """Note that the window has another batch; one too many ends the profiler."""
        self._batches_left -= 1
        if self.trace and self._batches_left < 0:
            self.cut("the window has more batches for its steps than the one before")

    def cut(self, reason: str) -> None:
        """End before the window does, if it is on."""
        if self.trace:
            self.trace.stop(reason)

    def stop(self) -> None:
        """End with the window."""
        self.cut("its window did not end")
        self.trace = None


class ExchangeRecorder:
    """The instruments of a script's instrumented window.

    `missing` is the reason why phases and exchange are not split; None where they are. `postponed`
    is why that takes a window more. `ledger` is that of the instrumented window.
    """

    def __init__(self, model: WatchedModel) -> None:
        self.model = model
        self.profiler = Profiler()
        self.ledger: Ledger | None = None
        self.missing: str | None = None
        self.postponed = ""
        self._recording: Recording | None = None
        self._called_before = 0
        self._undo: list[Callable[[], Any]] = []

    def prepare(self, iterations: Iterations) -> None:
        """Make ready to record a window like the one that ended, or say in `missing` why not."""
        module = self.model.module
        if module is None:
            self.missing = (
                "no forward pass of a model with the optimizer's parameters was seen"
            )
        # what is changed in a compiled wrapper would be compiled anew
        elif WRAPPERS and is_compiled(module):
            self.missing = (
                "DistributedDataParallel is compiled: wrap the compiled model instead"
            )
        elif world_size() == 1:
            return
        elif self._sends_more(iterations) or not hooks.hook_into_wrappers(module):
            self._profile_next(iterations)

    def _sends_more(self, iterations: Iterations) -> bool:
        """Return whether the window that ended had more collectives than DDP's."""
        called = _collectives_called() - self._called_before
        most = hooks.most_messages(iterations.accumulate) + OWN_LIMIT
        return called > most * len(iterations.samples)

    def _profile_next(self, iterations: Iterations) -> None:
        self.ledger = None
        self.profiler.plan(max(1, iterations.accumulate))

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

    def start(self, recording: Recording, device: torch.device) -> None:
        """Begin to record phases and messages in an instrumented window."""
        self._called_before = _collectives_called()
        if recording.role is not Role.INSTRUMENTED or self.model.module is None:
            return
        self._recording = recording
        self.model.watch(recording)
        if self.profiler.most_iterations:
            self.missing = self.profiler.start(recording.clock, device) or self.missing
            return
        self.ledger = GuardedLedger(recording.clock)
        self._undo = hooks.record_messages(self.current_ledger)

    def stop(self) -> None:
        """Undo what `start` did."""
        while self._undo:
            self._undo.pop()()
        if self._recording:
            self._recording = None
            self.model.watch(None)
        self.profiler.stop()

    def begin_step(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Note that the gradients are there: after the closure, if there is one (Lightning's)."""
        recording = self._recording
        if recording is None:
            return None
        if recording.events and recording.events[-1].kind is Kind.STEP:
            return None  # one step inside another, as those of ZeRO
        closure = options.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            recording.note(Kind.STEP)
            return None

        @guarded
        def note() -> None:
            if self._recording and not is_capturing():
                self._recording.note(Kind.STEP)

        def noted() -> Any:
            loss = closure()
            note()
            return loss

        if "closure" in options:
            return args, options | {"closure": noted}
        return (args[0], noted, *args[2:]), options

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

    def split(self, recording: Recording, iterations: Iterations) -> EpochPhases | None:
        """Return the phases of the instrumented window; None with the reason in `missing`."""
        steps = mark_phases(recording.window.start, iterations)
        if self._trains_others(recording):
            steps = SEVERAL
        if isinstance(steps, str):
            self.missing = steps
            return None
        if self.missing:
            return None
        if self.profiler.trace:
            return self._split_traced(self.profiler.trace, recording, iterations, steps)
        return self._split_hooked(recording, iterations, steps)

    def _trains_others(self, recording: Recording) -> bool:
        """Return whether several optimizers step, not all of them for the model."""
        if len(recording.optimizers) < 2:
            return False
        module = self.model.module
        of_model = {*map(id, module.parameters())} if module is not None else set()
        return not of_model.issuperset(map(id, parameters_of(recording.optimizers)))

    def _split_traced(
        self,
        trace: Trace,
        recording: Recording,
        iterations: Iterations,
        steps: Sequence[MicroStep],
    ) -> EpochPhases | None:
        try:
            phases, self.ledger = trace.split(
                recording.window,
                [step.marks for step in steps],
                max(1, iterations.accumulate),
                is_sharded=self.model.wrapper is Strategy.FSDP,
                gaps=[step.gaps for step in steps],
            )
        except (OSError, RuntimeError, ValueError) as fault:
            self.missing = f"torch's profiler: {type(fault).__name__}: {fault}"
            return None
        return phases

    def _split_hooked(
        self, recording: Recording, iterations: Iterations, steps: Sequence[MicroStep]
    ) -> EpochPhases | None:
        ledger = self.ledger or Ledger(recording.clock)
        of_script = (
            _collectives_called() - self._called_before - len(ledger.collectives)
        )
        if world_size() > 1 and of_script > OWN_LIMIT * len(iterations.samples):
            self._profile_next(iterations)
            self.postponed = POSTPONED
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
