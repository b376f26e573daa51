"""The evidence of scaling: the fastest cell of each size with its speedup."""

from typing import Annotated, NamedTuple, Self

from hpml_jobs.core import formulas
from hpml_jobs.core.statistics import CONFIDENCE, ratio_interval
from hpml_jobs.core.strategies import Device
from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.cost import Candidate
from hpml_jobs.report.choose.rules import Choice
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import per_second, seconds, share_text, three_digits
from hpml_jobs.report.frame.table import (
    Column,
    Number,
    Table,
    TableText,
    columns_of,
    filled,
    item_table,
)
from hpml_jobs.results.groups import ConditionGroup


def speedup_text(reference: Candidate, candidate: Candidate) -> str:
    """Return the speedup over the reference with its interval, if both have repeats."""
    text = three_digits(formulas.speedup(reference.epoch_s, candidate.epoch_s))
    interval = ratio_interval(reference.epochs_s, candidate.epochs_s)
    if interval is None or candidate is reference:
        return text
    return f"{text} [{three_digits(interval.low)}, {three_digits(interval.high)}]"


def coverage_text(reference: Candidate, candidate: Candidate) -> str:
    """Return `87.5 % interval from 4 runs` where they are too few for 95 %; else nothing."""
    interval = ratio_interval(reference.epochs_s, candidate.epochs_s)
    if interval is None or candidate is reference or interval.coverage >= CONFIDENCE:
        return ""
    runs = min(len(reference.epochs_s), len(candidate.epochs_s))
    return f"{share_text(interval.coverage)} interval from {runs} runs"


SIZES = (
    "The fastest cell of each size. Speedup: seconds of {reference} / seconds; efficiency: "
    "speedup{times} / {units}."
)
HOURS = "{hours}: those charged per {work}."


class SizeLine(NamedTuple):
    """The fastest cell of a size; the speedup is in words, with its interval."""

    strategy: str
    gpus: int
    nodes: int
    treatment: str
    epoch_s: Annotated[float, Column("s per {work}", seconds, doubt="doubtful")]
    speedup: Annotated[str, Column("speedup", doubt="doubtful_ratio")]
    efficiency: Annotated[
        float, Column("efficiency{against}", share_text, doubt="doubtful_ratio")
    ]
    units_per_s: Annotated[Number, Column("{unit}/s", per_second, doubt="doubtful")]
    unit: str
    samples_per_s: Number
    reference_gpus: int
    reference_batch: int
    charged_gpu_hours: Annotated[
        float, Column("{hours}", three_digits, doubt="doubtful")
    ]
    doubtful: bool
    doubtful_ratio: bool

    @classmethod
    def of(cls, candidate: Candidate, choice: Choice) -> Self:
        """Return the line of a cell."""
        row = candidate.row
        reference = choice.reference.row
        return filled(
            cls,
            candidate,
            candidate.timing,
            row,
            strategy=row.strategy.value,
            unit=candidate.timing.unit.value,
            speedup=speedup_text(choice.reference, candidate),
            reference_gpus=reference.gpus,
            reference_batch=reference.batch_per_gpu,
            charged_gpu_hours=candidate.gpu_hours,
            doubtful_ratio=choice.doubts_ratio(candidate),
        )


def sizes(group: ConditionGroup, choice: Choice) -> Table:
    """Return the fastest cell of each size with its speedup over the smallest size."""
    device = group.device
    reference = choice.reference
    size = reference.row.gpus
    caption = SIZES.format(
        reference=reference.words,
        times="" if size == 1 else f" x {size}",
        units=captions.units(device),
    )
    hours = captions.hours_unit(device)
    work = captions.work_text(group.work)
    is_charged = device is Device.CUDA  # processes on a CPU are not
    charged = HOURS.format(hours=hours, work=work) if is_charged else ""
    candidates = choice.by_size or [reference]
    runs = captions.runs([candidate.row for candidate in candidates])
    heads = columns_of(
        SizeLine,
        without=() if is_charged else ("charged_gpu_hours",),
        work=work,
        unit=reference.timing.unit.value,
        against=words.against(choice),
        hours=hours,
    )
    items = [(c.label, SizeLine.of(c, choice)) for c in candidates]
    text = TableText(
        "sizes", "Speedup against the smallest size", "cell", (caption, charged, runs)
    )
    coverages = dict.fromkeys(coverage_text(reference, c) for c in candidates)
    notes = [f"in brackets: {coverage}" for coverage in coverages if coverage]
    return item_table([group], text, items, heads, notes)
