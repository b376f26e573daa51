"""The raw values of one run, and their medians over the runs of a row."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple, TypeVar

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.measurements import (
    TRAINING,
    CollectiveKind,
    Microbenchmark,
    MicrobenchmarkPoint,
    Phases,
    Purpose,
    Role,
)
from hpml_jobs.core.record import Rank, Record
from hpml_jobs.core.value import Value

TRAINED = (*TRAINING, "plain")
"""Roles of the epochs that train the model."""

PEAK_FROM_BYTES = 64 * 1024**2
"""The least message size (64 MiB) for the microbenchmark's peak bandwidth."""


class EpochTimes(Value, frozen=True, kw_only=True):
    """The timed epoch: all of it, without waiting for data, and waiting for data.

    `step_s` is the median of its iterations with a full batch, `joules` the energy of all GPUs.
    """

    epoch_s: float
    train_s: float | None = None
    stall_s: float | None = None
    step_s: float | None = None
    joules: float | None = None


class PhaseTimes(Value, frozen=True, kw_only=True):
    """The phases of the instrumented epoch, which add up to it; collectives in forward count there.

    `pack_s`, part of backward: copies into and out of messages, and averaging by hand.
    `closure`: |epoch - sum of phases| / epoch; `overhead`: what the instruments cost, E2/E1 - 1.
    """

    stall_s: float | None = None
    h2d_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    comm_exposed_s: float | None = None
    optimizer_s: float | None = None
    pack_s: float | None = None
    closure: float | None = None
    overhead: float | None = None


class CommunicationTimes(Value, frozen=True, kw_only=True):
    """Seconds of collectives in the instrumented epoch, by several definitions.

    Of one run, `exposed_s` = `exchange_s` + `waiting_s`. `comm_s` is that of Table 2: exposed, and
    packing by hand. `cost_s` is known to +- `cost_resolution_s`. `skew_s` and `net_s` are of
    all-reduces, `rooted_s` is the root's time in other collectives.
    """

    comm_s: float | None = None
    exposed_s: float | None = None
    exchange_s: float | None = None
    waiting_s: float | None = None
    total_s: float | None = None
    forward_s: float | None = None
    cost_s: float | None = None
    cost_resolution_s: float | None = None
    skew_s: float | None = None
    net_s: float | None = None
    rooted_s: float | None = None


class GradientTraffic(Value, frozen=True, kw_only=True):
    """Bytes of gradients that one rank sent, and the seconds in which such a message was active.

    `active_s`: on the rank that waits least; `net_s`: of each message on the rank with the least
    (`Record.gradients_net_s`); `root_s`: on rank 0.
    """

    sent_bytes: float | None = None
    active_s: float | None = None
    net_s: float | None = None
    root_s: float | None = None


class LinkSpeeds(Value, frozen=True, kw_only=True):
    """Reference speeds for gradients: the microbenchmark, and the link's specified speed.

    `delayed` is the share of the microbenchmark's trials that waited for the scheduler.
    """

    same_sizes_s: float | None = None
    peak_gb_per_s: float | None = None
    peak_bytes: float | None = None
    link_gb_per_s: float | None = None
    delayed: float | None = None


class RunValues(Value, frozen=True, kw_only=True):
    """One run, or medians over runs: seconds per epoch, unless a name says otherwise.

    What a record does not have is None: the instrumented epoch with protocol=lab, communication on
    one GPU, everything but a few timings in imported records.
    """

    epoch: EpochTimes
    compute_s: float | None = None
    communication: CommunicationTimes = CommunicationTimes()
    gradients: GradientTraffic = GradientTraffic()
    links: LinkSpeeds = LinkSpeeds()
    phases: PhaseTimes = PhaseTimes()


def of_record(record: Record, number: int | None = None) -> RunValues:
    """Return the values of one run; those of the instrumented epoch are of the rank `number`.

    That is the rank that waits least in all runs of the row, by default in this run.
    """
    rank = record.least_waiting if number is None else record.rank_of(number)
    phases = rank.phases if rank else None
    return RunValues(
        epoch=EpochTimes(
            epoch_s=record.epoch_s,
            train_s=record.train_s,
            stall_s=record.stall_s,
            step_s=record.step_s,
            joules=record.joules,
        ),
        compute_s=phases.compute_s if phases else record.compute_s,
        communication=_communication(record, rank),
        gradients=_gradients(record, rank),
        links=_links(record),
        phases=_phases(record, rank),
    )


def _communication(record: Record, rank: Rank | None) -> CommunicationTimes:
    phases = rank.phases if rank else None
    exposed_s = phases.exposed_s if phases else record.comm_exposed_s
    return CommunicationTimes(
        comm_s=phases.comm_s if phases else record.comm_s,
        exposed_s=exposed_s,
        exchange_s=record.exchange_s,
        waiting_s=formulas.waiting_s(exposed_s, record.exchange_s)
        if exposed_s is not None and record.exchange_s is not None
        else None,
        total_s=rank.communication.total_s if rank and rank.communication else None,
        forward_s=phases.comm_forward_s if phases else None,
        cost_s=record.comm_cost_s,
        cost_resolution_s=record.comm_cost_resolution_s,
        skew_s=record.skew_s,
        net_s=record.net_s,
        rooted_s=record.rooted_s,
    )


def _gradients(record: Record, rank: Rank | None) -> GradientTraffic:
    communication = rank.communication if rank else None
    root = record.ranks[0].communication if record.ranks else None
    return GradientTraffic(
        sent_bytes=communication.bytes_of(Purpose.GRADIENTS) if communication else None,
        active_s=communication.gradients_s if communication else None,
        net_s=record.gradients_net_s,
        root_s=root.gradients_s if root else None,
    )


def _links(record: Record) -> LinkSpeeds:
    communication, benchmark = record.communication, record.microbenchmark
    kind = communication.gradient_kind if communication else None
    peak = (
        peak_of(benchmark, record.cell.gpus, kind or CollectiveKind.ALL_REDUCE)
        if benchmark
        else None
    )
    return LinkSpeeds(
        same_sizes_s=record.same_sizes_s,
        peak_gb_per_s=peak.gb_per_s if peak else None,
        peak_bytes=peak.bytes if peak else None,
        link_gb_per_s=record.link_gb_per_s,
        delayed=_delayed(benchmark.points) if benchmark else None,
    )


def _delayed(points: Sequence[MicrobenchmarkPoint]) -> float | None:
    """Return the share of delayed trials; None where they were not counted."""
    counts = [point.delayed for point in points if point.delayed is not None]
    trials = sum(point.trials for point in points)
    return sum(counts) / trials if trials and len(counts) == len(points) else None


def _phases(record: Record, rank: Rank | None) -> PhaseTimes:
    phases = rank.phases if rank else None
    epoch = rank.epoch(Role.INSTRUMENTED) if rank else None
    return msgspec.structs.replace(
        phase_times(phases) if phases else PhaseTimes(),
        closure=epoch.closure if epoch else None,
        overhead=record.overhead,
    )


def phase_times(phases: Phases) -> PhaseTimes:
    """Return the phases of one rank's instrumented epoch."""
    return PhaseTimes(
        stall_s=phases.stall_s,
        h2d_s=phases.h2d_s,
        forward_s=phases.forward_s,
        backward_s=phases.backward_s,
        comm_exposed_s=phases.comm_exposed_s,
        optimizer_s=phases.optimizer_s,
        pack_s=phases.pack_s,
    )


class Peak(NamedTuple):
    """The best bus bandwidth of the microbenchmark (1e9 bytes/s), and the size that reached it."""

    gb_per_s: float
    bytes: int


def peak_of(
    benchmark: Microbenchmark, processes: int, kind: CollectiveKind = CollectiveKind.ALL_REDUCE
) -> Peak | None:
    """Return a collective's best bus bandwidth in messages of 64 MiB and more.

    If there are no such messages, of the largest.
    """
    points = benchmark.points_of(kind)
    if not points:
        return None
    largest = max(point.bytes for point in points)
    least = min(largest, PEAK_FROM_BYTES)
    peaks = [
        Peak(formulas.bus_gb_per_s(point.bytes, point.typical_s, processes, kind), point.bytes)
        for point in points
        if point.bytes >= least and point.typical_s > 0
    ]
    return max(peaks, default=None)


def medians(runs: Sequence[RunValues]) -> RunValues:
    """Return each value's median over the runs that have it. Needs one run or more."""
    compute_s = [run.compute_s for run in runs if run.compute_s is not None]
    return RunValues(
        epoch=_medians([run.epoch for run in runs]),
        compute_s=median(compute_s) if compute_s else None,
        communication=_medians([run.communication for run in runs]),
        gradients=_medians([run.gradients for run in runs]),
        links=_medians([run.links for run in runs]),
        phases=_medians([run.phases for run in runs]),
    )


Part = TypeVar("Part", bound=Value)


def _medians(parts: Sequence[Part]) -> Part:
    """Return the medians of a struct of optional numbers, field by field."""
    columns: dict[str, list[float]] = {}
    for part in parts:
        for name, value in msgspec.structs.asdict(part).items():
            if value is not None:
                columns.setdefault(name, []).append(value)
    return type(parts[0])(**{name: float(median(values)) for name, values in columns.items()})
