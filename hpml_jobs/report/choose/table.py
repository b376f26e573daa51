"""The choice as a table and as values: each measured cell by speed, its cost, why it was chosen.

The rules are in docs/choose.md.
"""

from collections.abc import Iterator
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.strategies import Device
from hpml_jobs.report.choose import words
from hpml_jobs.report.choose.cost import (
    Candidate,
    Cost,
    clocks_text,
    cost_of,
    flop_text,
    peak_text,
    tflop_per_s,
)
from hpml_jobs.report.choose.rules import Choice
from hpml_jobs.report.frame import captions, learning
from hpml_jobs.report.frame.numbers import (
    accuracy,
    cost,
    per_second,
    percent,
    seconds,
    share_text,
    three_digits,
)
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

CAPTION = (
    "Seconds of {what}, the longest of all ranks, median over runs. Efficiency: {size} x "
    "{reference} s ({cell}, the fastest of the smallest size) / ({units} x s). Cost: {units} that "
    "are charged x s. Another global batch may need another learning rate and reach another "
    "accuracy."
)

ACCURACY_GAP = 0.005
"""Difference of test accuracies from which equal epochs are called unequal training."""

NOT_COLUMNS = ("path", "cells")
FLOP = ("flop_per_s_per_gpu", "utilization")
ENERGY = ("joules", "joules_per_1000_units", "joules_per_1000_samples")
JOULES = (
    "J: NVML's energy counters of the cell's own boards, from right before to right after the "
    "epoch; hosts are not in it. A counter advances every 20 to 100 ms."
)


class ChoiceLine(NamedTuple):
    """A measured cell, what an epoch of it takes and costs, and why it was chosen or not.

    It is a line of the table and of choice.csv. `doubtful`: a check warns of
    its time, `doubtful_ratio`: of its time or the reference's.
    """

    strategy: str
    gpus: int
    nodes: int
    treatment: str
    path: str
    batch: int
    cells: tuple[str, ...]
    epoch_s: Annotated[float, Column("s", seconds, doubt="doubtful")]
    units_per_s: Annotated[Number, Column("{unit}/s", per_second, doubt="doubtful")]
    unit: str
    samples_per_s: Number
    efficiency: Annotated[
        float, Column("effic.{against}", share_text, doubt="doubtful_ratio")
    ]
    reference_gpus: int
    reference_batch: int
    charged_gpu_s: Annotated[
        float, Column("{seconds}", cost, "{cost}", doubt="doubtful")
    ]
    charged_gpu_hours: Annotated[
        float, Column("{hours}", three_digits, "{cost}", doubt="doubtful")
    ]
    joules: Annotated[Number, Column("J per epoch", three_digits)]
    joules_per_1000_units: Annotated[Number, Column("J per 1,000", three_digits)]
    joules_per_1000_samples: Number
    flop_per_s_per_gpu: Annotated[
        Number, Column("TFLOP/s per {device}", tflop_per_s, doubt="doubtful")
    ]
    utilization: Annotated[Number, Column("% of peak", percent, doubt="doubtful")]
    charged_gpu_s_per_1000_units: Number
    charged_gpu_s_per_1000_samples: Number
    train_flop_per_s_per_gpu: Number
    flop_per_sample: int | None
    counted_flop_per_sample: int | None
    formula_flop_per_sample: int | None
    peak_flop_per_s: Number
    precision: str | None
    charged_gpus: int
    runs: int
    why: Annotated[str, Column("why", words=True)]
    doubtful: bool
    doubtful_ratio: bool

    @classmethod
    def of(cls, candidate: Candidate, choice: Choice, cell_cost: Cost) -> Self:
        """Return the line of a cell with what an epoch of it costs."""
        row = candidate.row
        timing = candidate.timing
        reference = choice.reference.row
        flop = cell_cost.flop
        peak = cell_cost.peak
        return filled(
            cls,
            candidate,
            timing,
            row,
            cell_cost,
            strategy=row.strategy.value,
            batch=row.batch_per_gpu,
            unit=timing.unit.value,
            reference_gpus=reference.gpus,
            reference_batch=reference.batch_per_gpu,
            charged_gpu_s=candidate.gpu_s,
            charged_gpu_hours=candidate.gpu_hours,
            joules_per_1000_units=timing.per_thousand_units(candidate.joules),
            joules_per_1000_samples=timing.per_thousand_samples(candidate.joules),
            flop_per_s_per_gpu=cell_cost.flop_per_s,
            charged_gpu_s_per_1000_units=timing.per_thousand_units(candidate.gpu_s),
            charged_gpu_s_per_1000_samples=timing.per_thousand_samples(candidate.gpu_s),
            train_flop_per_s_per_gpu=cell_cost.train_flop_per_s,
            flop_per_sample=flop.figure,
            counted_flop_per_sample=flop.counted,
            formula_flop_per_sample=flop.by_formula,
            peak_flop_per_s=peak.flop_per_s if peak else None,
            precision=peak.precision if peak else None,
            runs=len(candidate.epochs_s),
            why=words.why(candidate, choice),
            doubtful_ratio=choice.doubts_ratio(candidate),
        )


def choice_table(
    group: ConditionGroup, choice: Choice, study: str | None = None
) -> Table:
    """Return the table of a choice, with its answer above and the steps below.

    `study` is for the command of the answer, which a file for others has not.
    """
    device = group.device
    reference = choice.reference
    caption = CAPTION.format(
        what=captions.one_work(group.work),
        reference=words.time(reference),
        size=reference.row.gpus,
        units=captions.units(device),
        cell=reference.words,
    )
    costs = [cost_of(group, candidate) for candidate in choice.candidates]
    items = [
        (candidate.label, ChoiceLine.of(candidate, choice, cell_cost))
        for candidate, cell_cost in zip(choice.candidates, costs, strict=True)
    ]
    has_energy = any(line.joules is not None for _, line in items)
    has_flop = device is Device.CUDA or any(cell_cost.peak for cell_cost in costs)
    unknown = (() if has_energy else ENERGY) + (() if has_flop else FLOP)
    if device is Device.CPU:
        unknown += ("charged_gpu_hours",)
    lines = (
        caption,
        JOULES if has_energy else "",
        *((flop_text(group, costs), peak_text(group, costs)) if has_flop else ()),
        clocks_text(group),
        captions.runs(group.timed),
    )
    text = TableText("choice", "Choice and cost", "timed epoch", lines)
    text = text._replace(answer=words.answer(choice, study))
    heads = columns_of(
        ChoiceLine,
        without=NOT_COLUMNS + unknown,
        device=captions.unit(device),
        unit=reference.timing.unit.value,
        against=words.against(choice),
        cost=f"cost per {captions.work_text(group.work)}",
        seconds=captions.cost_unit(device, short=True),
        hours=captions.hours_unit(device),
    )
    notes = [
        *captions.explained(group, (c.row for c in choice.candidates), Affected.TIME),
        *(words.step_text(step) for step in choice.steps),
        *words.doubts(choice),
        *accuracies(group, choice),
    ]
    return item_table([group], text, items, heads, notes)


def accuracies(group: ConditionGroup, choice: Choice) -> Iterator[str]:
    """Yield a line if the cell to ask for learned less in its epochs than the reference."""
    if choice.winner is None or choice.winner is choice.reference:
        return
    cells = (choice.winner, choice.reference)
    winner, reference = (
        learning.mean_of(group, c.row, learning.test_accuracy) for c in cells
    )
    if winner and reference and winner.mean < reference.mean - ACCURACY_GAP:
        yield (
            f"Test accuracy after as many epochs: {accuracy(winner.mean)} % with "
            f"{cells[0].words}, {accuracy(reference.mean)} % with {cells[1].words}."
        )
