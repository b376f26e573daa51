"""Table of speedups by size: the fastest cell of every number of GPUs against the smallest one."""

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
from hpml_jobs.report.tables.choice import efficiency_column, epoch_column, reference_columns
from hpml_jobs.report.text import captions, proposal
from hpml_jobs.report.text import choice as words
from hpml_jobs.report.text.numbers import per_second, significant

CAPTION = (
    "The fastest cell of each size. Speedup: seconds of {reference} / seconds; efficiency: "
    "speedup x {size} / {units}. {hours}: those charged per {work}."
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
    speedup: Column[Candidate] = column("speedup", "", lambda c: proposal.speedup_text(choice, c))
    heads: tuple[Columns[Candidate], ...] = (
        Columns("", place_columns(lambda candidate: candidate.row.setup)),
        Columns(
            f"s per {captions.work_text(group.work)}",
            (epoch_column(),),
        ),
        Columns(
            f"{reference.unit.value}/s",
            (column("units_per_s", "", lambda c: c.units_per_s, per_second),),
        ),
        Columns(
            "",
            (
                column("unit", "", lambda c: c.unit.value),
                column("samples_per_s", "", lambda c: c.samples_per_s),
            ),
        ),
        Columns("speedup", (speedup.marked_if(choice.doubts_ratio),)),
        Columns(f"efficiency{words.against(choice, device)}", (efficiency_column(choice),)),
        reference_columns(choice),
        Columns(
            words.hours_unit(device),
            (column("charged_gpu_hours", "", lambda c: c.gpu_hours, lambda v: significant(v, 3)),),
        ),
    )
    items = [(captions.cell_label(c.row.place, device), c) for c in shown]
    text = TableText("sizes", "Speedup against the smallest size", "cell", (caption, runs))
    return item_table([group], text, items, heads)
