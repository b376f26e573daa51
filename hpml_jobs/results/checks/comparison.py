"""The runs of a condition group with their rows, and what checks compare: values, efficiency."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import Share, percent_text
from hpml_jobs.core.value import by_key
from hpml_jobs.results.cells import Place
from hpml_jobs.results.conditions import Conditions, remarked_conditions
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row
from hpml_jobs.results.statistics import (
    Interval,
    epoch_error,
    error_of_median,
    known_interval,
    ratio_interval,
)


class ComparedRun(NamedTuple):
    """A measured cell with its row and with the runs of its condition group.

    `number` is its place in the study, by which the first of several runs are named.
    """

    number: int
    record: Record
    row: Row
    table: "GroupRuns"

    @property
    def slug(self) -> str:
        """The cell's name."""
        return self.record.slug

    @property
    def threads(self) -> tuple[int, ...]:
        """The numbers of threads that its processes computed with, each once."""
        return tuple(sorted({rank.threads for rank in self.record.ranks}))


class Differing(NamedTuple):
    """The runs that differ from one, in the study's order."""

    runs: Sequence[ComparedRun]
    of_baseline: bool  # its baseline is one of them

    def is_outlier_of(self, runs: int) -> bool:
        """Return whether the run differs from its baseline, or from half of the others or more.

        `runs` is the number of all, this one included. The rule names one outlier instead of all
        the others.
        """
        number = len(self.runs)
        return self.of_baseline or (number > 0 and 2 * number >= runs - 1)


class ByValue:
    """Runs by a value that they should have in common; runs without a value are left out."""

    def __init__(
        self,
        runs: Iterable[ComparedRun],
        value: Callable[[ComparedRun], tuple[Any, ...]],
    ) -> None:
        values = [(value(run), run) for run in runs]
        self._values = {run.slug: own for own, run in values if own}
        self._runs = by_key((own, run) for own, run in values if own)
        self._others = {own: self._others_of(own) for own in self._runs}

    def __len__(self) -> int:
        """The number of runs that have a value."""
        return len(self._values)

    def of(self, run: ComparedRun) -> tuple[Any, ...]:
        """Return the value of a run; empty if it has none."""
        return self._values.get(run.slug, ())

    def differing(self, run: ComparedRun) -> Differing:
        """Return the runs with another value than that of a run."""
        runs, baselines = self._others[self.of(run)]
        return Differing(runs, run.row.ratio_key in baselines)

    def _others_of(
        self, own: tuple[Any, ...]
    ) -> tuple[list[ComparedRun], set[tuple[int, str]]]:
        """Return the runs with another value, and what the baselines among them are of."""
        others = (members for value, members in self._runs.items() if value != own)
        runs = sorted(chain.from_iterable(others))
        return runs, {run.row.ratio_key for run in runs if run.row.is_baseline}

    def other_values(self, run: ComparedRun) -> list[tuple[Any, ...]]:
        """Return the values that other runs have, each once."""
        own = self.of(run)
        return [value for value in self._runs if value != own]


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


def _without_loading(row: Row, baseline: Row) -> float | None:
    base_s = baseline.figures.train_s
    row_s = row.figures.train_s
    if not base_s or not row_s:
        return None
    return formulas.efficiency(formulas.speedup(base_s, row_s), row.gpus)


def _with_interval(reached: Efficiency) -> Efficiency:
    """Return an efficiency; above the limit with how far its runs know it."""
    if not reached.is_too_high or reached.is_explained:
        return reached
    rows = reached.baseline, reached.row
    of_speedup = ratio_interval(*(row.times_s for row in rows))
    if of_speedup:
        return reached._replace(interval=of_speedup.divided_by(reached.row.gpus))
    # by the timed epochs alone: the instrumented one may differ because the timed one is wrong
    errors = []
    for row in rows:
        of_runs = (epoch_error(record, Role.TIMED) for record in row.timed_records)
        errors.append(error_of_median(row.times_s, of_runs))
    return reached._replace(of_one_run=known_interval(reached.with_loading, *errors))


class GroupRuns:
    """The runs of a condition group, which share a table, in the study's order.

    `related` are the runs of all groups of its kind, by their conditions.
    """

    related: ByValue

    def __init__(self, group: ConditionGroup, numbers: Mapping[str, int]) -> None:
        self.group = group
        self.runs = sorted(
            ComparedRun(numbers[record.slug], record, row, self)
            for row in group.timed
            for record in row.records
        )

    @property
    def kind(self) -> tuple[object, ...]:
        """What groups have in common that could be one table under the same conditions."""
        cell = self.group.a_cell
        return cell.workload, cell.device, cell.gpu_type, cell.loader, cell.script

    @property
    def conditions(self) -> Conditions:
        """The hardware and software of all its runs; none of imported timings."""
        return self.group.measured_as if self.group.origin.has_facts else ()

    @cached_property
    def remarks(self) -> ByValue:
        """Its runs by what a remark compares; none of imported timings."""
        return ByValue(self.runs, lambda run: remarked_conditions(run.record))

    @cached_property
    def threads(self) -> ByValue:
        """Its runs by their numbers of threads."""
        return ByValue(self.runs, lambda run: run.threads)

    @cached_property
    def efficiencies(self) -> list[Efficiency]:
        """Those of its rows with more than one GPU whose speedup is against the plain loop."""
        of_rows = []
        for row in self.group.timed:
            baseline = row.plain_loop
            if row.gpus > 1 and row.scaling and baseline:
                reached = Efficiency(
                    row,
                    baseline,
                    row.scaling.efficiency,
                    _without_loading(row, baseline),
                )
                of_rows.append(_with_interval(reached))
        return of_rows

    @cached_property
    def counted(self) -> dict[Place, list[ComparedRun]]:
        """By place, the runs that count for the time of their row."""
        counted = (run for run in self.runs if run.row.counts(run.slug, Affected.TIME))
        return by_key((run.row.place, run) for run in counted)


def runs_of(
    groups: Iterable[ConditionGroup], numbers: Mapping[str, int]
) -> list[GroupRuns]:
    """Return the runs of each group; `numbers` are the places of cells in the study, by slug."""
    tables = [GroupRuns(group, numbers) for group in groups]
    for same_kind in by_key((table.kind, table) for table in tables).values():
        runs = sorted(run for table in same_kind for run in table.runs)
        related = ByValue(runs, lambda run: run.table.conditions)
        for table in same_kind:
            table.related = related
    return tables
