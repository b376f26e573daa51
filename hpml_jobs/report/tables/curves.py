"""Full table of curves: how losses begin and end, and how long iterations take."""

from collections.abc import Callable
from functools import partial
from statistics import median

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.measurements import Steps
from hpml_jobs.report.merge import curves, learning
from hpml_jobs.report.merge.cells import CellResult
from hpml_jobs.report.merge.curves import NoCurveError
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Place, Row
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables import over_seeds
from hpml_jobs.report.tables.builder import Columns, TableText, column, row_table
from hpml_jobs.report.text import captions, notes
from hpml_jobs.report.text.numbers import loss, milliseconds

CURVES = (
    "Loss: mean over ranks, in the first and in the last tenth of all iterations of training, "
    "warm-up included. Step: milliseconds of an iteration of the timed epoch (E1) on the rank with "
    "the largest stall, stall included: median, 90th percentile, and medians of its first and last "
    "tenth. "
    "curves.csv has every iteration of every run (every k-th of long runs, see its column every);"
    " loss.png and steps.png show them."
)


def curve_table(group: ConditionGroup) -> Table | None:
    """Return how each place's loss begins and ends; None if no run has its iterations."""
    cells = {result.slug: result for result in group.cells if result.measured}
    if not any(curves.has_curve(result) for result in cells.values()):
        return None
    ends: dict[str, tuple[float, float]] = {}
    faults: list[tuple[str, Place]] = []
    for row in group.timed:
        for slug in (record.slug for record in learning.runs(group, row)):
            try:
                ends[slug] = _ends(cells[slug])
            except NoCurveError as fault:
                faults.append((f"no curves: {fault}", row.place))
    rows = [row for row in group.timed if set(row.cells) & set(ends)]

    def of_loss(end: int) -> Callable[[Row], float]:
        return lambda row: median(ends[slug][end] for slug in row.cells if slug in ends)

    heads: tuple[Columns[Row], ...] = (
        Columns(
            "loss",
            (
                column("loss_first_tenth", "first 10 %", of_loss(0), loss),
                column("loss_last_tenth", "last 10 %", of_loss(1), loss),
            ),
        ),
        Columns(
            "step, ms",
            tuple(
                column(name, head, partial(_step, group, figure=figure), milliseconds)
                for name, head, figure in _STEPS
            ),
        ),
    )
    text = TableText(
        "curve-ends",
        "Curves",
        "",
        (CURVES, captions.runs(rows)),
        bool(faults),
        affected=Affected.LEARNING,
    )
    lines = [f"loss: {line}" for line in over_seeds.shorter(group, rows)]
    lines += notes.by_reason(faults, lambda setup: captions.full_label(setup, group.device))
    return row_table(group, text, rows, heads, lines)


def _ends(result: CellResult) -> tuple[float, float]:
    """Return the mean loss of the first and of the last tenth of a run's iterations."""
    values = curves.read(result).loss
    tenth = max(1, len(values) // 10)
    return float(values[:tenth].mean()), float(values[-tenth:].mean())


_STEPS: tuple[tuple[str, str, Callable[[Steps], float]], ...] = (
    ("step_median_s", "median", lambda steps: steps.median_s),
    ("step_p90_s", "p90", lambda steps: steps.p90_s),
    ("step_first_tenth_s", "first 10 %", lambda steps: steps.first_tenth_s),
    ("step_last_tenth_s", "last 10 %", lambda steps: steps.last_tenth_s),
)
"""Columns of the timed epoch's iterations: name, heading, value."""


def _step(group: ConditionGroup, row: Row, figure: Callable[[Steps], float]) -> float | None:
    """Return a figure of the timed epoch's iterations, median over runs."""
    steps = [record.most_stalled.timed.steps for record in group.records(row) if record.ranks]
    figures = [figure(run_steps) for run_steps in steps if run_steps]
    return median(figures) if figures else None
