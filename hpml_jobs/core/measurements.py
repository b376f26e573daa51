"""What is measured: raw values of an epoch, of the wire, of the profiler, of the microbenchmark."""

from enum import StrEnum

from hpml_jobs.core.formulas import computation_s, exposed_communication_s
from hpml_jobs.core.value import Value


class Role(StrEnum):
    """What an epoch is for, in the order of the protocol."""

    WARMUP = "warmup"  # E0
    TIMED = "timed"  # E1: the epoch that counts
    INSTRUMENTED = "instrumented"  # E2
    PLAIN = "plain"  # more training
    UNSYNCED = "unsynced"  # E3: without gradient exchange, on a throw-away copy of the model


TRAINING = (Role.WARMUP, Role.TIMED, Role.INSTRUMENTED)
"""Roles of the first epochs of training; the rest are `plain`."""


class Stage(StrEnum):
    """What a running cell does: the epoch it trains, or what comes after training."""

    STARTING = ""
    WARMUP = "warmup"
    TIMED = "timed"
    INSTRUMENTED = "instrumented"
    PLAIN = "plain"
    UNSYNCED = "unsynced"
    TEST = "test"
    QUANTIZING = "quantizing"
    PROBING = "probing"


class CollectiveKind(StrEnum):
    """Which collective a message belongs to."""

    ALL_REDUCE = "all_reduce"
    BROADCAST = "broadcast"
    GATHER = "gather"
    SCATTER = "scatter"
    REDUCE = "reduce"


class Purpose(StrEnum):
    """What a message carries."""

    GRADIENTS = "gradients"
    BUFFERS = "buffers"
    PARAMETERS = "parameters"
    INPUTS = "inputs"
    OUTPUTS = "outputs"


class Phases(Value, frozen=True, kw_only=True):
    """Where the instrumented epoch of one rank went; the first six, in seconds, add up to it.

    `comm_forward_s` is the part of `forward_s` spent in collectives (ddp's buffer broadcasts; dp's
    scatter, broadcast and gather), `pack_s` the part of `backward_s` spent on copies into and out
    of messages and on averaging by hand.
    """

    stall_s: float  # the device waits for a batch
    h2d_s: float  # host-to-device copy
    forward_s: float  # forward and loss
    backward_s: float  # until the last gradient is accumulated, and copying buckets back
    comm_exposed_s: float  # from the last gradient until the last collective is complete
    optimizer_s: float  # step and zero_grad
    comm_forward_s: float = 0.0
    pack_s: float = 0.0

    @property
    def parts_s(self) -> tuple[float, ...]:
        """The six that add up to the epoch."""
        return (
            self.stall_s,
            self.h2d_s,
            self.forward_s,
            self.backward_s,
            self.comm_exposed_s,
            self.optimizer_s,
        )

    @property
    def compute_s(self) -> float:
        """Computation, copies to the device included."""
        return computation_s(
            self.h2d_s, self.forward_s, self.backward_s, self.optimizer_s, self.comm_forward_s
        )

    @property
    def exposed_s(self) -> float:
        """Communication that nothing hides, collectives in forward included."""
        return exposed_communication_s(self.comm_exposed_s, self.comm_forward_s)


class Steps(Value, frozen=True, kw_only=True):
    """Iterations of one epoch on one rank, seconds each, stall included.

    `first_tenth_s` and `last_tenth_s` are medians over the first and the last tenth of them.
    """

    median_s: float
    p10_s: float
    p90_s: float
    first_tenth_s: float
    last_tenth_s: float


class Share(Value, frozen=True, kw_only=True):
    """What one rank found on its share of the test set after an epoch; shares are disjoint.

    `loss_sum` is summed over its `samples`; `correct` is None where outputs are not class scores.
    """

    loss_sum: float
    correct: int | None
    samples: int


class Epoch(Value, frozen=True, kw_only=True):
    """One epoch as one rank saw it; seconds of that rank's own clock.

    `epoch_s` is everything between the two synchronisation points; `stall_s` the part of it in
    which the device waited for a batch. `loss` and `accuracy` are means over the samples seen;
    where outputs are not class scores there is no accuracy.
    The instrumented epoch has phases, and `closure`: |epoch_s - their sum| / epoch_s.
    `order` is a hash of the training images' indices in the order this rank took them; `lr` the
    learning rates of the first and the last iteration. `share` is there with evaluate=true.
    """

    role: Role
    epoch_s: float
    stall_s: float
    iterations: int
    samples: int
    loss: float
    accuracy: float | None
    steps: Steps | None = None
    phases: Phases | None = None
    closure: float | None = None
    order: str = ""
    lr: tuple[float, float] | None = None
    share: Share | None = None


class Message(Value, frozen=True, kw_only=True):
    """Messages of one kind and size that a rank took part in, counted at the call, in one epoch.

    `bytes` and `elements` are of one message; `busy_s` is the sum of the durations of all `count`.
    """

    kind: CollectiveKind
    purpose: Purpose
    dtype: str
    elements: int
    bytes: int
    count: int
    busy_s: float


class Communication(Value, frozen=True, kw_only=True):
    """The collectives of the instrumented epoch on one rank.

    Seconds are lengths of unions of busy intervals (what overlaps counts once): of all
    collectives, and of those that carry gradients.
    """

    total_s: float
    gradients_s: float
    messages: tuple[Message, ...] = ()

    def bytes_of(self, purpose: Purpose) -> int:
        """Bytes of all messages of one purpose in the epoch."""
        return sum(m.bytes * m.count for m in self.messages if m.purpose == purpose)


class Exchange(Value, frozen=True, kw_only=True):
    """The same collectives seen from all ranks: waiting for the late one, and the rest.

    `skew_s` sums (max - min duration over ranks) over the collectives, `net_s` the minima.
    """

    collectives: int
    skew_s: float
    net_s: float


class ProfilerSummary(Value, frozen=True, kw_only=True):
    """The profiler's own view of some iterations of one rank, seconds of all of them together.

    compute + comm - overlap + idle = window. `instruments_comm_s` is what our instruments measured
    of communication in the same iterations; `messages` and `message_bytes` are counted by the
    profiler (bytes where it tells shapes).
    """

    iterations: int
    window_s: float
    compute_s: float
    comm_s: float
    overlap_s: float
    idle_s: float
    instruments_comm_s: float
    messages: int
    message_bytes: int | None = None
    instruments_messages: int
    instruments_bytes: int

    @property
    def disagreement(self) -> float | None:
        """How far the instruments' communication is from the profiler's; None without any."""
        return abs(self.instruments_comm_s / self.comm_s - 1) if self.comm_s > 0 else None


class Card(Value, frozen=True, kw_only=True):
    """A GPU right after the timed epoch: its clocks, what slowed them, who else was on it."""

    uuid: str
    sm_clock_mhz: int
    max_sm_clock_mhz: int
    temperature_c: int
    power_w: float
    throttle_reasons: tuple[str, ...] = ()
    other_processes: int = 0


class MicrobenchmarkPoint(Value, frozen=True, kw_only=True):
    """All-reduces of one size: median, least and most seconds of the trials.

    The value of a trial is the maximum over ranks. `sent` marks a size that the cell itself sends.
    """

    bytes: int
    trials: int
    median_s: float
    min_s: float
    max_s: float
    sent: bool = False


class Microbenchmark(Value, frozen=True, kw_only=True):
    """The all-reduce microbenchmark on idle devices: by size, and how long it took in all.

    `largest_asked_bytes` was reduced to the largest point there is where time did not suffice.
    """

    points: tuple[MicrobenchmarkPoint, ...]
    largest_asked_bytes: int
    seconds: float

    @property
    def times_s(self) -> dict[int, float]:
        """Median seconds by message bytes."""
        return {point.bytes: point.median_s for point in self.points}


class Imported(Value, frozen=True, kw_only=True):
    """A timing measured elsewhere, as one row of a CSV file tells it; None is unknown."""

    file: str
    line: int
    epoch_s: float
    train_s: float | None = None
    compute_s: float | None = None
    comm_s: float | None = None
    iterations: int | None = None
    gpu_model: str | None = None
    date: str | None = None
