"""Table of the iterations of an epoch, where a study counts them."""

from statistics import median
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Role
from hpml_jobs.report.frame import captions, curves
from hpml_jobs.report.frame.captions import by_reason
from hpml_jobs.report.frame.curves import Curve
from hpml_jobs.report.frame.numbers import loss, milliseconds
from hpml_jobs.report.frame.table import (
    Column,
    Table,
    TableText,
    columns_of,
    line_table,
)
from hpml_jobs.results.groups import ConditionGroup

ITERATIONS = (
    "Step: milliseconds of an iteration of the timed epoch, waiting for data included, the longest "
    "of all ranks: mean without the first one. Loss: mean over ranks in the middle and in the last "
    "of the first I iterations of training, those of the warm-up epoch."
)


class IterationLine(NamedTuple):
    """The iterations of an epoch, medians over runs; the mean is without the first of them."""

    mean_step_s: Annotated[float, Column("step, ms", milliseconds)]
    iterations: Annotated[int, Column("I")]
    loss_half: Annotated[float, Column("at I/2", loss, "loss")]
    loss_end: Annotated[float, Column("at I", loss, "loss")]

    @classmethod
    def of(cls, curve: Curve) -> Self:
        """Return the line of a run."""
        number = next(
            n for n, epoch in enumerate(curve.epochs) if epoch.role == Role.TIMED
        )
        count = curve.epochs[number].iterations
        start = curve.starts[number]
        steps_s = curve.step_s[start + 1 : start + count]
        losses = curve.loss[:count]
        return cls(
            mean_step_s=float(steps_s.mean()),
            iterations=count,
            loss_half=float(losses[count // 2 - 1]),
            loss_end=float(losses[-1]),
        )


def iterations(group: ConditionGroup) -> Table | None:
    """Return what reports that count iterations show; None if no cell has `iterations=`."""
    requested = {r.slug for r in group.cells if r.cell and r.cell.epoch_iterations}
    rows = [row for row in group.timed if requested & set(row.cells)]
    if not rows:
        return None
    values, faults = curves.by_run(group, IterationLine.of)
    text = TableText(
        "iterations",
        "Iterations",
        "",
        (ITERATIONS, captions.runs(rows)),
        affected=Affected.TIME,
    )
    lines = [
        (row, IterationLine(*map(median, zip(*runs, strict=True))))
        for row in rows
        if (runs := [values[slug] for slug in row.cells if slug in values])
    ]
    notes = by_reason(faults, group.device, captions.full_label)
    return line_table(group, text, lines, columns_of(IterationLine), notes)
