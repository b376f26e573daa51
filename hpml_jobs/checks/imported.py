"""Plausibility checks of imported timings, as a CSV file reports them."""

from hpml_jobs.checks.correctness import faster_than_peak
from hpml_jobs.checks.quality import too_few_iterations
from hpml_jobs.checks.result import TIMES, Affected, Level, Observation, Tier, check
from hpml_jobs.checks.waiting import loader_bound
from hpml_jobs.core.formulas import bus_gb_per_s, expected_bytes, iterations
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import BandwidthKind
from hpml_jobs.core.text import Share, percent_text

UNACCOUNTED_LIMIT = Share(0.02)
LINK_LIMIT = 1.1


@check("iterations", Level.FAIL, Tier.NUMBER, *TIMES)
def other_iterations(record: Record) -> Observation | None:
    """The reported iterations are not those of this many images, GPUs and images per GPU.

    Limit: exactly ceil(ceil(images / gpus) / batch)
    Fix: correct the batch, data set or number of GPUs of the row
    """
    imported, cell = record.imported, record.cell
    images = cell.workload.images
    if imported is None or imported.iterations is None or images is None:
        return None
    expected = iterations(images, cell.gpus, cell.batch)
    as_global = {
        iterations(images, 1, cell.batch),
        iterations(images, cell.gpus, max(1, cell.batch // cell.gpus)),
    }
    is_global = cell.gpus > 1 and imported.iterations in as_global
    return Observation(
        imported.iterations == expected,
        f"{imported.iterations:,} iterations are reported, {cell.gpus} x {cell.batch} of "
        f"{images:,} images make {expected:,}",
        "use batch_is=global, it looks like a global batch" if is_global else "",
    )


@check("times", Level.FAIL, Tier.NUMBER, Affected.TIME, Affected.SPLIT)
def part_exceeds_epoch(record: Record) -> Observation | None:
    """A part of the epoch is reported to be longer than the epoch.

    Limit: epoch_s
    Fix: correct the units: seconds per epoch, not per iteration
    """
    imported = record.imported
    if imported is None:
        return None
    columns = {
        "train_s": imported.train_s,
        "compute_s": imported.compute_s,
        "comm_s": imported.comm_s,
    }
    parts = {name: part_s for name, part_s in columns.items() if part_s is not None}
    if not parts:
        return None
    name, longest_s = max(parts.items(), key=lambda part: part[1])
    text = f"{name} is {longest_s:.4g} s of an epoch of {imported.epoch_s:.4g} s"
    return Observation(longest_s <= imported.epoch_s, text)


@check("closure", Level.FAIL, Tier.TABLE, Affected.SPLIT)
def unaccounted_time(record: Record) -> Observation | None:
    """Computation and communication do not add up to train_s: time is counted twice or not at all.
    Without train_s, missing time may be data loading: a warning.

    Limit: {UNACCOUNTED_LIMIT} of train_s (of epoch_s where train_s is unknown)
    Fix: correct compute_s or comm_s
    """
    imported = record.imported
    if imported is None or imported.compute_s is None or imported.comm_s is None:
        return None
    name = "epoch_s" if imported.train_s is None else "train_s"
    whole = imported.epoch_s if imported.train_s is None else imported.train_s
    if not whole:
        return None
    gap = (whole - imported.compute_s - imported.comm_s) / whole
    may_be_loading = gap > 0 and imported.train_s is None
    return Observation(
        abs(gap) <= UNACCOUNTED_LIMIT,
        f"compute_s and comm_s are {percent_text(abs(gap))} {'less' if gap > 0 else 'more'} than "
        f"{name} (limit {UNACCOUNTED_LIMIT})",
        "add train_s, the rest may be data loading" if may_be_loading else "",
        Level.WARN if may_be_loading else None,
    )


@check("bus-bandwidth", Level.FAIL, Tier.NUMBER, Affected.SPLIT, Affected.BANDWIDTH)
def faster_than_link(record: Record) -> Observation | None:
    """comm_s implies a bandwidth above that of the link: part of the communication was not timed.

    Limit: {LINK_LIMIT:g} x cluster.link_gb_per_s, where that is known
    Fix: time all of the communication, or correct cluster.link_gb_per_s
    """
    imported, facts, cell = record.imported, record.facts, record.cell
    speed = facts.link_gb_per_s if facts else None
    if imported is None or not speed or not imported.comm_s or record.model is None:
        return None
    if cell.gpus < 2 or cell.strategy.traffic.bandwidth is not BandwidthKind.BUS:
        return None
    if record.iterations is None:
        return None
    sent = expected_bytes(record.iterations, record.model.gradient_bytes)
    reached = bus_gb_per_s(sent, imported.comm_s, cell.gpus)
    return Observation(
        reached <= LINK_LIMIT * speed,
        f"comm_s implies {reached:.3g} GB/s on a link of {speed:.3g} (limit {LINK_LIMIT:g} x)",
    )


CHECKS = (
    other_iterations,
    part_exceeds_epoch,
    unaccounted_time,
    faster_than_peak,
    faster_than_link,
    loader_bound,
    too_few_iterations,
)
"""Those of measured records that an imported one allows are among them."""
