"""Key numbers of one record with their units, as the command `record` shows them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from hpml_jobs.checks.gpu_peaks import flop_of
from hpml_jobs.checks.study import check_study
from hpml_jobs.core import formulas
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import CheckResult
from hpml_jobs.core.measurements import Communication, Purpose
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import percent_text
from hpml_jobs.core.value import Value
from hpml_jobs.report.choose.cost import measured_peak
from hpml_jobs.report.frame.numbers import (
    DASH,
    count,
    per_second,
    seconds,
    significant,
    span,
    three_digits,
)
from hpml_jobs.results.cells import cell_results
from hpml_jobs.results.figures import NAMES, PHASES, bandwidth, figures_of, gpu_figures
from hpml_jobs.results.groups import group
from hpml_jobs.results.rows import by_key, gradient_bytes_of
from hpml_jobs.study.snapshot import FolderSnapshot


class CellSummary(Value, frozen=True, kw_only=True):
    """A cell's key numbers by name (None: not known) and the results of its checks.

    Without a usable record: the outcome and the reason.
    """

    slug: str
    outcome: Outcome
    reason: str = ""
    numbers: dict[str, Any] = {}
    checks: tuple[CheckResult, ...] = ()


def summarize(snapshots: Sequence[FolderSnapshot]) -> list[CellSummary]:
    """Return the key numbers of every cell of a study; its records are checked with each other."""
    by_slug = {snapshot.folder.slug: snapshot for snapshot in snapshots}
    checks = check_study(group(cell_results(snapshots, {})), by_slug)
    return [_summary(by_slug[slug], checks.get(slug, ())) for slug in by_slug]


def _summary(snapshot: FolderSnapshot, checks: tuple[CheckResult, ...]) -> CellSummary:
    slug = snapshot.folder.slug
    record = snapshot.record
    if fault := snapshot.record_fault:
        return CellSummary(slug=slug, outcome=Outcome.INVALID, reason=fault)
    if record is None:
        reason = "no record (status shows the reason)"
        return CellSummary(slug=slug, outcome=Outcome.MISSING, reason=reason)
    return CellSummary(
        slug=slug,
        outcome=record.outcome,
        reason=record.reason or "",
        numbers=key_numbers(record) if record.outcome is Outcome.OK else {},
        checks=checks,
    )


def key_numbers(record: Record) -> dict[str, Any]:
    """Return the key numbers of a record whose outcome is ok, by name; shares are of 1.

    They are its figures, and what follows from them and from the cell. `unit` and `images_per_s`
    are for programs: the throughput under its older name, None if it is in tokens.
    """
    cell = record.cell
    ranks = record.ranks
    gpus = gpu_figures(record)
    unit = cell.workload.throughput_unit
    flop = flop_of(record)
    figures = figures_of(record)
    rate = formulas.units_per_s(record.units, record.epoch_s) if record.units else None
    reached = _flop_per_s(record, flop.figure)
    peak = measured_peak(record)
    size = gradient_bytes_of(record)
    speeds = bandwidth(figures, cell.strategy, cell.gpus, record.iterations, size)
    names = [name for name in NAMES if name not in ("epoch_s", *PHASES)]
    launches_s = [rank.timed.launch_s for rank in ranks]
    least = record.least_waiting
    sent = record.communication
    joules_per_1000 = None
    if record.joules and record.units:
        joules_per_1000 = formulas.per_thousand(record.joules, record.units)
    return {
        "epoch_s": record.epoch_s,
        "work_samples": record.work_samples,
        "epoch_s_by_rank": [record.per_work * rank.timed.epoch_s for rank in ranks],
        **{name: getattr(figures, name) for name in names},
        "units_per_s": rate,
        "unit": unit.value,
        "images_per_s": None if unit is Unit.TOKENS else rate,
        "launch_s": max(filter(None, launches_s), default=None),
        "startup": _startup(record),
        "joules_per_1000": joules_per_1000,
        "precision": gpus.precision,
        "sm_clock_mhz": gpus.sm_clock_mhz,
        "least_sm_clock_mhz": gpus.least_sm_clock_mhz,
        "power_w": gpus.power_w,
        "gpu_utilization_percent": gpus.gpu_utilization_percent,
        "throttle_reasons": gpus.throttle_reasons,
        "gpu_bus_ids": gpus.bus_ids,
        "gpu_links": gpus.links,
        "flop_per_sample": flop.figure,
        "formula_flop_per_token": _per_token(record, flop.by_formula),
        "counted_flop_per_token": _per_token(record, flop.counted),
        "flop_per_s_per_gpu": reached,
        "share_of_peak": formulas.utilization(reached, peak.flop_per_s)
        if reached and peak
        else None,
        "iterations": record.iterations,
        "samples": record.samples,
        "parameters": record.model.parameters if record.model else None,
        "least_waiting_rank": least.rank if least else None,
        "phases": _phases(record),
        "gradient_bytes": sent.bytes_of(Purpose.GRADIENTS) if sent else None,
        "messages": _messages(sent),
        "bus_gb_per_s": speeds.bus_gb_per_s if speeds else None,
        "share_of_link": speeds.of_link if speeds else None,
        "loss": record.loss,
        "accuracy": record.accuracy,
        "test_accuracy_by_rank": [rank.test_accuracy for rank in ranks],
        "parameters_equal": _all_equal([rank.parameters_hash for rank in ranks]),
        "buffers_equal": _all_equal([rank.buffers_hash for rank in ranks]),
    }


def _messages(communication: Communication | None) -> list[str] | None:
    """Return a text per kind and purpose of messages; sizes are of one message."""
    if communication is None:
        return None
    by_kind = by_key(((m.kind, m.purpose), m) for m in communication.messages)
    texts = []
    for (kind, purpose), messages in by_kind.items():
        sizes = span((message.bytes for message in messages), count)
        number = sum(message.count for message in messages)
        texts.append(f"{number} x {kind} of {sizes} bytes ({purpose})")
    return texts


def _flop_per_s(record: Record, flop_per_sample: int | None) -> float | None:
    """Return the FLOP/s of the model on each GPU in the timed epoch."""
    if not flop_per_sample or not record.samples:
        return None
    in_all = formulas.flop_per_s(flop_per_sample, record.samples, record.epoch_s)
    return in_all / record.cell.gpus


def _per_token(record: Record, flop_per_sample: int | None) -> float | None:
    """Return the FLOP of a token; None where samples have no tokens."""
    workload = record.cell.workload
    tokens = workload.units_per_sample
    if not flop_per_sample or not tokens or workload.throughput_unit is not Unit.TOKENS:
        return None
    return flop_per_sample / tokens


def _startup(record: Record) -> dict[str, float] | None:
    """Return the known parts of the time to the first iteration, with their sum."""
    start = record.startup
    if start is None:
        return None
    return _known_parts({"total_s": start.total_s, **msgspec.structs.asdict(start)})


def _phases(record: Record) -> dict[str, float] | None:
    """Return the seconds of the phases, of the epoch or work that `epoch_s` is of."""
    if record.phases is None:
        return None
    # work_blocks_s is of an iteration
    parts_s = msgspec.structs.asdict(record.phases) | {"work_blocks_s": None}
    return {
        name: record.per_instrumented * part_s
        for name, part_s in _known_parts(parts_s).items()
    }


def _known_parts(parts_s: Mapping[str, float | None]) -> dict[str, float]:
    """Return the parts that are known, by their name without unit."""
    return {
        name.removesuffix("_s"): part
        for name, part in parts_s.items()
        if part is not None
    }


def _all_equal(hashes: list[str]) -> bool | None:
    """Return whether all ranks have the same hash; None for one rank or if a hash is missing."""
    return None if len(hashes) < 2 or "" in hashes else len(set(hashes)) == 1


ALIASES = ("unit", "images_per_s")
"""Key numbers that are another one under a second name, for programs only."""

_TEXTS: dict[str, Callable[[float], str]] = {
    "gb_per_s": lambda value: f"{three_digits(value)} GB/s",
    "flop_per_s_per_gpu": lambda value: f"{significant(value / 1e12, 3)} TFLOP/s",
    "_per_s": lambda value: f"{significant(value, 4)} per second",
    **dict.fromkeys(
        ("_s", "_s_by_rank", "startup", "phases"), lambda value: f"{seconds(value)} s"
    ),
    **dict.fromkeys(
        ("joules", "joules_per_1000"), lambda value: f"{significant(value, 4)} J"
    ),
    "power_w": lambda value: f"{significant(value, 4)} W",
    "_percent": lambda value: f"{value:.0f} %",
    "clock_mhz": lambda value: f"{significant(value, 4)} MHz",
    **dict.fromkeys(
        ("bytes", "per_token", "loss"), lambda value: significant(value, 4)
    ),
}
"""The texts of numbers with a fraction, by the first of these ends that their name has.

The others are shares.
"""


def in_short(numbers: Mapping[str, Any]) -> list[str]:
    """Return a line on what was measured: the epoch time, the throughput, the test accuracy."""
    if not numbers:
        return []
    samples = numbers["work_samples"]
    rate = numbers["units_per_s"]
    timed = "epoch" if samples is None else f"{count(samples)} samples"
    parts = [f"{timed} {seconds(numbers['epoch_s'])} s"]
    if rate is not None:
        parts.append(f"{per_second(rate)} {numbers['unit']}/s")
    for share in numbers["test_accuracy_by_rank"][:1]:
        if share is not None:
            parts.append(f"test accuracy {percent_text(share)}")
    return [", ".join(parts)]


def lines(numbers: Mapping[str, Any]) -> list[str]:
    """Return a line per key number that is known; the throughput is named by its unit."""
    names = {"units_per_s": f"{numbers.get('unit', 'units')}_per_s"}
    texts = {
        names.get(name, name): as_text(value, name)
        for name, value in numbers.items()
        if name not in ALIASES
    }
    return [f"{name:22} {text}" for name, text in texts.items() if text]


def as_text(value: Any, name: str = "") -> str:
    """Return the value of a key number as people read it; empty if it is not known.

    >>> as_text(8.0, "epoch_s"), as_text(0.002, "share_of_peak"), as_text(20_480, "samples")
    ('8.000 s', '0.2 %', '20,480')
    >>> as_text(True), as_text({"stall": 0.16, "h2d": 0.08}, "phases")
    ('yes', 'stall 0.160 s, h2d 0.0800 s')
    """
    match value:
        case None | []:
            return ""
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ", ".join(
                f"{key} {as_text(part, name)}" for key, part in value.items()
            )
        case list():
            return ", ".join(as_text(part, name) or DASH for part in value)
        case int():
            return count(value)
        case float():
            ends = (text for end, text in _TEXTS.items() if name.endswith(end))
            return next(ends, percent_text)(value)
        case _:
            return str(value)
