"""Raw measurements: epochs, communication and the microbenchmark."""

from enum import StrEnum
from typing import NamedTuple

from hpml_jobs.core.formulas import (
    communication_s,
    computation_s,
    exposed_communication_s,
)
from hpml_jobs.core.value import Value


class Role(StrEnum):
    """The purpose of an epoch, in the order of the protocol."""

    WARMUP = "warmup"  # E0
    TIMED = "timed"  # E1: the epoch that counts
    INSTRUMENTED = "instrumented"  # E2
    PLAIN = "plain"  # more training
    # E3: without gradient exchange, on a throw-away copy of the model
    UNSYNCED = "unsynced"


class Step(StrEnum):
    """A step after the epochs that is watched as they are."""

    MICROBENCHMARK = "microbenchmark"


TRAINING = (Role.WARMUP, Role.TIMED, Role.INSTRUMENTED)
"""Roles of the first epochs of training; the rest are `plain`."""


class Stage(StrEnum):
    """The current activity of a running cell: its epoch, or a step after training."""

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
    """The collective that a message belongs to."""

    ALL_REDUCE = "all_reduce"
    BROADCAST = "broadcast"
    GATHER = "gather"
    SCATTER = "scatter"
    REDUCE = "reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"

    @property
    def words(self) -> str:
        """Its name in a sentence: `all-reduce`."""
        return self.value.replace("_", "-")


UNROOTED = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
)
"""In these all ranks end together; in the others one rank is the source or the destination."""

SWEPT = (*UNROOTED, CollectiveKind.BROADCAST)
"""The collectives that the microbenchmark can measure, which have bus factors."""


class Purpose(StrEnum):
    """The content of a message."""

    GRADIENTS = "gradients"
    BUFFERS = "buffers"
    PARAMETERS = "parameters"
    INPUTS = "inputs"
    OUTPUTS = "outputs"


class Phases(Value, frozen=True, kw_only=True):
    """The phases of the instrumented epoch of one rank; the first six add up to it (seconds).

    Of a script `other_s` is added to them: what is between the loader's batch and the forward pass,
    copies too, and between the optimizer's step and the next batch; None of our own loop, and in
    records of versions before 0.10.0, which counted it as copies and optimizer.

    `comm_forward_s` is the part of `forward_s` spent in collectives (ddp's buffer broadcasts; dp's
    scatter, broadcast and gather) or waiting for them (fsdp's all-gathers), `comm_optimizer_s` that
    of `optimizer_s` (zero1's broadcasts). `pack_s` is the part of `backward_s` spent on copies into
    and out of messages, and on averaging by hand. `replicas_s` is the part of `forward_s` and
    `backward_s` in which dp's first GPU waits until the replicas on the others have computed; None
    under other strategies, and before version 0.8.0, which counted it as communication.
    `work_blocks_s` is the mean time of an iteration without exposed communication in ten
    consecutive blocks; None before version 0.10.0 and below ten iterations.
    """

    stall_s: float  # the device waits for a batch
    h2d_s: float  # host-to-device copy
    forward_s: float  # forward and loss
    backward_s: (
        float  # until the last gradient is accumulated, and copying buckets back
    )
    # from the last gradient until the last collective is complete, and under fsdp waiting for
    # all-gathers and reduce-scatters during backward
    comm_exposed_s: float
    optimizer_s: float  # step and zero_grad
    comm_forward_s: float = 0.0
    pack_s: float = 0.0
    replicas_s: float | None = None
    comm_optimizer_s: float = 0.0
    work_blocks_s: tuple[float, ...] | None = None
    other_s: float | None = None

    @property
    def parts_s(self) -> tuple[float, ...]:
        """Return the phases that add up to the epoch."""
        return (
            self.stall_s,
            self.h2d_s,
            self.forward_s,
            self.backward_s,
            self.comm_exposed_s,
            self.optimizer_s,
            self.other_s or 0.0,
        )

    @property
    def compute_s(self) -> float:
        """Return the computation, with copies to the device, without packing."""
        return computation_s(
            self.h2d_s,
            self.forward_s,
            self.backward_s,
            self.optimizer_s,
            comm_inside_s=self.comm_forward_s + self.pack_s + self.comm_optimizer_s,
        )

    @property
    def exposed_s(self) -> float:
        """Return the exposed communication, with collectives in forward and in the optimizer."""
        return exposed_communication_s(
            self.comm_exposed_s, self.comm_forward_s, self.comm_optimizer_s
        )

    @property
    def comm_s(self) -> float:
        """Return the communication: exposed, and packing by hand."""
        return communication_s(self.exposed_s, self.pack_s)


class Steps(Value, frozen=True, kw_only=True):
    """Durations of the iterations of one epoch on one rank, in seconds, with stall.

    `first_tenth_s` and `last_tenth_s` are medians over the first and the last tenth, and
    `full_median_s` over the iterations with a full batch; None before schema 5. `quartile_width_s`
    is the third less the first quartile. `block_medians_s` are medians of ten consecutive blocks
    of iterations; None before version 0.6.0 and below ten iterations.
    """

    median_s: float
    p10_s: float
    p90_s: float
    first_tenth_s: float
    last_tenth_s: float
    full_median_s: float | None = None
    quartile_width_s: float | None = None
    block_medians_s: tuple[float, ...] | None = None


class Stalls(Value, frozen=True, kw_only=True):
    """How the stall of an epoch is spread over its batches on one rank, in seconds.

    `first_s` is the first batch's; `p20_s` the 20th percentile over batches; `last_s` the time
    after the last iteration. `batches` are more than the iterations with accumulate=; None before
    version 0.8.0, where they are the same. `block_means_s` are means of ten consecutive blocks of
    the batches after the first; None before version 0.10.0 and below ten of them.
    """

    first_s: float
    p20_s: float
    last_s: float
    batches: int | None = None
    block_means_s: tuple[float, ...] | None = None


class EvaluationShare(Value, frozen=True, kw_only=True):
    """The test result of one rank on its share of the test set; shares are disjoint.

    `loss_sum` is summed over its `samples`; `correct` is None where outputs are not class scores.
    """

    loss_sum: float
    correct: int | None
    samples: int


class Scheduling(Value, frozen=True, kw_only=True):
    """The operating system's accounts of one rank for one epoch, or a step after the epochs.

    They are read right before and right after it.

    Seconds, differences of the two readings, which are `window_s` apart; None where the system does
    not report a value. `run_queue_s` sums over the threads of the process the time in which they
    were ready to run and had no CPU; `loader_run_queue_s` is the same for its loader workers.
    `cpu_s` is the CPU time of the process with all its children. `busy_s` is the CPU time of all
    processes on the CPUs of its affinity mask, `stolen_s` what a hypervisor took of these CPUs.
    `throttled_s` is the time that CPU quotas of its control groups kept CPUs from it. `continued_s`
    has the times of SIGCONT since the first reading: a stopped process is continued by it.
    """

    window_s: float
    run_queue_s: float | None = None
    loader_run_queue_s: float | None = None
    cpu_s: float | None = None
    busy_s: float | None = None
    stolen_s: float | None = None
    throttled_s: float | None = None
    continued_s: tuple[float, ...] | None = None


class Energy(Value, frozen=True, kw_only=True):
    """The energy of one GPU in one epoch, by its own counter, in joules of the whole board.

    The two readings are right before and right after the epoch, `window_s` seconds apart.
    """

    uuid: str
    joules: float
    window_s: float


class Memory(Value, frozen=True, kw_only=True):
    """The memory of one rank's GPUs in one epoch, by torch's allocator.

    Bytes are the peaks of the fullest GPU: `allocated_bytes` of tensors, `reserved_bytes` of what
    the allocator holds. Memory of the CUDA context, NCCL and library handles is not in them.
    Those of a script are peaks since its process began, or since it reset them itself.
    `retries` are allocations for which cached memory had to be freed, which waits for the device;
    `ooms` those that failed; both are sums over the GPUs.
    """

    allocated_bytes: int
    reserved_bytes: int
    retries: int
    ooms: int


class SlowIterations(Value, frozen=True, kw_only=True):
    """The outlying iterations of one epoch on one rank, by `core.outliers.slow_iterations`.

    `excess_s` is the sum of their seconds above the median iteration. `longest_s` is the longest
    iteration of the epoch, `longest_index` its index from 0, whether it is outlying or not.
    """

    count: int
    excess_s: float
    longest_s: float
    longest_index: int


class Epoch(Value, frozen=True, kw_only=True):
    """One epoch of one rank, in seconds of that rank's clock.

    `epoch_s` is the time between the two synchronization points; `stall_s` is the part in which the
    device waited for a batch. `loss` and `accuracy` are means over the samples of the epoch;
    `accuracy` is None if outputs are not class scores, both are None of a script. Only the
    instrumented epoch has `phases` and `closure`, |epoch_s - sum of phases| / epoch_s. `order` is a
    hash of the training images' indices in the order of this rank; `lr` has the learning rates of
    the first and the last iteration. `share` is set with evaluate=true. `scheduling`, `slow` and
    `stalls` are None in records of versions before 0.6.0; `slow` also in epochs with too few
    iterations to tell. `energy` has the GPUs of the rank; None if one of them has no counter, on
    the CPU, and in records of versions before 0.7.0. `compiled_graphs`: those that torch compiled
    inside the epoch, in records of versions before 1.0 only. `memory` is None on the CPU, and
    `launch_s` too: the least time in which the host queued an iteration, from the return of its
    batch. `started_s` is its beginning on the node's monotonic clock. The three are None in
    records of versions before 0.8.0.
    """

    role: Role
    epoch_s: float
    stall_s: float
    iterations: int
    samples: int
    loss: float | None
    accuracy: float | None
    steps: Steps | None = None
    phases: Phases | None = None
    closure: float | None = None
    order: str = ""
    lr: tuple[float, float] | None = None
    share: EvaluationShare | None = None
    scheduling: Scheduling | None = None
    slow: SlowIterations | None = None
    stalls: Stalls | None = None
    energy: tuple[Energy, ...] | None = None
    memory: Memory | None = None
    launch_s: float | None = None
    compiled_graphs: int | None = None  # before 1.0
    started_s: float | None = None

    @property
    def slow_share(self) -> float:
        """The share of the epoch in slow iterations, above the median one; 0 where not known."""
        return self.slow.excess_s / self.epoch_s if self.slow else 0.0

    @property
    def batches(self) -> int:
        """Batches of the epoch, which are more than its iterations with accumulate=."""
        counted = self.stalls.batches if self.stalls else None
        return self.iterations if counted is None else counted


class Message(Value, frozen=True, kw_only=True):
    """Messages of one kind and size that a rank sent or received in one epoch.

    They are counted at the call. `bytes` and `elements` are those of one message: of an all-gather
    the gathered tensor, of a reduce-scatter the tensor before it (nccl-tests' size), of a gather or
    scatter one rank's part. `busy_s` is the sum of the durations of all `count` messages.
    """

    kind: CollectiveKind
    purpose: Purpose
    dtype: str
    elements: int
    bytes: int
    count: int
    busy_s: float


class IterationPhases(NamedTuple):
    """Phases of one iteration in seconds; the first six add up to the iteration.

    The others are parts of them: see `Phases` and `Communication`. These are the columns of
    `parts_s` in iterations.npz.
    """

    stall_s: float
    h2d_s: float
    forward_s: float
    backward_s: float
    comm_exposed_s: float
    optimizer_s: float
    comm_forward_s: float
    pack_s: float
    comm_total_s: float
    gradients_s: float
    replicas_forward_s: float
    replicas_backward_s: float
    buffers_s: float
    comm_optimizer_s: float


class Communication(Value, frozen=True, kw_only=True):
    """The collectives of the instrumented epoch on one rank.

    Seconds are lengths of unions of busy intervals (overlaps count once): of all collectives, of
    those that carry gradients, and of those that carry buffers. `buffers_s` has the copies of every
    buffer into and out of its message in it; None in records of versions before 0.8.0.
    """

    total_s: float
    gradients_s: float
    buffers_s: float | None = None
    messages: tuple[Message, ...] = ()

    def sent(self, purpose: Purpose) -> list[Message]:
        """Return the messages of one purpose."""
        return [message for message in self.messages if message.purpose == purpose]

    def bytes_of(self, purpose: Purpose) -> int:
        """Return the bytes of all messages of one purpose in the epoch."""
        return sum(m.bytes * m.count for m in self.sent(purpose))

    @property
    def gradient_kind(self) -> CollectiveKind | None:
        """The collective that carries the gradients; None without one, or with several."""
        kinds = {message.kind for message in self.sent(Purpose.GRADIENTS)}
        return kinds.pop() if len(kinds) == 1 else None


class Volume(Value, frozen=True, kw_only=True):
    """The bytes per iteration that a rank must pass through collectives of a kind and purpose.

    With `each_batch` they are those of one of the accumulated batches, not of the iteration.
    """

    kind: CollectiveKind
    purpose: Purpose
    bytes: int
    each_batch: bool = False

    def of_epoch(self, epoch: Epoch) -> int:
        """Return the bytes of an epoch."""
        return self.bytes * (epoch.batches if self.each_batch else epoch.iterations)


class Exchange(Value, frozen=True, kw_only=True):
    """The collectives compared over all ranks: time spent waiting for late ranks, and the rest.

    `skew_s` sums (max - min duration over ranks) over the collectives; `net_s` sums the minima.
    The same of all-reduces, all-gathers and reduce-scatters alone: `all_reduce_skew_s`,
    `all_reduce_net_s`; only these end on all ranks together, so that the minimum is what the link
    needed. `rooted_s` is the time of rank 0, which is their root except for zero1's, in broadcasts,
    gathers and scatters, from which other ranks return when their part is done. The three are None
    before schema 5, and where there was no such collective. The root of a broadcast or scatter
    returns when its data has left, so there `rooted_s` is a lower bound; `received_s`, with the
    time of the slowest receiver instead, is an upper one, since a receiver also waits until the
    root comes. It is None before version 0.8.0.
    `exchange_s` sums the minima over ranks of each collective's exposed part; the rank that comes
    last to a collective waits for nobody in it. Before version 0.9.0 the minima are those of each
    iteration's exposed communication, which is at least as much; None before schema 5.
    `gradients_net_s` is of the gradients among the messages without a root: their part of
    `service_s`, before version 0.10.0 of `all_reduce_net_s`; None before 0.9.0. `service_s` sums
    what the collectives take once all ranks are there. Of a rooted one this counts in `exchange_s`
    as well, as far as it is exposed; before version 0.10.0 it was the least rank's time, which is
    none of a transfer. Both are None where the clocks of ranks cannot be compared.
    """

    collectives: int
    skew_s: float
    net_s: float
    exchange_s: float | None = None
    all_reduce_skew_s: float | None = None
    all_reduce_net_s: float | None = None
    gradients_net_s: float | None = None
    rooted_s: float | None = None
    received_s: float | None = None  # before 1.0
    service_s: float | None = None

    @property
    def tells_kinds(self) -> bool:
        """Whether all-reduces are apart from rooted collectives."""
        return self.all_reduce_net_s is not None or self.rooted_s is not None


class MicrobenchmarkPoint(Value, frozen=True, kw_only=True):
    """Collectives of one kind and size: median, minimum and maximum seconds of the trials.

    `bytes` are counted as in `formulas.bus_factor`. A trial counts as its slowest rank. `sent`
    marks a size that the cell sends in training. `delayed` trials took more than 5 times the
    minimum: they waited for the scheduler, not for the link. Quartiles and `delayed` are None
    before schema 5. Of `launched_late` trials the time contains the launch, because a device
    reached its start before the host had queued the collective; they are left out, unless all
    trials are late. None where nothing is queued (device=cpu), and before version 0.8.0.
    """

    kind: CollectiveKind = CollectiveKind.ALL_REDUCE
    bytes: int
    trials: int
    median_s: float
    min_s: float
    max_s: float
    sent: bool = False
    lower_quartile_s: float | None = None
    upper_quartile_s: float | None = None  # before 1.0
    delayed: int | None = None  # before 1.0
    launched_late: int | None = None  # before 1.0

    @property
    def typical_s(self) -> float:
        """The lower quartile of the trials, which few delayed trials do not change.

        Before schema 5 the median.
        """
        return self.median_s if self.lower_quartile_s is None else self.lower_quartile_s


class Microbenchmark(Value, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The microbenchmark on idle devices: its points by collective and size, and its duration.

    `largest_asked_bytes` is the requested size; the largest point is smaller if time ran out.
    Records of versions before 1.0 may have NCCL's choices (`nccl`), which are ignored.
    """

    points: tuple[MicrobenchmarkPoint, ...]
    largest_asked_bytes: int
    seconds: float
