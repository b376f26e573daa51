"""Table of the choice: every measured cell by speed, with its costs and why it was chosen or not.

The rules are in docs/choose_predict.md.
"""

from collections.abc import Iterator

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.strategies import Device
from hpml_jobs.report.merge import learning
from hpml_jobs.report.merge.choice import Candidate, Choice
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import (
    Column,
    Columns,
    TableText,
    column,
    item_table,
    place_columns,
)
from hpml_jobs.report.text import captions, marks
from hpml_jobs.report.text import choice as words
from hpml_jobs.report.text.numbers import accuracy, per_second, ratio, seconds, significant

CAPTION = (
    "Seconds of {what}{how}. Efficiency: {reference} s x "
    "{size} / ({units} x s), against {cell}: the fastest of the smallest size. Cost: {units} "
    "that are charged x s. Equal epochs are not equal training: another global batch may need "
    "another learning rate and reach another accuracy."
)

ACCURACY_GAP = 0.005
"""Difference of test accuracies from which equal epochs are called unequal training."""


def choice_table(group: ConditionGroup, choice: Choice, study: str) -> Table:
    """Return the table of a choice, with its answer above and the steps below.

    `study` is for the command of the answer.
    """
    device, reference = group.device, choice.reference
    caption = CAPTION.format(
        what=captions.an_epoch(group.work),
        how="" if group.rate_units else ", the longest of all ranks, median over runs",
        reference=seconds(reference.epoch_s),
        size=reference.row.gpus,
        units=captions.units(device),
        cell=captions.cell_words(reference.row.place, device),
    )
    text = TableText(
        "choice", "Choice", "timed epoch", (caption, captions.runs(group.timed)), on_screen=False
    )
    text = text._replace(answer=words.answer(choice, device, study))
    items = [
        (captions.cell_label(candidate.row.place, device), candidate)
        for candidate in choice.candidates
    ]
    notes = [
        *marks.explained(group, (c.row for c in choice.candidates), Affected.TIME),
        *(words.step_text(step, device) for step in choice.steps),
        *words.doubts(choice, device),
        *_accuracies(group, choice),
    ]
    return item_table([group], text, items, _heads(choice, device), notes)


def _accuracies(group: ConditionGroup, choice: Choice) -> Iterator[str]:
    """Yield a line if the cell to ask for learned less in its epochs than the reference."""
    if choice.ask is None or choice.ask.candidate is choice.reference:
        return
    rows = (choice.ask.candidate.row, choice.reference.row)
    asked, reference = (
        learning.over_seeds(learning.runs(group, row), learning.test_accuracy) for row in rows
    )
    if asked and reference and asked.mean < reference.mean - ACCURACY_GAP:
        names = [captions.cell_words(row.place, group.device) for row in rows]
        yield (
            f"equal epochs are not equal training: test accuracy {accuracy(asked.mean)} % of "
            f"{names[0]} and {accuracy(reference.mean)} % of {names[1]} after as many epochs"
        )


def _heads(choice: Choice, device: Device) -> tuple[Columns[Candidate], ...]:
    return (
        Columns("", place_columns(lambda candidate: candidate.row.setup)),
        Columns("", (column("batch", "", lambda candidate: candidate.row.batch_per_gpu),)),
        Columns("s", (epoch_column(),)),
        Columns(
            f"{choice.reference.unit.value}/s",
            (column("units_per_s", "", lambda c: c.units_per_s, per_second),),
        ),
        Columns(
            "",
            (
                column("unit", "", lambda c: c.unit.value),
                column("samples_per_s", "", lambda c: c.samples_per_s),
            ),
        ),
        Columns(f"effic.{words.against(choice, device)}", (efficiency_column(choice),)),
        reference_columns(choice),
        Columns(
            f"cost per {captions.work_text(choice.reference.work)}",
            (
                column("charged_gpu_s", words.cost_unit(device), lambda c: c.gpu_s, words.cost),
                column(
                    "charged_gpu_hours",
                    words.hours_unit(device),
                    lambda c: c.gpu_hours,
                    lambda v: significant(v, 3),
                ),
            ),
        ),
        *(_energy_heads() if any(c.joules is not None for c in choice.candidates) else ()),
        Columns("", (column("charged_gpus", "", lambda c: c.charged_gpus),)),
        Columns("", (column("runs", "", lambda c: len(c.epochs_s)),)),
        Columns("why", (column("why", "", lambda c: words.why(c, choice, device)),), words=True),
    )


def epoch_column() -> Column[Candidate]:
    """Return the seconds of a cell, marked if a check warns of them."""
    made: Column[Candidate] = column("epoch_s", "", lambda c: c.epoch_s, seconds)
    return made.marked_if(lambda candidate: candidate.doubtful)


def efficiency_column(choice: Choice) -> Column[Candidate]:
    """Return the efficiency of a cell, marked if a check warns of its time or the reference's."""
    made: Column[Candidate] = column("efficiency", "", lambda c: c.efficiency, ratio)
    return made.marked_if(choice.doubts_ratio)


def reference_columns(choice: Choice) -> Columns[Candidate]:
    """Return what efficiencies are against, for the CSV."""
    reference = choice.reference.row
    return Columns(
        "",
        (
            column("reference_gpus", "", lambda _: reference.gpus),
            column("reference_batch", "", lambda _: reference.batch_per_gpu),
        ),
    )


def _energy_heads() -> tuple[Columns[Candidate], ...]:
    """Return the joules of the cell's GPUs, where there are energy counters."""
    return (
        Columns(
            "J per epoch", (column("joules", "", lambda c: c.joules, lambda v: significant(v, 3)),)
        ),
        Columns(
            "J per 1,000",
            (
                column(
                    "joules_per_1000_units",
                    "",
                    lambda c: c.joules_per_thousand,
                    lambda v: significant(v, 3),
                ),
            ),
        ),
        Columns(
            "", (column("joules_per_1000_samples", "", lambda c: c.joules_per_thousand_samples),)
        ),
    )
