"""The measurement of a script in one of its processes, as states.

A session is in one state, which sees every event:

| state | until | what it is |
|---|---|---|
| `BeforeFirstStep` | an optimizer steps | the device is unknown; the host stamps a warm-up |
| `BetweenEpochs` | a pass begins | no window is open |
| `EpochBegun` | a step | a window is open; its pass may train, or be a test's |
| `InEpoch` | its pass ends or is left | an epoch is trained |
| `AfterPass` | the last step | batches that were read ahead are trained |
| `InWindow` | it has its iterations | a window of a number of iterations |
| `Done` | the process ends | all windows are measured; passes and steps are counted |
| `NOTHING` | | over; also inside of a CUDA graph |

| event | without a window (1) | `EpochBegun` | `InEpoch` | `AfterPass` | `InWindow` |
|---|---|---|---|---|---|
| pass begins | open (2), note | open anew (3), note | end if left (4), note | end, open | note |
| batch requested | – | note | note; end if full | note; end if full | note; next if full |
| batch received | – | note | note | note | note |
| pass ended | – | note | note; end or `AfterPass` | note | note |
| pass dropped | – | – | end if its own | – | – |
| step begins | – | note (5) | note (5) | note (5) | note (5) |
| stepped | – (6) | `InEpoch` if a pass is read | note | note; end if the last | note |
| model called | – | – | – | – | note; next if full |
| process ends | `NOTHING` | `NOTHING` | end if whole | end | end if full |

`note`: the event is noted in the window. `end`: the window ends and its times are taken; then comes
`BetweenEpochs`, or `Done` after the last one. `next`: it ends, and the next one begins. `–`: passes
and steps are counted. (1) `BeforeFirstStep`, `BetweenEpochs`, `Done`. (2) Not in `Done`; before the
first step it is noted from then on. (3) If no batch was read in it. (4) If its own loader is begun
again to train. (5) In an instrumented window. (6) The first one begins the training.

With window= the states of epochs do not occur, nor where a script reads no loader, or reads it in a
thread. The roles of windows (warm-up, timed, instrumented) are no states: a role says what is
recorded in a window, not how it begins or ends.
"""

from multiprocessing.util import Finalize
from typing import Any

from torch.optim import Optimizer

from hpml_jobs.core.measurements import Role
from hpml_jobs.core.stack_files import write_stacks_on_signals
from hpml_jobs.worker.instruments.timing import HostClock
from hpml_jobs.worker.observer.calls import Calls
from hpml_jobs.worker.observer.epochs import BetweenEpochs, EpochBegun
from hpml_jobs.worker.observer.guard import guarded
from hpml_jobs.worker.observer.passes import Pass, Passes
from hpml_jobs.worker.observer.process import Start, global_rank, is_capturing
from hpml_jobs.worker.observer.recording import Kind, Recording
from hpml_jobs.worker.observer.result import Subject
from hpml_jobs.worker.observer.states import (
    NOTHING,
    Counting,
    Done,
    InWindow,
    State,
)
from hpml_jobs.worker.observer.training import ObservedTraining, new_window

USUAL_WINDOW = (50, 200)
"""window= of a script without a loader, or with one that does not say how long it is."""


class BeforeFirstStep(State):
    """Nothing is known of the training, nor of the device: the host stamps what may be a warm-up.

    `recording` is the window that begins with a loader: with window= the first one that is read,
    without it the one that is read when the first step comes.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._passes = session.passes
        self._window = session.subject.script.window
        self._recording: Recording | None = None

    def begin_pass(self, loader: Any) -> Pass:
        """Begin a window, again if nothing was read in the one that is open."""
        recording = self._recording
        is_kept = recording is not None and (self._window or recording.read())
        if not is_kept:
            self._recording = new_window(Role.WARMUP, HostClock())
            self._recording.window.__enter__()
        one_pass = self._passes.begin(loader)
        self.request(one_pass)
        return one_pass

    def request(self, one_pass: Pass) -> None:
        """Note it."""
        if self._recording:
            self._recording.note(Kind.REQUEST, one_pass)

    def make(self, one_pass: Pass) -> None:
        """Note it."""
        if self._recording:
            self._recording.note(Kind.MADE, one_pass)

    def receive(self, one_pass: Pass, batch: Any) -> None:
        """Note it."""
        one_pass.batches += 1
        self._passes.latest = one_pass
        if self._recording:
            self._recording.note_batch(
                batch, one_pass, batch_size=self._session.batch_size
            )

    def end_pass(self, one_pass: Pass) -> None:
        """Note it."""
        self._passes.end(one_pass)
        if self._recording:
            self._recording.note(Kind.END, one_pass)

    def drop(self, one_pass: Pass) -> None:
        """Count it."""
        if not one_pass.is_over:
            self._passes.end(one_pass)

    def step(self, optimizer: Optimizer) -> None:
        """Begin the training, whose warm-up is the window that is open."""
        session, window = self._session, self._window
        one_pass = self._passes.training_pass
        if one_pass is None or not one_pass.length:
            window = window or USUAL_WINDOW
        with session.subject.start.apart():
            training = session.begin_training(
                optimizer, window, reads_loader=one_pass is not None
            )
        # Children of multiprocessing run no atexit, and the interpreter runs these at its end.
        Finalize(session, session.close, exitpriority=100)
        if self._recording:
            session.enter(self._recording).step(optimizer)
            return
        self._passes.steps += 1
        session.state = BetweenEpochs(session, training)
        if window:
            session.open()


class Session:
    """The state of the measurement, and what outlives it."""

    def __init__(self, start: Start) -> None:
        self.subject = Subject.read(start)
        write_stacks_on_signals(str(self.subject.folder.stacks_of(global_rank(start))))
        self.batch_size = self.subject.batch_size
        self.passes = Passes()
        self.state: State = BeforeFirstStep(self)
        self._training: ObservedTraining | None = None
        self._has_noted_capture = False

    @property
    def now(self) -> State:
        """The state that sees an event: none inside of a CUDA graph, which takes no stamps."""
        if not is_capturing():
            return self.state
        if self.state is not NOTHING and not self._has_noted_capture:
            self._has_noted_capture = True
            self.subject.start.note(
                f"what {self.subject.script.path} captures in a CUDA graph is not seen: let it "
                "train without the graph"
            )
        return NOTHING

    @property
    def training(self) -> ObservedTraining:
        """The training that is measured; there is none before the first step."""
        if self._training is None:
            raise RuntimeError("no optimizer has stepped")
        return self._training

    def begin_training(
        self,
        optimizer: Optimizer,
        window: tuple[int, int] | None,
        *,
        reads_loader: bool,
    ) -> ObservedTraining:
        """Learn what steps here, and forget all windows of a training before it."""
        self.release()
        calls = None if reads_loader else Calls(lambda inputs: self.now.call(inputs))  # noqa: PLW0108
        self._training = ObservedTraining(
            self.subject, self.passes, optimizer, window, calls
        )
        return self._training

    def enter(self, recording: Recording) -> Counting:
        """Go on in a window that has begun; return the state."""
        state = InWindow if self.training.window else EpochBegun
        self.state = following = state(self, self.training, recording)
        return following

    def open(self) -> Counting:
        """Begin the next window, if there is one; return the state that follows."""
        recording = self.training.open()
        if recording:
            return self.enter(recording)
        self.state = done = Done(self, self.training)
        return done

    def end_now(self, recording: Recording) -> None:
        """End a window now, and take its times."""
        recording.end_now()
        self._take(recording)

    def end_at_last_step(self, recording: Recording) -> None:
        """End a window that the script has left, with its last step, and take its times."""
        recording.end_at_last_step()
        self._take(recording)

    def _take(self, recording: Recording) -> None:
        training = self.training
        with self.subject.start.apart():
            following = training.find_next(recording)
            if following is not None:  # later the first training is measured
                recording.role = Role.WARMUP
                training = self.begin_training(
                    following, training.window, reads_loader=True
                )
            training.take(recording)
            if training.role:
                self.state = BetweenEpochs(self, training)
                return
            self.state = Done(self, training)
            training.model.unwatch()
            if self.subject.script.stop:
                training.leave()

    def measure_windows(self, optimizer: Optimizer) -> None:
        """Begin anew at a step, with windows of iterations instead of epochs."""
        self.passes.latest = self.passes.left = None
        with self.subject.start.apart():
            self.begin_training(optimizer, USUAL_WINDOW, reads_loader=False)
        self.passes.steps += 1
        self.open()

    def refuse(self, reason: str) -> None:
        """End the measurement without a result."""
        self.state = NOTHING
        self.training.exchange.stop()
        self.training.results.clear()
        with self.subject.start.apart():
            self.subject.start.note(reason)
            self.training.write()

    def end(self) -> None:
        """End the measurement with the process, and write its last result."""
        self.state = NOTHING
        self.training.write()

    @guarded
    def close(self) -> None:
        """See that the process ends, and leave nothing behind."""
        with self.subject.start.apart():
            self.now.close()
        self.release()

    def release(self) -> None:
        """Undo all that a window has changed in the script."""
        if self._training:
            self._training.exchange.stop()

    @property
    def starts_profiler(self) -> bool:
        """Whether it is this session that makes a profiler now."""
        return (
            self._training is not None and self._training.exchange.profiler.is_starting
        )
