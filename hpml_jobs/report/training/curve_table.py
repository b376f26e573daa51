"""Full table of curves: how losses begin and end, and how long iterations take."""

from statistics import median
from typing import Annotated, NamedTuple, Self

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.frame import captions, learning, notes, over_seeds
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, line_table
from hpml_jobs.report.frame.cells import CellResult
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import loss, milliseconds
from hpml_jobs.report.frame.rows import Place, Row
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.training import curves
from hpml_jobs.report.training.curves import NoCurveError

CURVES = (
    "Loss: mean over ranks, in the first and in the last tenth of all iterations of training, "
    "warm-up included. Step: milliseconds of an iteration of the timed epoch on the rank with the "
    "largest stall, stall included: median, 90th percentile, and medians of its first and last "
    "tenth. curves.csv has every iteration of every run (every k-th of long runs, see its column "
    "every); loss.png and steps.png show them."
)


class CurveLine(NamedTuple):
    """Losses in the first and the last tenth of training; seconds of timed iterations."""

    loss_first_tenth: Annotated[float, Shown("first 10 %", loss, "loss")]
    loss_last_tenth: Annotated[float, Shown("last 10 %", loss, "loss")]
    step_median_s: Annotated[Number, Shown("median", milliseconds, "step, ms")]
    step_p90_s: Annotated[Number, Shown("p90", milliseconds, "step, ms")]
    step_first_tenth_s: Annotated[Number, Shown("first 10 %", milliseconds, "step, ms")]
    step_last_tenth_s: Annotated[Number, Shown("last 10 %", milliseconds, "step, ms")]

    @classmethod
    def of(cls, group: ConditionGroup, row: Row, ends: dict[str, tuple[float, float]]) -> Self:
        """Return the line of a row, medians over runs; `ends` are the losses of each run."""
        timed = [record.most_stalled.timed.steps for record in group.records(row) if record.ranks]
        steps = [of_run for of_run in timed if of_run]
        figures = {
            f"step_{name}": median(getattr(of_run, name) for of_run in steps) if steps else None
            for name in ("median_s", "p90_s", "first_tenth_s", "last_tenth_s")
        }
        first, last = zip(*(ends[slug] for slug in row.cells if slug in ends), strict=True)
        return cls(loss_first_tenth=median(first), loss_last_tenth=median(last), **figures)


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

    text = TableText(
        "curve-ends",
        "Curves",
        "",
        (CURVES, captions.runs(rows)),
        bool(faults),
        affected=Affected.LEARNING,
    )
    remarks = [f"loss: {line}" for line in over_seeds.shorter(group, rows)]
    remarks += notes.by_reason(faults, lambda setup: captions.full_label(setup, group.device))
    lines = [(row, CurveLine.of(group, row, ends)) for row in rows]
    return line_table(group, text, lines, columns_of(CurveLine), remarks)


def _ends(result: CellResult) -> tuple[float, float]:
    """Return the mean loss of the first and of the last tenth of a run's iterations."""
    values = curves.read(result).loss
    tenth = max(1, len(values) // 10)
    return float(values[:tenth].mean()), float(values[-tenth:].mean())
