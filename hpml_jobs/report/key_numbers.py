"""Key numbers of one record with their units, as the command `record` shows them."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from hpml_jobs.checks import check_study
from hpml_jobs.checks.gpu_peaks import flop_of
from hpml_jobs.checks.result import CheckResult
from hpml_jobs.core import formulas
from hpml_jobs.core.built_in import Unit
from hpml_jobs.core.measurements import Communication, Purpose
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import BUS_BANDWIDTHS
from hpml_jobs.core.text import percent_text
from hpml_jobs.core.value import Value
from hpml_jobs.report.cost.rules import measured_peak
from hpml_jobs.report.frame.figures import NAMES, PHASES, figures_of, gpu_figures
from hpml_jobs.report.frame.numbers import DASH, count, gb_per_s, seconds, significant
from hpml_jobs.slurm.states import Outcome
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


def summarize(snapshots: Iterable[FolderSnapshot]) -> list[CellSummary]:
    """Return the key numbers of every cell of a study; its records are checked with each other."""
    records = {snapshot.folder.slug: _record_of(snapshot) for snapshot in snapshots}
    checks = check_study([record for record in records.values() if isinstance(record, Record)])
    return [
        record if isinstance(record, CellSummary) else _summary(record, checks[slug])
        for slug, record in records.items()
    ]


def _record_of(snapshot: FolderSnapshot) -> Record | CellSummary:
    slug = snapshot.folder.slug
    if snapshot.record_fault:
        return CellSummary(slug=slug, outcome=Outcome.INVALID, reason=snapshot.record_fault)
    if snapshot.record is None:
        reason = "no record: hpml-jobs status shows the reason"
        return CellSummary(slug=slug, outcome=Outcome.MISSING, reason=reason)
    return snapshot.record


def _summary(record: Record, checks: tuple[CheckResult, ...]) -> CellSummary:
    return CellSummary(
        slug=record.slug,
        outcome=record.outcome,
        reason=record.reason or "",
        numbers=key_numbers(record) if record.outcome is Outcome.OK else {},
        checks=checks,
    )


class Measure(StrEnum):
    """What a key number with a fraction is measured in."""

    SECONDS = "s"
    SHARE = "%"
    RATE = "per second"
    BANDWIDTH = "GB/s"
    ENERGY = "J"
    POWER = "W"
    CLOCK = "MHz"
    FLOP_RATE = "TFLOP/s"
    NONE = ""


class KeyNumber(NamedTuple):
    """A key number: its name, its value in a record (None: not known), its measure.

    Without a function it is the figure of its name.
    Those with `is_alias` are another number under a second name, for programs only.
    """

    name: str
    value: Callable[[Record], Any] | None
    measure: Measure = Measure.NONE
    is_alias: bool = False


def _units_per_s(record: Record) -> float | None:
    units = record.units
    return None if units is None else formulas.units_per_s(units, record.epoch_s)


def _images_per_s(record: Record) -> float | None:
    """Return the throughput under its older name; None if it is in tokens."""
    is_tokens = record.cell.workload.throughput_unit is Unit.TOKENS
    return None if is_tokens else _units_per_s(record)


def _phases(record: Record) -> dict[str, float] | None:
    return _known_parts(msgspec.structs.asdict(record.phases)) if record.phases else None


def _gradient_bytes(record: Record) -> int | None:
    return record.communication.bytes_of(Purpose.GRADIENTS) if record.communication else None


def _bus_gb_per_s(record: Record) -> float | None:
    """Return the bus bandwidth of strategies that all-reduce or reduce-scatter gradients."""
    cell, sent_bytes, net_s = record.cell, _gradient_bytes(record), record.gradients_net_s
    kind = cell.strategy.traffic.bandwidth
    if not (kind in BUS_BANDWIDTHS and cell.gpus > 1 and sent_bytes and net_s):
        return None
    return formulas.algorithm_gb_per_s(kind.wire_bytes(sent_bytes, cell.gpus), net_s)


def _share_of_link(record: Record) -> float | None:
    """Return the bus bandwidth as a share of the specified speed of the link."""
    bus, link = _bus_gb_per_s(record), record.link_gb_per_s
    return bus / link if bus and link else None


def _messages(communication: Communication | None) -> list[str] | None:
    """Return a text per kind and purpose of messages; sizes are of one message."""
    if communication is None:
        return None
    texts = []
    for kind, purpose in dict.fromkeys((m.kind, m.purpose) for m in communication.messages):
        messages = [m for m in communication.messages if (m.kind, m.purpose) == (kind, purpose)]
        sizes = sorted({message.bytes for message in messages})
        span = " to ".join(count(size) for size in dict.fromkeys((sizes[0], sizes[-1])))
        number = sum(message.count for message in messages)
        texts.append(f"{number} x {kind} of {span} bytes ({purpose})")
    return texts


def _joules_per_thousand(record: Record) -> float | None:
    joules, units = record.joules, record.units
    return formulas.per_thousand(joules, units) if joules and units else None


def _flop_per_s(record: Record) -> float | None:
    """Return the FLOP/s of the model on each GPU in the timed epoch."""
    flop, samples = flop_of(record).figure, record.samples
    if not flop or not samples:
        return None
    return formulas.flop_per_s(flop, samples, record.epoch_s) / record.cell.gpus


def _formula_flop_per_token(record: Record) -> float | None:
    return _per_token(record, flop_of(record).by_formula)


def _counted_flop_per_token(record: Record) -> float | None:
    return _per_token(record, flop_of(record).counted)


def _per_token(record: Record, flop_per_sample: int | None) -> float | None:
    """Return the FLOP of a token; None where samples have no tokens."""
    workload = record.cell.workload
    if not flop_per_sample or workload.throughput_unit is not Unit.TOKENS:
        return None
    return flop_per_sample / workload.units_per_sample if workload.units_per_sample else None


def _utilization(record: Record) -> float | None:
    """Return the share of the peak at the cell's precision."""
    reached, peak = _flop_per_s(record), measured_peak(record)
    return formulas.utilization(reached, peak.flop_per_s) if reached and peak else None


def _profiler_disagreement(record: Record) -> float | None:
    traces = [rank.profiler for rank in record.ranks if rank.profiler]
    return max((t.disagreement for t in traces if t.disagreement is not None), default=None)


def _startup(record: Record) -> dict[str, float] | None:
    """Return the known parts of the time to the first iteration, with their sum."""
    start = record.startup
    if start is None:
        return None
    return _known_parts({"total_s": start.total_s, **msgspec.structs.asdict(start)})


def _known_parts(parts_s: Mapping[str, float | None]) -> dict[str, float]:
    """Return the parts that are known, by their name without unit."""
    return {name.removesuffix("_s"): part for name, part in parts_s.items() if part is not None}


def _all_equal(hashes: list[str]) -> bool | None:
    """Return whether all ranks have the same hash; None for one rank or if a hash is missing."""
    return None if len(hashes) < 2 or "" in hashes else len(set(hashes)) == 1


def _measure(figure: str) -> Measure:
    """Return what a figure is measured in, by its name."""
    if figure.endswith("gb_per_s"):
        return Measure.BANDWIDTH
    if figure == "joules":
        return Measure.ENERGY
    if figure.endswith("bytes"):
        return Measure.NONE
    return Measure.SECONDS if figure.endswith("_s") else Measure.SHARE


FIGURES = tuple(
    KeyNumber(name, None, _measure(name))
    for name in NAMES
    if name != "epoch_s" and name not in PHASES
)
"""All figures of a run; its time and its phases have entries of their own."""

KEY_NUMBERS = (
    KeyNumber("epoch_s", lambda r: None if r.work_s else r.epoch_s, Measure.SECONDS),
    KeyNumber("time_s", lambda r: r.work_s, Measure.SECONDS),
    KeyNumber("epoch_s_by_rank", lambda r: [k.timed.epoch_s for k in r.ranks], Measure.SECONDS),
    *FIGURES,
    KeyNumber("units_per_s", _units_per_s, Measure.RATE),
    KeyNumber("unit", lambda r: r.cell.workload.throughput_unit.value, is_alias=True),
    KeyNumber("images_per_s", _images_per_s, Measure.RATE, is_alias=True),
    KeyNumber(
        "launch_s",
        lambda r: max((k.timed.launch_s for k in r.ranks if k.timed.launch_s), default=None),
        Measure.SECONDS,
    ),
    KeyNumber("startup", _startup, Measure.SECONDS),
    KeyNumber("joules_per_1000", _joules_per_thousand, Measure.ENERGY),
    KeyNumber("precision", lambda r: gpu_figures(r).precision),
    KeyNumber("sm_clock_mhz", lambda r: gpu_figures(r).sm_clock_mhz, Measure.CLOCK),
    KeyNumber("least_sm_clock_mhz", lambda r: gpu_figures(r).least_sm_clock_mhz),
    KeyNumber("power_w", lambda r: gpu_figures(r).power_w, Measure.POWER),
    KeyNumber("throttle_reasons", lambda r: gpu_figures(r).throttle_reasons),
    KeyNumber("gpu_bus_ids", lambda r: gpu_figures(r).bus_ids),
    KeyNumber("gpu_links", lambda r: gpu_figures(r).links),
    KeyNumber("flop_per_sample", lambda r: flop_of(r).figure),
    KeyNumber("formula_flop_per_token", _formula_flop_per_token),
    KeyNumber("counted_flop_per_token", _counted_flop_per_token),
    KeyNumber("flop_per_s_per_gpu", _flop_per_s, Measure.FLOP_RATE),
    KeyNumber("share_of_peak", _utilization, Measure.SHARE),
    KeyNumber("iterations", lambda r: r.iterations),
    KeyNumber("samples", lambda r: r.samples),
    KeyNumber("parameters", lambda r: r.model.parameters if r.model else None),
    KeyNumber("least_waiting_rank", lambda r: r.least_waiting.rank if r.least_waiting else None),
    KeyNumber("phases", _phases, Measure.SECONDS),
    KeyNumber("gradient_bytes", _gradient_bytes),
    KeyNumber("messages", lambda r: _messages(r.communication)),
    KeyNumber("bus_gb_per_s", _bus_gb_per_s, Measure.BANDWIDTH),
    KeyNumber("share_of_link", _share_of_link, Measure.SHARE),
    KeyNumber("profiler_disagreement", _profiler_disagreement, Measure.SHARE),
    KeyNumber("loss", lambda r: r.loss),
    KeyNumber("accuracy", lambda r: r.accuracy, Measure.SHARE),
    KeyNumber("test_accuracy_by_rank", lambda r: [k.test_accuracy for k in r.ranks], Measure.SHARE),
    KeyNumber("parameters_equal", lambda r: _all_equal([k.parameters_hash for k in r.ranks])),
    KeyNumber("buffers_equal", lambda r: _all_equal([k.buffers_hash for k in r.ranks])),
)


def key_numbers(record: Record) -> dict[str, Any]:
    """Return the key numbers of a record whose outcome is ok, by name; shares are of 1."""
    figures = figures_of(record)
    return {
        number.name: number.value(record) if number.value else getattr(figures, number.name)
        for number in KEY_NUMBERS
    }


def lines(numbers: Mapping[str, Any]) -> list[str]:
    """Return a line per key number that is known; the throughput is named by its unit."""
    names = {"units_per_s": f"{numbers.get('unit', 'units')}_per_s"}
    texts = {
        names.get(number.name, number.name): as_text(numbers.get(number.name), number.measure)
        for number in KEY_NUMBERS
        if not number.is_alias
    }
    return [f"{name:22} {text}" for name, text in texts.items() if text]


def as_text(value: Any, measure: Measure = Measure.NONE) -> str:
    """Return a value as people read it; empty if it is not known.

    >>> as_text(8.0, Measure.SECONDS), as_text(0.002, Measure.SHARE), as_text(20_480)
    ('8.000 s', '0.2 %', '20,480')
    >>> as_text(True), as_text({"stall": 0.16, "h2d": 0.08}, Measure.SECONDS)
    ('yes', 'stall 0.160 s, h2d 0.0800 s')
    """
    match value:
        case None | []:
            return ""
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ", ".join(f"{key} {as_text(part, measure)}" for key, part in value.items())
        case list():
            return ", ".join(as_text(part, measure) or DASH for part in value)
        case int():
            return count(value)
        case float():
            return _with_unit(value, measure)
        case _:
            return str(value)


def _with_unit(value: float, measure: Measure) -> str:
    match measure:
        case Measure.SECONDS:
            return f"{seconds(value)} s"
        case Measure.SHARE:
            return percent_text(value)
        case Measure.RATE:
            return f"{significant(value, 4)} per second"
        case Measure.BANDWIDTH:
            return f"{gb_per_s(value)} GB/s"
        case Measure.ENERGY:
            return f"{significant(value, 4)} J"
        case Measure.POWER | Measure.CLOCK:
            return f"{significant(value, 4)} {measure}"
        case Measure.FLOP_RATE:
            return f"{significant(value / 1e12, 3)} TFLOP/s"
        case Measure.NONE:
            return significant(value, 4)
