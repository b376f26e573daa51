"""The runs of a condition group with their rows, and what checks compare them by."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.conditions import Conditions, remarked_conditions
from hpml_jobs.core.place import Place
from hpml_jobs.core.record import Record
from hpml_jobs.results.checks.efficiency import Efficiency, efficiencies
from hpml_jobs.results.checks.result import NAMED
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row, by_key


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

    @property
    def comparison(self) -> tuple[int, str]:
        """Batch and training path: speedups are ratios of equal ones."""
        return self.row.batch_per_gpu, self.row.path

    @property
    def baseline(self) -> Row | None:
        """The row of the plain loop on one GPU that its speedup is against, if there is one."""
        return self.table.group.plain_loop(self.row)


class Differing(NamedTuple):
    """The runs that differ from one: the first of them, to be named, and their number."""

    first: Sequence[ComparedRun]
    number: int
    of_baseline: bool  # its baseline is one of them

    def is_outlier_of(self, runs: int) -> bool:
        """Return whether the run differs from its baseline, or from half of the others or more.

        `runs` is the number of all, this one included. The rule names one outlier instead of all
        the others.
        """
        return self.of_baseline or (self.number > 0 and 2 * self.number >= runs - 1)


class ByValue:
    """Runs by a value that they should have in common; runs without a value are left out."""

    def __init__(
        self,
        runs: Iterable[ComparedRun],
        value: Callable[[ComparedRun], tuple[Any, ...]],
    ) -> None:
        self._value = value
        self._values: dict[str, tuple[Any, ...]] = {}
        self._runs: dict[tuple[Any, ...], list[tuple[int, ComparedRun]]] = {}
        self._others: dict[
            tuple[Any, ...], tuple[list[ComparedRun], set[tuple[int, str]]]
        ] = {}
        for position, run in enumerate(runs):
            if own := value(run):
                self._values[run.slug] = own
                self._runs.setdefault(own, []).append((position, run))

    def __len__(self) -> int:
        """The number of runs that have a value."""
        return len(self._values)

    def of(self, run: ComparedRun) -> tuple[Any, ...]:
        """Return the value of a run, one of these or not; empty if it has none."""
        return self._values.get(run.slug) or self._value(run)

    def differing(self, run: ComparedRun) -> Differing:
        """Return the runs with another value."""
        own = self.of(run)
        if own not in self._others:
            others = [members for value, members in self._runs.items() if value != own]
            in_order = [other for _, other in sorted(chain.from_iterable(others))]
            baselines = {
                other.comparison for other in in_order if other.row.is_baseline
            }
            self._others[own] = in_order, baselines
        runs, baselines = self._others[own]
        return Differing(runs[:NAMED], len(runs), run.comparison in baselines)

    def other_values(self, run: ComparedRun) -> list[tuple[Any, ...]]:
        """Return the values that other runs have, each once."""
        own = self.of(run)
        return [value for value in self._runs if value != own]


class GroupRuns:
    """The runs of a condition group, which share a table, in the study's order."""

    def __init__(self, group: ConditionGroup, numbers: Mapping[str, int]) -> None:
        self.group = group
        self.runs = sorted(
            ComparedRun(numbers[record.slug], record, row, self)
            for row in group.timed
            for record in group.records(row)
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
        """Those of its rows with more than one GPU."""
        return efficiencies(self.group)

    @cached_property
    def counted(self) -> dict[Place, list[ComparedRun]]:
        """By place, the runs that count for the time of their row."""
        counted = (run for run in self.runs if run.row.counts(run.slug, Affected.TIME))
        return by_key((run.row.place, run) for run in counted)


def by_conditions(tables: Iterable[GroupRuns]) -> dict[GroupRuns, ByValue]:
    """Return for each group the runs of all groups of its kind, by their conditions."""
    related: dict[GroupRuns, ByValue] = {}
    for same_kind in by_key((table.kind, table) for table in tables).values():
        runs = sorted(run for table in same_kind for run in table.runs)
        by_value = ByValue(runs, lambda run: run.table.conditions)
        related |= dict.fromkeys(same_kind, by_value)
    return related
