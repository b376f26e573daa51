"""Can a timing measured elsewhere be right? Checks of what a CSV file tells."""

from hpml_jobs.checks.correctness import flops
from hpml_jobs.checks.limits import LINK_LIMIT, UNACCOUNTED_LIMIT
from hpml_jobs.checks.quality import loader_bound, short
from hpml_jobs.checks.result import CheckResult, Level, judge
from hpml_jobs.core.formulas import bus_gb_per_s, expected_bytes, iterations
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import BandwidthKind
from hpml_jobs.core.text import percent_text


def counted_iterations(record: Record) -> CheckResult | None:
    """The iterations told are those of this many images, GPUs, and images per GPU."""
    told, cell = record.imported, record.cell
    images = cell.workload.images
    if told is None or told.iterations is None or images is None:
        return None
    expected = iterations(images, cell.gpus, cell.batch)
    as_global = {
        iterations(images, 1, cell.batch),
        iterations(images, cell.gpus, max(1, cell.batch // cell.gpus)),
    }
    advice = "another batch, data set or number of GPUs than the row says"
    if cell.gpus > 1 and told.iterations in as_global:
        advice = "looks like a global batch: batch_is=global"
    return judge(
        "iterations",
        holds=told.iterations == expected,
        found=f"{told.iterations:,} iterations are told, {cell.gpus} x {cell.batch} of "
        f"{images:,} images make {expected:,}",
        advice=advice,
    )


def times(record: Record) -> CheckResult | None:
    """No part of the epoch is longer than the epoch."""
    told = record.imported
    if told is None:
        return None
    parts = {"train_s": told.train_s, "compute_s": told.compute_s, "comm_s": told.comm_s}
    known = {name: part for name, part in parts.items() if part is not None}
    if not known:
        return None
    longest = max(known, key=lambda name: known[name])
    return judge(
        "times",
        holds=known[longest] <= told.epoch_s,
        found=f"{longest} is {known[longest]:.4g} s of an epoch of {told.epoch_s:.4g} s",
        advice="a part cannot be longer than the whole; per iteration, or another unit?",
    )


def accounted(record: Record) -> CheckResult | None:
    """Computation and communication add up to the epoch without data loading, within 2 %."""
    told = record.imported
    if told is None or told.compute_s is None or told.comm_s is None:
        return None
    name = "epoch_s" if told.train_s is None else "train_s"
    whole = told.epoch_s if told.train_s is None else told.train_s
    if not whole:
        return None
    gap = (whole - told.compute_s - told.comm_s) / whole
    only_loading = gap > 0 and told.train_s is None
    return judge(
        "closure",
        holds=abs(gap) <= UNACCOUNTED_LIMIT,
        found=f"compute_s and comm_s are {percent_text(abs(gap))} "
        f"{'less' if gap > 0 else 'more'} than {name} (limit {percent_text(UNACCOUNTED_LIMIT)})",
        advice="unaccounted time is data loading or missed; tell train_s"
        if only_loading
        else "time is counted twice or not at all",
        otherwise=Level.WARN if only_loading else Level.FAIL,
    )


def link(record: Record) -> CheckResult | None:
    """The bandwidth that comm_s implies is not above the link's, where that is known."""
    told, facts, cell = record.imported, record.facts, record.cell
    speed = facts.link_gb_per_s if facts else None
    if told is None or not speed or not told.comm_s or record.model is None:
        return None
    if cell.gpus < 2 or cell.strategy.traffic.bandwidth is not BandwidthKind.BUS:
        return None
    sent = expected_bytes(record.iterations, record.model.gradient_bytes)
    found = bus_gb_per_s(sent, told.comm_s, cell.gpus)
    return judge(
        "bus-bandwidth",
        holds=found <= LINK_LIMIT * speed,
        found=f"comm_s means {found:.3g} GB/s on a link of {speed:.3g} (limit {LINK_LIMIT} x)",
        advice="communication takes longer than comm_s: part of it was not timed",
    )


CHECKS = (counted_iterations, times, accounted, flops, link, loader_bound, short)
"""In the order they are told."""
