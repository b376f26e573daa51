"""The raw values of one run of a place, and their medians over its runs."""

from collections.abc import Sequence
from statistics import median

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.measurements import (
    TRAINING,
    CollectiveKind,
    Communication,
    Phases,
    Probe,
    Purpose,
)
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import Value

TRAINED = (*TRAINING, "plain")
"""Roles of the epochs that train the model."""

PEAK_FROM_BYTES = 64 * 1024**2
"""The microbenchmark's peak is looked for in messages of this size and more (64 MiB)."""


class Values(Value, frozen=True, kw_only=True):
    """One run, or medians over runs: seconds per epoch, unless a name says otherwise.

    What a record cannot tell is None: the instrumented epoch with protocol=lab, communication on
    one GPU, everything but a few timings where they come from elsewhere.
    """

    epoch_s: float
    train_s: float | None = None
    stall_s: float | None = None
    compute_s: float | None = None
    comm_exposed_s: float | None = None
    comm_total_s: float | None = None
    comm_forward_s: float | None = None
    comm_cost_s: float | None = None
    skew_s: float | None = None
    net_s: float | None = None
    gradients_s: float | None = None  # on the rank whose phases are shown
    gradients_net_s: float | None = None  # on the rank with the least
    gradients_root_s: float | None = None  # on rank 0
    gradients_sent_bytes: float | None = None
    probe_same_sizes_s: float | None = None
    peak_gb_per_s: float | None = None
    peak_bytes: float | None = None
    link_gb_per_s: float | None = None
    phase_stall_s: float | None = None
    phase_h2d_s: float | None = None
    phase_forward_s: float | None = None
    phase_backward_s: float | None = None
    phase_comm_exposed_s: float | None = None
    phase_optimizer_s: float | None = None
    pack_s: float | None = None  # of backward: copies into and out of messages, averaging
    closure: float | None = None
    overhead: float | None = None


def of_record(record: Record) -> Values:
    """The values of one run."""
    phases, talk = record.phases, record.communication
    rank, exchange = record.instrumented, record.exchange
    epoch = rank.epoch("instrumented") if rank else None
    root = record.ranks[0].communication if record.ranks else None
    peak = peak_of(record.probe, record.cell.gpus) if record.probe else None
    return Values(
        epoch_s=record.epoch_s,
        train_s=record.train_s,
        stall_s=record.stall_s,
        compute_s=record.compute_s,
        comm_exposed_s=record.comm_exposed_s,
        comm_total_s=record.comm_total_s,
        comm_forward_s=phases.comm_forward_s if phases else None,
        comm_cost_s=record.comm_cost_s,
        skew_s=exchange.skew_s if exchange else None,
        net_s=exchange.net_s if exchange else None,
        gradients_s=talk.gradients_s if talk else None,
        gradients_net_s=record.gradients_net_s,
        gradients_root_s=root.gradients_s if root else None,
        gradients_sent_bytes=talk.bytes_of(Purpose.GRADIENTS) if talk else None,
        probe_same_sizes_s=_same_sizes_s(record.probe, talk),
        peak_gb_per_s=peak[1] if peak else None,
        peak_bytes=peak[0] if peak else None,
        link_gb_per_s=record.facts.link_gb_per_s if record.facts else None,
        **phases_of(phases),
        pack_s=phases.pack_s if phases else None,
        closure=epoch.closure if epoch else None,
        overhead=record.overhead,
    )


PHASES = ("stall", "h2d", "forward", "backward", "comm_exposed", "optimizer")
"""They add up to the instrumented epoch."""


def phases_of(phases: Phases | None) -> dict[str, float]:
    """The phases under the names they have here."""
    if phases is None:
        return {}
    return {f"phase_{name}_s": getattr(phases, f"{name}_s") for name in PHASES}


def peak_of(probe: Probe, processes: int) -> tuple[int, float] | None:
    """The best bus bandwidth (GB/s) of the microbenchmark, and at which size.

    Of messages of 64 MiB and more; where there are none, of the largest.
    """
    if not probe.points:
        return None
    largest = max(point.bytes for point in probe.points)
    least = min(largest, PEAK_FROM_BYTES)
    speeds = [
        (formulas.bus_gb_per_s(point.bytes, point.median_s, processes), point.bytes)
        for point in probe.points
        if point.bytes >= least and point.median_s > 0
    ]
    if not speeds:
        return None
    speed, size = max(speeds)
    return size, speed


def alone(probe: Probe, size: int) -> float | None:
    """Seconds of one message on idle devices; None beyond the sizes that were measured.

    Measured at this very size, else by the line where it was accepted, else between two sizes.
    """
    times_s = probe.times_s
    between_s = formulas.interpolated_s(times_s, size)
    if size in times_s or between_s is None:
        return between_s
    fit = formulas.fit_alpha_beta(times_s)
    return fit.time_s(size) if fit.accepted else between_s


def _same_sizes_s(probe: Probe | None, talk: Communication | None) -> float | None:
    """Seconds the epoch's gradient all-reduces take on idle devices; None if a size is missing."""
    if probe is None or talk is None:
        return None
    total = 0.0
    for message in talk.messages:
        if message.purpose != Purpose.GRADIENTS:
            continue
        alone_s = alone(probe, message.bytes)
        if message.kind != CollectiveKind.ALL_REDUCE or alone_s is None:
            return None
        total += message.count * alone_s
    return total or None


def medians(runs: Sequence[Values]) -> Values:
    """Each value's median over the runs that have it. Needs one run or more."""
    found = {}
    for name in Values.__struct_fields__:
        told = [value for run in runs if (value := getattr(run, name)) is not None]
        found[name] = median(told) if told else None
    return msgspec.convert(found, Values)
