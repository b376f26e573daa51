"""Table of speedups by size: the fastest cell of every number of GPUs against the smallest one."""

from typing import Annotated, NamedTuple, Self

from hpml_jobs.report.choose import proposal, words
from hpml_jobs.report.choose.rules import Candidate, Choice
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, filled, item_table
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import per_second, ratio, seconds, three_digits
from hpml_jobs.report.frame.table import Table

CAPTION = (
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
            unit=candidate.unit.value,
            speedup=proposal.speedup_text(choice, candidate),
            reference_gpus=reference.gpus,
            reference_batch=reference.batch_per_gpu,
            charged_gpu_hours=candidate.gpu_hours,
            doubtful_ratio=choice.doubts_ratio(candidate),
        )


def sizes(group: ConditionGroup, choice: Choice) -> Table:
    """Return the fastest cell of each size with its speedup over the smallest size."""
    device, reference = group.device, choice.reference
    caption = CAPTION.format(
        reference=captions.cell_words(reference.row.place, device),
        size=reference.row.gpus,
        units=captions.units(device),
        hours=words.hours_unit(device),
        work=captions.work_text(group.work),
    )
    shown = choice.by_size or [reference]
    runs = captions.runs([candidate.row for candidate in shown])
    heads = columns_of(
        SizeLine,
        without=["doubtful", "doubtful_ratio"],
        work=captions.work_text(group.work),
        unit=reference.unit.value,
        against=words.against(choice, device),
        hours=words.hours_unit(device),
    )
    items = [(captions.cell_label(c.row.place, device), SizeLine.of(c, choice)) for c in shown]
    text = TableText("sizes", "Speedup against the smallest size", "cell", (caption, runs))
    return item_table([group], text, items, heads)
