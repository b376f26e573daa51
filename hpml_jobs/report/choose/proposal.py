"""The evidence of scaling: the fastest cell of each size, and a paragraph for a proposal."""

from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.statistics import ratio_interval
from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.rules import Candidate, Choice
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, filled, item_table
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import per_second, ratio, seconds, significant, three_digits
from hpml_jobs.report.frame.table import Table


def speedup_text(choice: Choice, candidate: Candidate) -> str:
    """Return the speedup over the reference with its interval, if both have repeats."""
    text = ratio(choice.speedup(candidate))
    interval = ratio_interval(choice.reference.epochs_s, candidate.epochs_s)
    if interval is None or candidate is choice.reference:
        return text
    return f"{text} [{ratio(interval.low)}, {ratio(interval.high)}]"


def proposal(group: ConditionGroup, choice: Choice, version: str) -> str:
    """Return the paragraph: what was measured, the speedups by size, the request, and how."""
    sizes = [candidate for candidate in choice.by_size if candidate is not choice.reference]
    parts = [_preliminary(choice), _measured(group, version), _reference(choice)]
    parts += [_size(choice, candidate) for candidate in sizes]
    parts += [_request(choice), _how(group, choice)]
    return " ".join(part for part in parts if part)


def _preliminary(choice: Choice) -> str:
    """Return that figures are doubtful; empty if no check warns of a time behind the choice."""
    names = words.doubtful_names(choice)
    if not names:
        return ""
    return (
        f"Preliminary: a data-quality check warns of the time of {'; '.join(names)}, which should "
        "be measured again before this is submitted."
    )


def _measured(group: ConditionGroup, version: str) -> str:
    setting = captions.setting(group).removesuffix(".")
    if group.imported:
        return f"Evidence of scaling: {setting}."
    return f"Evidence of scaling, measured with hpml_jobs {version}: {setting}."


def _reference(choice: Choice) -> str:
    reference = choice.reference
    timing, rate = reference.timing, reference.timing.units_per_s
    throughput = "" if rate is None else f" ({per_second(rate)} {timing.unit.value}/s)"
    batches = {c.row.batch_per_gpu for c in choice.candidates if c.row.gpus == reference.row.gpus}
    best = "the best of the measured batches, " if len(batches) > 1 else ""
    return (
        f"On {words.size(reference)}, the smallest size measured, "
        f"{captions.an_epoch(timing.work)} {'take' if timing.work else 'takes'} "
        f"{seconds(reference.epoch_s)} s at {best}batch {reference.row.batch_per_gpu} per "
        f"{captions.unit(choice.device)}{throughput}."
    )


def _size(choice: Choice, candidate: Candidate) -> str:
    takes = "they take" if candidate.timing.work else "it takes"
    return (
        f"On {words.name(candidate)} {takes} {seconds(candidate.epoch_s)} s: speedup "
        f"{speedup_text(choice, candidate)}, parallel efficiency "
        f"{words.efficiency(candidate, choice)}, {significant(candidate.gpu_hours, 3)} "
        f"{captions.hours_unit(choice.device)} per {captions.work_text(candidate.timing.work)}."
    )


def _request(choice: Choice) -> str:
    limit = ratio(choice.wish.min_efficiency)
    if choice.ask is None:
        return f"No cell reaches the threshold of efficiency, {limit}."
    asked = choice.ask.candidate
    return (
        f"We request {words.size(asked)} per job at batch {asked.row.batch_per_gpu} per "
        f"{captions.unit(asked.device)}: the largest size with a parallel efficiency of {limit} or "
        "more."
    )


def _how(group: ConditionGroup, choice: Choice) -> str:
    rows = [candidate.row for candidate in choice.by_size]
    runs = captions.runs(rows)
    if group.rate_units:
        units = " and ".join(group.rate_units)
        return f"Times are computed from rates in {units}, as reported by their source. {runs}"
    if group.imported:
        return f"Times are those of whole epochs, as reported by their source. {runs}"
    return (
        "Times are of the training loop of one epoch after a warm-up epoch, start-up excluded and "
        f"data loading included, of the slowest process. {runs}"
    )


SIZES = (
    "The fastest cell of each size. Speedup: seconds of {reference} / seconds; efficiency: "
    "speedup x {size} / {units}. {hours}: those charged per {work}."
)


class SizeLine(NamedTuple):
    """The fastest cell of a size; the speedup is in words, with its interval."""

    strategy: str
    gpus: int
    nodes: int
    treatment: str
    epoch_s: Annotated[float, Shown("s per {work}", seconds, doubt="doubtful")]
    units_per_s: Annotated[Number, Shown("{unit}/s", per_second)]
    unit: str
    samples_per_s: Number
    speedup: Annotated[str, Shown("speedup", doubt="doubtful_ratio")]
    efficiency: Annotated[float, Shown("efficiency{against}", ratio, doubt="doubtful_ratio")]
    reference_gpus: int
    reference_batch: int
    charged_gpu_hours: Annotated[float, Shown("{hours}", three_digits)]
    doubtful: bool
    doubtful_ratio: bool

    @classmethod
    def of(cls, candidate: Candidate, choice: Choice) -> Self:
        """Return the line of a cell."""
        row, reference = candidate.row, choice.reference.row
        return filled(
            cls,
            candidate,
            strategy=row.strategy.value,
            gpus=row.gpus,
            nodes=row.nodes,
            treatment=row.treatment,
            units_per_s=candidate.timing.units_per_s,
            unit=candidate.timing.unit.value,
            samples_per_s=candidate.timing.samples_per_s,
            speedup=speedup_text(choice, candidate),
            reference_gpus=reference.gpus,
            reference_batch=reference.batch_per_gpu,
            charged_gpu_hours=candidate.gpu_hours,
            doubtful_ratio=choice.doubts_ratio(candidate),
        )


def sizes(group: ConditionGroup, choice: Choice) -> Table:
    """Return the fastest cell of each size with its speedup over the smallest size."""
    device, reference = group.device, choice.reference
    caption = SIZES.format(
        reference=reference.words,
        size=reference.row.gpus,
        units=captions.units(device),
        hours=captions.hours_unit(device),
        work=captions.work_text(group.work),
    )
    shown = choice.by_size or [reference]
    runs = captions.runs([candidate.row for candidate in shown])
    heads = columns_of(
        SizeLine,
        work=captions.work_text(group.work),
        unit=reference.timing.unit.value,
        against=words.against(choice),
        hours=captions.hours_unit(device),
    )
    items = [(c.label, SizeLine.of(c, choice)) for c in shown]
    text = TableText("sizes", "Speedup against the smallest size", "cell", (caption, runs))
    return item_table([group], text, items, heads)
