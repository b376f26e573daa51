"""The measurement of a script in one of its processes: its windows, one after the other."""

from collections.abc import Callable
from functools import wraps
from math import ceil, inf
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from weakref import WeakSet, ref

import msgspec
import torch
from torch import nn
from torch.optim import Optimizer

from hpml_jobs.core.measurements import Epoch, Role
from hpml_jobs.core.stack_files import write_stacks_on_signals
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.worker.instruments.phases import EpochPhases
from hpml_jobs.worker.instruments.summary import time_epoch
from hpml_jobs.worker.instruments.timing import Clock, HostClock, Window
from hpml_jobs.worker.observer.exchange import Exchange
from hpml_jobs.worker.observer.launches import least_launch_s, waits_for_device
from hpml_jobs.worker.observer.meters import Meters, clock_of, devices_of
from hpml_jobs.worker.observer.result import (
    Writer,
    global_rank,
)
from hpml_jobs.worker.observer.watch import (
    Start,
    guarded,
    is_capturing,
    script_has_profiler,
)
from hpml_jobs.worker.observer.windows import (
    STEPS,
    Event,
    Iterations,
    Kind,
    Pass,
    Recording,
    size_of,
    split_iterations,
)

USUAL_WINDOW = (50, 200)
"""window= of a script without a loader, or with one that does not say how long it is."""

SPARE_SHARE = 0.1
"""Stamps to spare: an iteration may have a test of its own, or the end of a pass."""

OTHER_STAMPS = 40
"""Stamps of the beginning of a trace, and of a window's ends."""

P = ParamSpec("P")
T = TypeVar("T")


def while_open(
    method: Callable[Concatenate["Session", P], T],
) -> Callable[Concatenate["Session", P], T | None]:
    """Do nothing after the measurement, nor inside of a CUDA graph, which takes no stamps."""

    @wraps(method)
    def call(session: "Session", /, *args: P.args, **options: P.kwargs) -> T | None:
        if session.is_over:
            return None
        if is_capturing():
            session.note_capture()
            return None
        return method(session, *args, **options)

    return call


class Result(NamedTuple):
    """A window that was measured; `events` were seen in it, those of tests too."""

    epoch: Epoch
    iterations: Iterations
    batches: int
    events: int
    phases: EpochPhases | None = None


class Session:
    """Opens and ends the windows. `results` are those of the windows that count.

    Without window= a window is a pass over a loader in which an optimizer steps, with it so many
    iterations. Before the first step nothing is known of the device: the warm-up is stamped by the
    host. `steps` are the iterations of all windows. `ahead`: the steps of an epoch after the loader
    has no more batches, because it is read ahead of training.
    """

    def __init__(self, start: Start) -> None:
        self.start = start
        self.folder = folder = AttemptFolder(Path(start.folder))
        self.is_over = self.has_failed = self._captures = False
        self.results: list[Result] = []
        self.steps = 0
        self.passes: list[int] = []
        self.ahead = 0
        self._latest: Pass | None = None
        self._left: Pass | None = None
        self._recording: Recording | None = None
        self._tests: WeakSet[Any] = WeakSet()
        self._trained: WeakSet[Any] = WeakSet()
        self._clock: Clock = HostClock()
        self._meters: Meters | None = None
        self._optimizer = 0
        self._reads_loader = False
        self._calls: dict[int, tuple[list[Event], int]] = {}
        self._other: ref[Optimizer] | None = None
        self._shorter = self._waits = ""
        self.file = CellFolder(folder.cell_folder).read()
        self.cell = self.file.cell
        if self.cell.script is None:
            raise ValueError(f"{folder.cell_folder} is not the cell of a script")
        self.script = self.cell.script
        self.window = self.script.window
        write_stacks_on_signals(str(folder.stacks_of(global_rank(start))))
        self._exchange = Exchange(self._clock)

    @while_open
    def begin_pass(self, loader: Any) -> Pass:
        """Note that an iterator of a loader is made."""
        recording = self._recording
        owner = recording.owner if recording else None
        if recording and owner and recording.is_ending:
            self._end_early(recording)
        elif recording and owner and owner.loader is loader and not self._is_testing:
            self._left = owner
            self._end_early(recording)
        if self._may_begin(loader):
            self._open()
        one_pass = Pass(loader, self._latest, length=_length(loader))
        self.request(one_pass)
        return one_pass

    @property
    def _is_testing(self) -> bool:
        """Whether the script cannot train now: it asks for no gradients, or not for training."""
        module = getattr(self.model, "module", self.model)
        return not torch.is_grad_enabled() or (module is not None and not module.training)

    def _may_begin(self, loader: Any) -> bool:
        """Return whether a window begins with this iterator, if there will be steps."""
        recording = self._recording
        if self.window:
            return recording is None and not self.results
        has_begun = recording is not None and (recording.steps or recording.read())
        return not has_begun and loader not in self._tests

    @while_open
    def request(self, one_pass: Pass) -> None:
        """Note that the script asks for a batch."""
        if one_pass is self._left and not self.window:
            self._refuse(
                f"{self.script.path} reads the loader that it trains on within an epoch of it, so "
                "its epochs cannot be told apart: give the iterations to warm up and to time, e.g. "
                "window=50,200"
            )
            return
        self._end_if_full(one_pass)
        if self._recording:
            self._recording.events.append(Event.now(Kind.REQUEST, self._clock, one_pass))

    @while_open
    def make(self, one_pass: Pass) -> None:
        """Note that the script has the iterator that it asked for."""
        if self._recording:
            self._recording.events.append(Event.now(Kind.MADE, self._clock, one_pass))

    @while_open
    def receive(self, one_pass: Pass, batch: Any) -> None:
        """Note that the script gets a batch."""
        one_pass.batches += 1
        self._latest = one_pass
        if self._recording:
            event = Event.now(Kind.BATCH, self._clock, one_pass)
            self._recording.events.append(event._replace(samples=self._size_of(batch)))
            self._exchange.count_batch()

    @while_open
    def _receive_input(self, _model: nn.Module, *inputs: Any) -> None:
        """Note that a script without a loader calls its model, maybe to train it."""
        if not torch.is_grad_enabled():
            return
        self._settle_calls()
        self._end_if_full(None)
        self._exchange.calls += 1
        if self._recording:
            events = self._recording.events
            self._calls[self._exchange.calls] = events, len(events)
            event = Event.now(Kind.BATCH, self._clock)
            events.append(event._replace(samples=self._size_of(inputs)))

    def _settle_calls(self) -> None:
        """Of the calls of the model since the last backward pass, keep the first that it trains."""
        trained = [number for number in self._calls if number in self._exchange.gone_back]
        if not trained:
            return
        for number, (events, place) in self._calls.items():
            if number != trained[0]:
                events[place] = events[place]._replace(kind=Kind.UNTRAINED)
        self._calls.clear()
        self._exchange.gone_back.clear()
        self._exchange.count_batch()

    def _size_of(self, batch: Any) -> int:
        return size_of(batch, tokens=self.cell.workload.samples_are_tokens)

    @while_open
    def end_pass(self, one_pass: Pass) -> None:
        """Note that the script is told that a pass has no more batches."""
        one_pass.is_over = True
        self._leave(one_pass)
        recording = self._recording
        if recording:
            recording.events.append(Event.now(Kind.END, self._clock, one_pass))
        if recording and recording.owner is one_pass:
            if self.ahead or not self.results:  # how far it is ahead is known after the first
                recording.is_ending = True
            else:
                self._end(recording)
        elif self.steps and one_pass.loader not in self._trained:
            self._tests.add(one_pass.loader)

    def _leave(self, one_pass: Pass) -> None:
        if self._latest is one_pass:
            self._latest = one_pass.before or one_pass

    @while_open
    def drop(self, one_pass: Pass) -> None:
        """Note that the script has left a pass before its end."""
        recording = self._recording
        if one_pass.is_over:
            return
        one_pass.is_over = True
        self._leave(one_pass)
        if recording and recording.owner is one_pass:
            self._end_early(recording)

    @while_open
    def begin_step(self, args: Any, options: Any) -> tuple[Any, Any] | None:
        """Note that an optimizer begins to step; return other arguments for it, if there are."""
        if self._recording is None or self._recording.role is not Role.INSTRUMENTED:
            return None
        return self._exchange.begin_step(args, options)

    @while_open
    def stepped(self, optimizer: Optimizer) -> None:
        """Note that an optimizer has stepped."""
        if not self._optimizer:
            latest = self._latest
            self._reads_loader = latest is not None and not latest.is_over
            if latest is None or latest.is_over or not latest.length:
                self.window = self.window or USUAL_WINDOW
            with self.start.apart():
                self._prepare(optimizer)
        elif id(optimizer) != self._optimizer:
            self._other = ref(optimizer)
        if self._latest and self._latest.in_thread and not self.window:
            self._window_anew(optimizer)
        if self._recording is None and self.window and not self.results:
            self._open()
            self.steps += 1
            return
        recording = self._recording
        if recording is None:
            self.steps += 1
            return
        self._find_outer(recording)
        if recording.owner is None and not self.window:
            self.steps += 1
            return  # not in a pass
        self._settle_calls()
        self._calls.clear()
        kind = recording.count_step(id(optimizer))
        self.steps += kind is Kind.STEPPED
        recording.optimizers.add(optimizer)
        if recording.outer:
            recording.outer.steps += 1
        recording.events.append(Event.now(kind, self._clock))
        if recording.is_ending:
            recording.after_end += 1
            if self.results and recording.after_end >= self.ahead:
                self._end(recording)

    def _find_outer(self, recording: Recording) -> None:
        """Find the outermost pass: of those that were read since the last iteration the first.

        Where they have batches of other sizes, it is one with the cell's. In the first iteration of
        a window a pass may be read that training does not read again.
        """
        is_known = recording.outer and not recording.outer.is_over
        if not self._reads_loader or (is_known and (self.window or recording.steps > 1)):
            return
        passes = recording.read()
        if not passes or recording.outer in passes:
            return
        sizes = {self.cell.batch, self.cell.batch * self.cell.gpus}
        has_size = {event.source for event in recording.events if event.samples in sizes}
        recording.outer = next((each for each in passes if each in has_size), passes[0])
        if not self.window:
            recording.owner = recording.outer
            self._trained.add(recording.outer.loader)

    def _end_if_full(self, source: Pass | None) -> None:
        """End a window that has its iterations where the next one begins, and begin the next."""
        recording = self._recording
        if (
            recording
            and recording.steps >= self._most_iterations(recording.role)
            and recording.is_asked_by(source)
        ):
            self._end(recording)
            if self.window:
                self._open()

    def _most_iterations(self, role: Role) -> float:
        """Return the iterations after which a window ends; a pass that is profiled may go on."""
        warm_up, others = self.window or (inf, inf)
        if role is Role.INSTRUMENTED and self._exchange.most_iterations:
            return min(others, self._exchange.most_iterations)
        return warm_up if role is Role.WARMUP else others

    def _prepare(self, optimizer: Optimizer) -> None:
        """Learn what steps here; all that takes long, before the first window that counts."""
        self._optimizer = id(optimizer)
        self._devices = devices_of(optimizer)
        self.device = self._devices[0]
        self._exchange.find_model(optimizer, None if self._reads_loader else self._receive_input)
        self.writer = Writer(self, optimizer)
        self._meters = Meters(self.device)
        self.writer.write()
        # Children of multiprocessing run no atexit, and the interpreter runs these at its end.
        Finalize(self, self.close, exitpriority=100)

    def _open(self) -> None:
        """Begin the next window, if there is one."""
        with self.start.apart():
            role = self._make_ready()
        if role is None:
            return
        self._recording = Recording(Window(self._clock, lambda: None), role)
        if self.window and self.results:
            self._recording.fetched = self.results[-1].iterations.fetched
        self._exchange.events = self._recording.events
        self._recording.window.__enter__()

    def _make_ready(self) -> Role | None:
        """Make ready for the next window and return its role; None if there is none."""
        self._exchange.stop()
        role, self._recording = self.role, None
        if role and self._meters:
            if not self._clock.runs_behind_host:
                self._clock = self._exchange.clock = clock_of(self._devices)
            self._clock.prepare(self._most_stamps(role))
            self.writer.report(role)
            self._exchange.start(role, self.device)
            self._meters.start()
        return role

    def _most_stamps(self, role: Role) -> int:
        """Return how many stamps a window takes at most, as the windows before it show."""
        if not self.results:  # the warm-up may create events
            return OTHER_STAMPS
        lengths = [len(result.iterations.samples) for result in self.results]
        iterations = self.window[1] if self.window else max(lengths)
        events, length = self.results[-1].events, lengths[-1]
        each = events / max(1, length) + self._exchange.stamps(role, self.results[-1].iterations)
        return OTHER_STAMPS + ceil((1 + SPARE_SHARE) * each * iterations)

    @property
    def role(self) -> Role | None:
        """The role of the next window; None after the last one."""
        roles = [Role.WARMUP, Role.TIMED, Role.INSTRUMENTED]
        if self._exchange.missing:
            roles.remove(Role.INSTRUMENTED)
        measured = [result.epoch.role for result in self.results]
        return next((role for role in roles if role not in measured), None)

    def _end_early(self, recording: Recording) -> None:
        """End a window where the script has left its pass: with the last step."""
        events, kinds = recording.events, (*STEPS, Kind.END) if recording.is_ending else STEPS
        while events[-1].kind not in kinds:  # a batch that is not trained
            events.pop()
        recording.window.end_at(events[-1].stamp)
        if recording.is_ending and not self.results:
            self.ahead = recording.after_end
        with self.start.apart():
            self._finish(recording)

    def _end(self, recording: Recording) -> None:
        """End a window now."""
        recording.window.__exit__(None)
        with self.start.apart():
            self._finish(recording)

    def _finish(self, recording: Recording) -> None:
        """Take the window's times, if it is a whole one, and go on to the next."""
        role, self._recording = recording.role, None
        batches = recording.owner.batches if recording.owner else 0
        is_first = role in (Role.TIMED, Role.INSTRUMENTED)  # later the first training is measured
        is_of_first = self._optimizer in map(id, recording.optimizers)
        if is_first and recording.owner and not is_of_first and self._begins_anew():
            role = Role.WARMUP
        if role is Role.INSTRUMENTED and self._exchange.most_iterations and self.results:
            batches = self.results[-1].batches  # the pass may go on
        self.passes.append(batches)
        if self.results and batches < self.results[-1].batches:
            self._shorter = f"a later epoch has {batches} batches, not {self.results[-1].batches}"
            self._exchange.stop()
            return
        ahead = self.ahead > 0 or any(result.iterations.ahead for result in self.results)
        iterations = split_iterations(self._clock, recording, ahead=ahead)
        phases = None
        if role is Role.INSTRUMENTED and is_of_first:
            phases = self._exchange.split(recording, iterations)
        elif role is Role.INSTRUMENTED:
            self._exchange.missing = "another optimizer steps now than in the first epoch"
        self._exchange.stop()
        if role is not Role.INSTRUMENTED or phases:
            of_phases = phases.phases if phases else None
            epoch = time_epoch(
                role, recording.window, iterations.times, iterations.samples, of_phases
            )
            if self._meters and role is not Role.WARMUP:
                epoch = self._meters.add_to(epoch)
            self.writer.add_optimizers(recording.optimizers)
            self.results.append(Result(epoch, iterations, batches, len(recording.events), phases))
        if phases and self._clock.runs_behind_host:
            self._add_launches(iterations)
        if role is Role.TIMED and self._meters:
            self._meters.cards.read()
            self._exchange.prepare(iterations)
            self.writer.fingerprint()
        self.writer.write()
        if self.role is None and self.script.stop:
            self.writer.leave()

    def _add_launches(self, instrumented: Iterations) -> None:
        """Add the host's time to the timed epoch where it launches all the time."""
        if waits_for_device(self._clock, instrumented):
            self._waits = "the script waits for its GPU between batch and step"
            return
        number = next(n for n, result in enumerate(self.results) if result.epoch.role is Role.TIMED)
        timed = self.results[number]
        launch_s = least_launch_s(timed.iterations)
        epoch = msgspec.structs.replace(timed.epoch, launch_s=launch_s)
        self.results[number] = timed._replace(epoch=epoch)

    def _begins_anew(self) -> bool:
        """Begin anew where a pass trained another model, after a pretraining; return whether."""
        optimizer = self._other() if self._other else None
        if optimizer is None or not self.writer.is_other(optimizer):
            return False
        self._start_anew(optimizer)
        return True

    def _start_anew(self, optimizer: Optimizer) -> None:
        """Forget all windows that were measured, and prepare those of this optimizer."""
        self._exchange.stop()
        self._exchange = Exchange(self._clock)
        self._recording, self.results, self.passes, self._calls = None, [], [], {}
        self._prepare(optimizer)

    def _window_anew(self, optimizer: Optimizer) -> None:
        """Measure windows from now on: another thread reads the loader, and hides its epochs."""
        self.window, self._latest, self._reads_loader = USUAL_WINDOW, None, False
        self._start_anew(optimizer)

    def _refuse(self, reason: str) -> None:
        """End the measurement without a result."""
        self._exchange.stop()
        self._recording, self.results = None, []
        with self.start.apart():
            self.start.note(reason)
            self.writer.write()
        self.is_over = True

    def note_capture(self) -> None:
        """Note once that a step goes into a CUDA graph."""
        if not self._captures:
            self._captures = True
            text = (
                f"{self.script.path} captures training in a CUDA graph, whose replays are not "
                "seen: let it train without the graph"
            )
            self.start.note(text)

    @property
    def model(self) -> nn.Module | None:
        """The model with its wrapper; None before it was called."""
        return self._exchange.model

    @property
    def wrapper(self) -> Strategy | None:
        """What joins the processes: ddp, fsdp, or None."""
        return self._exchange.wrapper

    @property
    def ledger(self) -> Any:
        """The collectives of the instrumented window."""
        return self._exchange.ledger

    @property
    def missing(self) -> list[str]:
        """A reason for each value that could not be measured."""
        unread = [*self._meters.missing] if self._meters else []
        phases = self._exchange.missing or self._shorter or self._exchange.postponed
        if phases and not any(result.phases for result in self.results):
            unread.append(f"phases: {phases}")
        if self._waits:
            unread.append(f"launches: {self._waits}")
        if script_has_profiler():
            unread.append("the script uses torch's profiler, which takes a part of its times")
        if self.steps and not self._reads_loader:
            unread.append("waiting for batches: the script's main thread reads no DataLoader")
        return unread

    @property
    def loader_workers(self) -> int:
        """The workers of the loader that got the last batch."""
        return int(self._latest.loader.num_workers) if self._latest else 0

    @property
    def cards(self) -> Any:
        """The state of the GPU after the timed window."""
        return self._meters.cards.state if self._meters else ()

    @while_open
    def leave_profiler(self) -> None:
        """Note that the script begins to use the profiler."""
        self._exchange.cut_trace("the script has one of its own")

    @property
    def starts_profiler(self) -> bool:
        """Whether it is this session that makes a profiler now."""
        return self._exchange.starts_profiler

    def release(self) -> None:
        """Undo all that a window has changed in the script."""
        self._exchange.stop()

    @guarded
    def close(self) -> None:
        """Write the last result, and leave nothing behind."""
        with self.start.apart():
            self._close()
        self.release()

    @while_open
    def _close(self) -> None:
        """End the pass that the script ends in, if it is a whole one, and write the last result."""
        recording = self._recording
        if recording and recording.steps and not self.has_failed:
            is_whole = recording.steps >= self._most_iterations(recording.role)
            if recording.owner and not is_whole:
                batches = self.results[-1].batches if self.results else None
                is_whole = recording.is_ending or recording.owner.batches == batches
            if is_whole:
                self._end_early(recording)
        self.is_over = True
        self.writer.write(has_ended=True)


def _length(loader: Any) -> int | None:
    """Return how many batches a pass has, if the loader says so; a stream may be endless."""
    try:
        return len(loader)
    except TypeError:
        return None
