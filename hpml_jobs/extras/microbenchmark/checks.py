"""Was training faster or slower than the microbenchmark of the same messages? Checks of both."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.checks.disturbance import DISTURBED, MEASURE_AGAIN
from hpml_jobs.checks.result import Observation, check
from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.disturbance import outside_causes
from hpml_jobs.core.formulas import bus_gb_per_s, interpolated_s
from hpml_jobs.core.measurements import Communication, Message, Purpose, Step
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import BUS_BANDWIDTHS, Device

OVERLAPPED = 1.05
"""Messages whose durations sum to more than this times their union overlap each other."""

BUSBW_LIMIT = 1.1
LARGE_MIB = 1
"""On a GPU the time of smaller messages is mostly latency."""


class Speeds(NamedTuple):
    """Bus bandwidths of some messages in GB/s: in training, and of the microbenchmark."""

    reached: float
    peak: float

    @property
    def is_possible(self) -> bool:
        """Whether training was not faster than idle devices, within the limit."""
        return self.reached <= BUSBW_LIMIT * self.peak


@check(
    "bus-bandwidth",
    Level.FAIL,
    Tier.NUMBER,
    Affected.BANDWIDTH,
    explained_by={DISTURBED},
)
def faster_than_microbenchmark(record: Record) -> Observation | None:
    """Gradients travelled faster than the fastest trials of the microbenchmark on idle devices: the
    time of communication missed part of the work. On a GPU only messages of {LARGE_MIB} MiB or more
    fail, and sizes whose launch from Python is in every trial are not judged. If the microbenchmark
    was disturbed, it is a warning.

    Limit: {BUSBW_LIMIT:g} x the microbenchmark at the sizes of the messages (at its best size where
    messages overlap each other)
    Fix: do not use Table 3 of this cell; {REPORT_BUG}
    """
    race = _race(record)
    if race is None:
        return None
    speeds = race.speeds(race.sent, race.seconds)
    level = Level.FAIL
    is_on_gpu = record.cell.device is Device.CUDA
    if is_on_gpu and not speeds.is_possible and race.is_won_by_small():
        level = Level.WARN
    where = "any size" if race.overlap else "these sizes"
    text = (
        f"bus bandwidth is {speeds.reached:.3g} GB/s, the microbenchmark reached "
        f"{speeds.peak:.3g} at {where} (limit {BUSBW_LIMIT:g} x)"
    )
    if not speeds.is_possible and outside_causes(record, Step.MICROBENCHMARK):
        return Observation(
            False,
            f"{text}; the microbenchmark was disturbed",
            MEASURE_AGAIN,
            Level.WARN,
        )
    return Observation(speeds.is_possible, text, level=level)


class _Race(NamedTuple):
    """The gradients' messages in training, their seconds, and the same on idle devices.

    `best_s` are the least seconds of the microbenchmark by bytes. Where messages overlap, the best
    of any size is possible.
    """

    sent: Sequence[Message]
    seconds: float
    best_s: dict[int, float]
    processes: int
    overlap: bool

    def speeds(self, sent: Sequence[Message], time_s: float) -> Speeds:
        """Return the bus bandwidth of messages that took `time_s`, and the best possible."""
        total, kind = sum(m.bytes * m.count for m in sent), sent[0].kind
        if self.overlap:
            peak = max(
                bus_gb_per_s(size, seconds, self.processes, kind)
                for size, seconds in self.best_s.items()
            )
        else:
            alone_s = sum(m.count * _least_s(self.best_s, m.bytes) for m in sent)
            peak = bus_gb_per_s(total, alone_s, self.processes, kind)
        return Speeds(bus_gb_per_s(total, time_s, self.processes, kind), peak)

    def is_won_by_small(self) -> bool:
        """Return whether only small messages, whose time is mostly latency, were too fast."""
        large = [message for message in self.sent if message.bytes >= LARGE_MIB * 2**20]
        if not large:
            return True
        time_s = self.seconds
        if not self.overlap:
            time_s = sum(message.busy_s for message in large)
        return self.speeds(large, time_s).is_possible


def _race(record: Record) -> _Race | None:
    """Return what is compared, on the rank whose gradients took least; None if it is not known."""
    cell, benchmark = record.cell, record.microbenchmark
    by_all_ranks = cell.strategy.traffic.bandwidth in BUS_BANDWIDTHS
    of_ranks = [rank.communication for rank in record.ranks if rank.communication]
    if benchmark is None or not of_ranks or not by_all_ranks or cell.gpus < 2:
        return None
    communication = min(of_ranks, key=lambda of_rank: of_rank.gradients_s)
    kind, time_s = communication.gradient_kind, communication.gradients_s
    if kind is None or not time_s or not communication.bytes_of(Purpose.GRADIENTS):
        return None
    points = [point for point in benchmark.points_of(kind) if not point.contains_launch]
    best_s = {
        point.bytes: point.min_s for point in points if point.bytes and point.min_s
    }
    if not best_s:
        return None
    sent = communication.sent(Purpose.GRADIENTS)
    return _Race(sent, time_s, best_s, cell.gpus, _gradients_overlap(communication))


def _gradients_overlap(communication: Communication) -> bool:
    """Return whether messages of gradients overlap: their durations exceed their union."""
    total_s = sum(message.busy_s for message in communication.sent(Purpose.GRADIENTS))
    return total_s > OVERLAPPED * communication.gradients_s


def _least_s(times_s: dict[int, float], size: int) -> float:
    """Return the time of a message; outside the sizes measured, at the nearest one's bandwidth."""
    inside = interpolated_s(times_s, size)
    if inside is not None:
        return inside
    nearest = min(times_s, key=lambda measured: abs(measured - size))
    return times_s[nearest] * size / nearest


@check(
    "slow-microbenchmark",
    Level.WARN,
    Tier.TABLE,
    Affected.BANDWIDTH,
    explained_by={DISTURBED},
)
def slower_than_training(record: Record) -> Observation | None:
    """The microbenchmark took longer for the gradients' messages than training did, on idle
    devices: it was disturbed, so shares of it are wrong. Not judged where messages
    overlap each other.

    Limit: {BUSBW_LIMIT:g} x the time of the same messages in training
    Fix: measure the cell again (rerun=true)
    """
    communication, net_s = record.communication, record.gradients_net_s
    alone_s = record.same_sizes_s
    if (
        communication is None
        or alone_s is None
        or not net_s
        or _gradients_overlap(communication)
    ):
        return None
    return Observation(
        alone_s <= BUSBW_LIMIT * net_s,
        f"the microbenchmark needs {alone_s / net_s:.3g} x the time of the same messages in "
        f"training (limit {BUSBW_LIMIT:g} x)",
    )
