"""The parallel efficiency of a row, and how far its runs know it."""

from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.noise import epoch_error, error_of_median, known_interval
from hpml_jobs.core.statistics import Interval, ratio_interval
from hpml_jobs.core.text import Share, percent_text
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

EFFICIENCY_LIMIT = Share(1.05)


def between(shares: Interval) -> str:
    """Return the ends of an interval of shares in percent."""
    return f"[{percent_text(shares.low)}, {percent_text(shares.high)}]"


class Efficiency(NamedTuple):
    """The parallel efficiency of a row, with data loading and without (None: not known).

    `interval` is the bootstrap interval; None: below the limit, or a single run of the row or of
    its baseline, whose own noise gives `of_one_run`.
    """

    row: Row
    baseline: Row
    with_loading: float
    without_loading: float | None
    interval: Interval | None = None
    of_one_run: Interval | None = None

    def __str__(self) -> str:
        """With its interval, where it has one."""
        text = percent_text(self.with_loading)
        return f"{text} {between(self.interval)}" if self.interval else text

    @property
    def is_too_high(self) -> bool:
        """Whether N GPUs are more than N times as fast as one, by medians.

        Of single runs it is the lower end that their noise leaves.
        """
        lower = self.of_one_run.low if self.of_one_run else self.with_loading
        return lower > EFFICIENCY_LIMIT

    @property
    def is_certain(self) -> bool:
        """Whether the interval is above the limit too."""
        return self.interval is not None and self.interval.low > EFFICIENCY_LIMIT

    @property
    def is_explained(self) -> bool:
        """Whether it is within the limit without data loading."""
        without_loading = self.without_loading
        return without_loading is not None and without_loading <= EFFICIENCY_LIMIT


def efficiencies(group: ConditionGroup) -> list[Efficiency]:
    """Return those of the rows with more than one GPU whose speedup is against the plain loop."""
    of_rows = []
    for row in group.timed:
        baseline = group.plain_loop(row)
        if row.gpus > 1 and row.scaling and baseline:
            without_loading = _without_loading(row, baseline)
            reached = Efficiency(row, baseline, row.scaling.efficiency, without_loading)
            of_rows.append(_with_interval(group, reached))
    return of_rows


def _without_loading(row: Row, baseline: Row) -> float | None:
    base_s = baseline.figures.train_s
    row_s = row.figures.train_s
    if not base_s or not row_s:
        return None
    return formulas.efficiency(formulas.speedup(base_s, row_s), row.gpus)


def _with_interval(group: ConditionGroup, reached: Efficiency) -> Efficiency:
    """Return an efficiency; above the limit with how far its runs know it."""
    if not reached.is_too_high or reached.is_explained:
        return reached
    rows = reached.baseline, reached.row
    of_speedup = ratio_interval(*(row.epochs.runs for row in rows))
    if of_speedup:
        return reached._replace(interval=of_speedup.divided_by(reached.row.gpus))
    # by the timed epochs alone: the instrumented one may differ because the timed one is wrong
    errors = []
    for row in rows:
        records = group.counted_records(row, Affected.TIME)
        of_runs = (epoch_error(record, Role.TIMED) for record in records)
        errors.append(error_of_median(row.epochs.runs, of_runs))
    return reached._replace(of_one_run=known_interval(reached.with_loading, *errors))
