"""Sheet of how the curves of training begin and end."""

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple, Self

from hpml_jobs.core.rank import most_stalled
from hpml_jobs.report.frame import curves
from hpml_jobs.report.frame.builder import Number, row_sheet
from hpml_jobs.report.frame.curves import Curve
from hpml_jobs.report.frame.table import Sheet
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row


class CurveLine(NamedTuple):
    """How a row's curves begin and end, medians over runs.

    Loss: mean over ranks, in the first and in the last tenth of all iterations of training. Step:
    seconds of an iteration of the timed epoch on the rank with the largest stall, stall included.
    """

    loss_first_tenth: float
    loss_last_tenth: float
    step_median_s: Number
    step_p90_s: Number
    step_first_tenth_s: Number
    step_last_tenth_s: Number

    @classmethod
    def of(
        cls, group: ConditionGroup, row: Row, ends: Mapping[str, tuple[float, float]]
    ) -> Self:
        """Return the line of a row; `ends` are the losses of each run."""
        first, last = zip(
            *(ends[slug] for slug in row.cells if slug in ends), strict=True
        )
        timed = [
            most_stalled(record.ranks).timed
            for record in group.records(row)
            if record.ranks
        ]
        steps = [epoch.steps for epoch in timed if epoch.steps]
        if not steps:
            return cls(median(first), median(last), None, None, None, None)
        return cls(
            loss_first_tenth=median(first),
            loss_last_tenth=median(last),
            step_median_s=median(times.median_s for times in steps),
            step_p90_s=median(times.p90_s for times in steps),
            step_first_tenth_s=median(times.first_tenth_s for times in steps),
            step_last_tenth_s=median(times.last_tenth_s for times in steps),
        )


def curve_ends(group: ConditionGroup) -> Sheet | None:
    """Return how each row's curves begin and end; None if no run has its iterations."""
    ends, _ = curves.by_run(group, _ends)
    lines = []
    for row in group.timed:
        if any(slug in ends for slug in row.cells):
            lines.append((row, CurveLine.of(group, row, ends)))
    return row_sheet(group, CurveLine._fields, lines) if lines else None


def _ends(curve: Curve) -> tuple[float, float]:
    """Return the mean loss of the first and of the last tenth of a run's iterations."""
    tenth = max(1, len(curve.loss) // 10)
    first, last = curve.loss[:tenth], curve.loss[-tenth:]
    return float(first.mean()), float(last.mean())
