"""The figures of a run, read from the record and gone with its epoch; runs that are left out."""

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Annotated, Any, NamedTuple, get_type_hints

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import (
    CollectiveKind,
    Microbenchmark,
    Phases,
    Purpose,
    Role,
    Step,
)
from hpml_jobs.core.rank import Rank, least_waiting
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import BandwidthKind, Strategy
from hpml_jobs.core.value import Value, cached_on_value, known
from hpml_jobs.results.disturbance import WITHHELD_MOST, outside_causes, withheld_share
from hpml_jobs.results.statistics import run_noise

PEAK_FROM_BYTES = 64 * 1024**2
"""The least message size (64 MiB) for the microbenchmark's peak bandwidth."""

Timed = float | None
Split = Annotated[float | None, Role.INSTRUMENTED]
Cost = Annotated[float | None, Role.UNSYNCED]
Alone = Annotated[float | None, Step.MICROBENCHMARK]


class Figures(Value, frozen=True, kw_only=True):
    """One run, or medians over runs: seconds per epoch, unless a name says otherwise.

    What a record does not have is None: the instrumented epoch with protocol=lab, communication on
    one GPU, everything but a few timings in imported records. To add a figure, add a field here; if
    it is not the property of the same name of a record, its rule is in `figures_of`.

    `train_s` is without waiting for data, `step_s` the median of the iterations with a full batch,
    `joules` the energy of all GPUs. Of one run, `comm_exposed_s` = `exchange_s` + `waiting_s`;
    `comm_s` is that of Table 2: exposed, and packing by hand. `comm_cost_s` is known to +-
    `comm_cost_resolution_s`. `skew_s` and `net_s` are of all-reduces, `rooted_s` is the root's time
    in other collectives. `gradients_net_s` is the time of each message of gradients on the rank
    with the least, `gradients_root_s` the time of all on rank 0. The phases add up to
    the instrumented epoch; `closure` is |epoch - sum of phases| / epoch, `overhead` what the
    instruments cost, instrumented epoch / timed epoch - 1. `others_*` are means of the ranks that
    wait for the one that waits least, or of the only rank; `others_run_queue_s` is per thread.
    `noise` is the relative error of the timed epoch that the run knows itself, by the instrumented
    one too.
    """

    epoch_s: float
    train_s: Timed = None
    stall_s: Timed = None
    compute_s: Split = None
    step_s: Timed = None
    joules: Timed = None
    comm_s: Split = None
    comm_exposed_s: Split = None
    exchange_s: Split = None
    waiting_s: Split = None
    comm_total_s: Split = None
    comm_forward_s: Split = None
    comm_cost_s: Cost = None
    comm_cost_resolution_s: Cost = None
    skew_s: Split = None
    net_s: Split = None
    rooted_s: Split = None
    gradients_net_s: Split = None
    gradients_root_s: Split = None
    gradients_sent_bytes: Split = None
    peak_gb_per_s: Alone = None
    peak_bytes: Alone = None
    phase_stall_s: Split = None
    phase_h2d_s: Split = None
    phase_forward_s: Split = None
    phase_backward_s: Split = None
    phase_comm_exposed_s: Split = None
    phase_optimizer_s: Split = None
    phase_other_s: Split = None
    pack_s: Split = None
    closure: Split = None
    overhead: Split = None
    others_stall_s: Timed = None
    others_run_queue_s: Timed = None
    others_compute_s: Split = None
    others_exchange_s: Split = None
    others_waiting_s: Split = None
    noise: Split = None


NAMES = Figures.__struct_fields__

_OF_RECORD = tuple(name for name in NAMES if hasattr(Record, name))
"""The figures that are properties of a record."""

EPOCHS: dict[str, Role | Step] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Figures, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
"""The epoch, or the step after the epochs, of each figure that is not of the timed epoch."""

PHASES = {
    name: name.removeprefix("phase_") for name in NAMES if name.startswith("phase_")
}
"""The phases that add up to the instrumented epoch, by figure, with their names on a rank."""

RATIOS = ("closure", "overhead", "noise")
"""Figures that use the instrumented epoch, and are neither seconds nor bytes."""

NO_FIGURES = Figures(epoch_s=math.nan)


def figures_of(record: Record, number: int | None = None) -> Figures:
    """Return the figures of one run; those of the instrumented epoch are of the rank `number`.

    That is the rank that waits least in all runs of the row, by default in this run.
    """
    rank = record.least_waiting if number is None else record.rank_of(number)
    return _figures_of(record, rank.rank if rank else None)


@cached_on_value
def _figures_of(record: Record, number: int | None) -> Figures:
    rank = record.rank_of(number)
    figures: dict[str, Any] = {name: getattr(record, name) for name in _OF_RECORD}
    figures["noise"] = run_noise(record)
    if record.ranks:
        figures |= _of_others(record, rank)
        root = record.ranks[0].communication
        figures["gradients_root_s"] = root.gradients_s if root else None
    if rank:
        figures |= _of_rank(rank, record.exchange_s)
    if record.microbenchmark:
        figures |= _of_microbenchmark(record, record.microbenchmark)
    # times of windows are shown as those of the work
    times_of: dict[Role | Step, float] = {
        Role.INSTRUMENTED: record.per_instrumented,
        Role.UNSYNCED: record.per_work,
    }
    for name, epoch in EPOCHS.items():
        times = times_of.get(epoch, 1)
        if times != 1 and name not in RATIOS and figures.get(name) is not None:
            figures[name] *= times
    return Figures(**figures)


def _of_rank(rank: Rank, exchange_s: float | None) -> dict[str, float | None]:
    """Return the figures of one rank's instrumented epoch."""
    figures: dict[str, float | None] = {}
    if epoch := rank.epoch(Role.INSTRUMENTED):
        figures["closure"] = epoch.closure
    if phases := rank.phases:
        exposed_s = phases.exposed_s
        figures |= {phase: getattr(phases, name) for phase, name in PHASES.items()}
        figures |= {"compute_s": phases.compute_s, "comm_s": phases.comm_s}
        figures |= {"pack_s": phases.pack_s, "comm_forward_s": phases.comm_forward_s}
        figures["comm_exposed_s"] = exposed_s
        if exchange_s is not None:
            figures["waiting_s"] = formulas.waiting_s(exposed_s, exchange_s)
    if communication := rank.communication:
        figures["comm_total_s"] = communication.total_s
        figures["gradients_sent_bytes"] = communication.bytes_of(Purpose.GRADIENTS)
    return figures


def _of_others(record: Record, rank: Rank | None) -> dict[str, float]:
    """Return the means of the ranks that wait for a rank; without it, or of it alone, of all."""
    others = [other for other in record.ranks if other is not rank] or [*record.ranks]
    stall_s = fmean(other.timed.stall_s for other in others)
    figures = {"others_stall_s": record.per_work * stall_s}
    queues_s = (queued_s(other, Role.TIMED) for other in others)
    if known_s := known(queues_s):
        figures["others_run_queue_s"] = record.per_work * fmean(known_s)
    if phases := [other.phases for other in others if other.phases]:
        figures |= _of_phases(record, phases)
    return figures


def queued_s(rank: Rank, role: Role) -> float | None:
    """Return how long a thread of a rank waited for a CPU in an epoch; None: not known."""
    epoch = rank.epoch(role)
    account = epoch.scheduling if epoch else None
    if account is None or account.run_queue_s is None:
        return None
    return account.run_queue_s / rank.threads


def _of_phases(record: Record, phases: Sequence[Phases]) -> dict[str, float]:
    """Return the means of computation, exchange and waiting over ranks."""
    exposed_s = fmean(of_rank.exposed_s for of_rank in phases)
    pack_s = fmean(of_rank.pack_s for of_rank in phases)
    figures = {"others_compute_s": fmean(of_rank.compute_s for of_rank in phases)}
    if (exchange_s := record.exchange_s) is not None:
        figures["others_waiting_s"] = formulas.waiting_s(exposed_s, exchange_s)
        figures["others_exchange_s"] = exchange_s + pack_s
    # one process, which waits for no rank
    elif not record.cell.strategy.under_torchrun:
        figures["others_exchange_s"] = exposed_s + pack_s
    return figures


def _of_microbenchmark(
    record: Record, benchmark: Microbenchmark
) -> dict[str, float | None]:
    communication = record.communication
    kind = communication.gradient_kind if communication else None
    peak = peak_of(benchmark, record.cell.gpus, kind or CollectiveKind.ALL_REDUCE)
    return {"peak_gb_per_s": peak.gb_per_s, "peak_bytes": peak.bytes} if peak else {}


class PeakBandwidth(NamedTuple):
    """The best bus bandwidth of the microbenchmark (1e9 bytes/s), and the size that reached it."""

    gb_per_s: float
    bytes: int


def peak_of(
    benchmark: Microbenchmark,
    processes: int,
    kind: CollectiveKind = CollectiveKind.ALL_REDUCE,
) -> PeakBandwidth | None:
    """Return a collective's best bus bandwidth in messages of 64 MiB and more.

    If there are no such messages, of the largest.
    """
    points = [point for point in benchmark.points if point.kind is kind]
    if not points:
        return None
    largest = max(point.bytes for point in points)
    least = min(largest, PEAK_FROM_BYTES)
    peaks = [
        PeakBandwidth(
            formulas.bus_gb_per_s(point.bytes, point.typical_s, processes, kind),
            point.bytes,
        )
        for point in points
        if point.bytes >= least and point.typical_s > 0
    ]
    return max(peaks, default=None)


def medians(runs: Sequence[Figures]) -> Figures:
    """Return each figure's median over the runs that have it. Needs one run or more."""
    figures = {}
    for name in NAMES:
        if values := known(getattr(run, name) for run in runs):
            figures[name] = float(median(values))
    return Figures(**figures)


def without_epoch(figures: Figures, epoch: Role | Step) -> Figures:
    """Return the figures of a run without those of one epoch, or of a step after the epochs."""
    names = [name for name in EPOCHS if EPOCHS[name] is epoch]
    return msgspec.structs.replace(figures, **dict.fromkeys(names))


class LeftOut(Value, frozen=True, kw_only=True):
    """A run that medians of its row do not contain, with the outside causes that were measured.

    `role` is the disturbed epoch or step: of the timed one nothing of the run counts, otherwise
    only the values of that epoch do not.
    """

    slug: str
    reason: str
    role: Role | Step


WITHOUT = {
    Role.TIMED: (Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH),
    Role.INSTRUMENTED: (Affected.SPLIT, Affected.BANDWIDTH),
    Role.UNSYNCED: (),  # of Table 2 only the cost of communication
    Step.MICROBENCHMARK: (),  # of Table 3 only what the microbenchmark reached
}
"""The kinds of a row's numbers that do not contain a run whose epoch or step was disturbed."""


class CountedRuns(NamedTuple):
    """The runs of a row that count, with their values, and those that are left out.

    The phases of all are those of one `rank`.
    """

    records: tuple[Record, ...]
    values: tuple[Figures, ...]
    left_out: tuple[LeftOut, ...]
    rank: int | None


def counted_runs(records: Sequence[Record]) -> CountedRuns:
    """Leave out disturbed runs where an undisturbed one of the same row exists.

    Runs with slow iterations alone, without a measured outside cause, always count.
    """
    reasons = _reasons_to_leave_out(records, Role.TIMED)
    counted = [record for record in records if record.slug not in reasons]
    without_split = _reasons_to_leave_out(counted, Role.INSTRUMENTED)
    number = least_waiting(
        record.ranks for record in counted if record.slug not in without_split
    )
    values = {record.slug: figures_of(record, number) for record in counted}
    left_out = [_left_out(reasons, Role.TIMED)]
    for role in (Role.INSTRUMENTED, Role.UNSYNCED, Step.MICROBENCHMARK):
        reasons = _reasons_to_leave_out(counted, role)
        values |= {slug: without_epoch(values[slug], role) for slug in reasons}
        left_out.append(_left_out(reasons, role))
    return CountedRuns(
        tuple(counted),
        tuple(values.values()),
        tuple(itertools.chain(*left_out)),
        number,
    )


def _reasons_to_leave_out(
    records: Sequence[Record], role: Role | Step
) -> dict[str, str]:
    """Return by slug why disturbed epochs do not count; where all are, those disturbed most.

    A disturbance adds time: a timed epoch that is faster than all that count counts, too.
    """
    reasons = {
        record.slug: "; ".join(cause.text for cause in causes)
        for record in records
        if (causes := outside_causes(record, role))
    }
    if role is not Role.TIMED:
        return reasons if len(reasons) < len(records) else {}
    left_out = [r for r in records if r.slug in reasons]
    if len(left_out) == len(records):
        left_out = [r for r in records if withheld_share(r) > WITHHELD_MOST]
    counting = (r.epoch_s for r in records if r not in left_out)
    fastest_s = min(counting, default=math.inf)
    return {r.slug: reasons[r.slug] for r in left_out if r.epoch_s >= fastest_s}


def _left_out(reasons: Mapping[str, str], role: Role | Step) -> list[LeftOut]:
    return [LeftOut(slug=slug, reason=why, role=role) for slug, why in reasons.items()]


class Bandwidth(Value, frozen=True, kw_only=True):
    """GB/s of the gradients alone, without buffers and their time; None if unknown.

    `algorithm`, `bus`: by the time of the rank with the least, since on an early rank the time
    contains waiting for the late one.
    `nominal`: what a ring all-reduce of the gradients would have reached in dp's time.
    `root_wire`: what passed through rank 0's link under gather_scatter, by rank 0's time.
    """

    sent_bytes: float
    expected_bytes: int | None = None
    algorithm_gb_per_s: float | None = None
    bus_gb_per_s: float | None = None
    nominal_gb_per_s: float | None = None
    root_wire_gb_per_s: float | None = None
    of_peak: float | None = None

    @property
    def lab_gb_per_s(self) -> float | None:
        """The value in Table 3: the bus bandwidth, else the nominal, else root's link."""
        values = (self.bus_gb_per_s, self.nominal_gb_per_s, self.root_wire_gb_per_s)
        return next(iter(known(values)), None)


def bandwidth(
    values: Figures,
    strategy: Strategy,
    gpus: int,
    iterations: int | None,
    gradient_bytes: int | None,
) -> Bandwidth | None:
    """Return the bandwidths of one place; None if no gradient was seen on the wire."""
    sent = values.gradients_sent_bytes
    net_s = values.gradients_net_s
    if not sent or not net_s or gpus == 1 or iterations is None:
        return None
    fields: dict[str, Any] = {
        "sent_bytes": sent,
        "expected_bytes": _expected(strategy, iterations, gradient_bytes),
        "algorithm_gb_per_s": formulas.algorithm_gb_per_s(sent, net_s),
    }
    match strategy.traffic.bandwidth:
        case BandwidthKind.NOMINAL:
            fields |= _nominal(net_s, gpus, iterations, gradient_bytes)
        case BandwidthKind.ROOT_WIRE:
            fields |= _by_root(values, sent, gpus)
        case BandwidthKind.BUS | BandwidthKind.SHARDED as kind:
            fields |= _by_bus(values, kind.wire_bytes(sent, gpus), net_s)
    return Bandwidth(**fields)


def _expected(
    strategy: Strategy, iterations: int, gradient_bytes: int | None
) -> int | None:
    """Return the bytes of gradients that a rank must send; None where they are not known."""
    passes = strategy.traffic.passes
    if gradient_bytes is None or passes is None:
        return None
    return formulas.expected_bytes(iterations, gradient_bytes, passes)


def _nominal(
    net_s: float, gpus: int, iterations: int, gradient_bytes: int | None
) -> dict[str, float]:
    if gradient_bytes is None:
        return {}
    once = formulas.expected_bytes(iterations, gradient_bytes)
    return {"nominal_gb_per_s": formulas.bus_gb_per_s(once, net_s, gpus)}


def _by_root(values: Figures, sent: float, gpus: int) -> dict[str, float | None]:
    """Return the bandwidths by rank 0's time: the link of root carries S out and S back per rank.

    Root's own time: another rank is done as soon as its part is sent.
    """
    root_s = values.gradients_root_s
    if not root_s:
        return {}
    return {
        "algorithm_gb_per_s": formulas.algorithm_gb_per_s(sent, root_s),
        "root_wire_gb_per_s": formulas.algorithm_gb_per_s((gpus - 1) * sent, root_s),
    }


def _by_bus(
    values: Figures, wire_bytes: float, net_s: float
) -> dict[str, float | None]:
    bus = formulas.algorithm_gb_per_s(wire_bytes, net_s)
    return {
        "bus_gb_per_s": bus,
        "of_peak": bus / values.peak_gb_per_s if values.peak_gb_per_s else None,
    }
