"""Groups of cells that may share a table: one workload under the same conditions, with its rows."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.cell import IMPORT, Cell, Origin
from hpml_jobs.core.check_result import Affected, CheckResult, Level
from hpml_jobs.core.conditions import (
    CODE,
    UNRECORDED,
    WORKLOAD,
    WORKLOAD_CONDITIONS,
    Conditions,
    measured_conditions,
    precision_of,
    requested_conditions,
)
from hpml_jobs.core.place import Place
from hpml_jobs.core.record import Model, Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import NaturalKey, natural_key
from hpml_jobs.core.value import Value
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.rows import (
    Row,
    Work,
    by_key,
    make_rows,
    place_order,
    reference_among,
)


class ConditionGroup(Value, frozen=True, kw_only=True, dict=True):
    """Cells that may share a table, and their numbers as rows.

    `measured_as` is empty where none of them has a record. A cell that ran under unknown conditions
    is in every group that it may belong to, and `uncertain` names it if there are several.
    `elsewhere` gives for a place the number of another group that measured it under other
    conditions; `checks` are the data-quality checks by slug. `name` tells the groups of
    a study apart: the workload if that is unique, else the number; empty if there is one group.
    """

    requested: Conditions
    measured_as: Conditions
    cells: tuple[CellResult, ...]
    rows: tuple[Row, ...]
    uncertain: frozenset[str] = frozenset()
    elsewhere: Mapping[Place, int] = {}
    checks: Mapping[str, tuple[CheckResult, ...]] = {}
    name: str = ""

    @cached_property
    def conditions(self) -> dict[str, str]:
        """All conditions on which the cells agree."""
        return dict(self.requested + self.measured_as)

    @cached_property
    def a_cell(self) -> Cell:
        """A representative cell: all cells agree in everything but their place."""
        return next(result.cell for result in self.cells if result.cell is not None)

    @property
    def device(self) -> Device:
        """The device that the cells compute on."""
        return self.a_cell.device

    @property
    def kind(self) -> tuple[str, Device]:
        """The name of its workload, and its device."""
        return self.a_cell.workload.name, self.device

    @property
    def origin(self) -> Origin:
        """Where its numbers come from."""
        return self.a_cell.origin

    @property
    def imported(self) -> bool:
        """Whether the timings were imported."""
        return self.origin is IMPORT

    @cached_property
    def precisions(self) -> tuple[str, ...]:
        """The number formats of the cells' computing."""
        records = (result.record for result in self.cells if result.record)
        words = (precision_of(record) for record in records if record.facts)
        return tuple(dict.fromkeys(words))

    @cached_property
    def work(self) -> Work | None:
        """What the times are of, where that is not an epoch."""
        return next((row.timing.work for row in self.timed if row.timing), None)

    @property
    def model(self) -> Model | None:
        """The trained model, from the first record that has it."""
        models = (result.record.model for result in self.cells if result.record)
        return next((model for model in models if model), None)

    @cached_property
    def timed(self) -> tuple[Row, ...]:
        """The rows with numbers."""
        return tuple(row for row in self.rows if row.timing)

    @cached_property
    def _measured(self) -> dict[str, CellResult]:
        return {result.slug: result for result in self.cells if result.measured}

    def runs(self, row: Row) -> list[CellResult]:
        """Return the measured cells of a row, by seed and repeat."""
        return [self._measured[slug] for slug in row.cells if slug in self._measured]

    def records(self, row: Row) -> list[Record]:
        """Return the records of a row's runs."""
        return [result.record for result in self.runs(row) if result.record is not None]

    def counted_records(self, row: Row, affected: Affected) -> list[Record]:
        """Return the records that the row's numbers of this kind are medians of."""
        records = self.records(row)
        return [record for record in records if row.counts(record.slug, affected)]

    @cached_property
    def violations(self) -> list[tuple[CheckResult, Row, str]]:
        """The results that are not passed, each with its row and the name of its cell.

        Without those of a run that medians leave out: a note under the table names the run.
        """
        return [
            (result, row, slug)
            for row in self.rows
            for slug in row.cells
            for result in self.checks.get(slug, ())
            if result.level is not Level.PASS
            if any(row.counts(slug, affected) for affected in result.affects)
        ]

    @cached_property
    def _doubts(self) -> dict[tuple[Place, Affected], list[CheckResult]]:
        return by_key(
            ((row.place, affected), result)
            for result, row, slug in self.violations
            for affected in result.affects
            if result.is_doubt and row.counts(slug, affected)
        )

    def doubts_of(self, row: Row, affected: Affected) -> list[CheckResult]:
        """Return the results of the checks that make these numbers of a row doubtful."""
        return self._doubts.get((row.place, affected), [])

    def doubts(self, row: Row, affected: Affected) -> bool:
        """Return whether a check makes these numbers of a row doubtful."""
        return bool(self.doubts_of(row, affected))

    def doubts_ratio(self, row: Row, reference: Row | None = None) -> bool:
        """Return whether a check makes a row's time doubtful, or that which it is compared with.

        That is by default the row that its ratios are against.
        """
        compared = reference or self.reference(row)
        rows = [row, compared] if compared else [row]
        return any(self.doubts(of_ratio, Affected.TIME) for of_ratio in rows)

    @cached_property
    def _by_place(self) -> dict[Place, Row]:
        return {row.place: row for row in self.timed}

    def reference(self, row: Row) -> Row | None:
        """Return the row that a row's ratios are against; None where it has no ratios."""
        if row.reference is None:
            return None
        return self._by_place.get(Place(row.reference, row.batch_per_gpu))

    def plain_loop(self, row: Row) -> Row | None:
        """Return the plain loop on one GPU that a row's ratios are against; None without it."""
        reference = self.reference(row)
        return reference if reference is not None and reference.is_baseline else None


def group(cells: Iterable[CellResult]) -> list[ConditionGroup]:
    """Return the cells whose settings are known in groups that may share tables, in fixed order."""
    measured: dict[tuple[Conditions, Conditions], list[CellResult]] = {}
    unmeasured: list[tuple[Conditions, CellResult]] = []
    for result in cells:
        if result.cell is None:
            continue
        key = requested_conditions(result.cell)
        conditions = measured_conditions(result.record) if result.record else None
        if conditions is None:
            unmeasured.append((key, result))
        else:
            measured.setdefault((key, conditions), []).append(result)
    recorded_conditions = by_key((conditions[0], conditions) for conditions in measured)
    uncertain = set()
    for key, result in unmeasured:
        homes = recorded_conditions.get(key, [(key, ())])
        for home in homes:
            measured.setdefault(home, []).append(result)
        if len(homes) > 1:
            uncertain.add(result.slug)
    return [
        _condition_group(key, conditions, members, uncertain)
        for (key, conditions), members in sorted(measured.items(), key=_order)
    ]


def _order(
    item: tuple[tuple[Conditions, Conditions], Sequence[CellResult]],
) -> tuple[bool, list[list[tuple[str, NaturalKey]]], float]:
    """Return the order of groups: by the conditions' values, numbers in `args` by their size.

    Of two versions of the user's code the latest is first. Scripts without a number are last:
    arguments were corrected after them.
    """
    pair, members = item
    parts = [without_code(dict(part)) for part in pair]
    values = [[(name, _value_key(name, part[name])) for name in part] for part in parts]
    is_script = any(result.cell and result.cell.script for result in members)
    has_no_number = not any(result.measured for result in members)
    return is_script and has_no_number, values, -latest_began(members)


def without_code(conditions: Mapping[str, str]) -> dict[str, str]:
    """Return the conditions other than the user's code."""
    return {
        name: value for name, value in conditions.items() if not name.startswith(CODE)
    }


def latest_began(cells: Iterable[CellResult]) -> float:
    """Return when the latest attempt of some cells began; 0 if that is not known."""
    attempts = (result.latest for result in cells if result.latest)
    return max((attempt.began or 0.0 for attempt in attempts), default=0.0)


def _value_key(name: str, value: str) -> NaturalKey:
    return natural_key(value) if name == "args" else ((), value)


def _condition_group(
    key: Conditions,
    conditions: Conditions,
    members: Iterable[CellResult],
    uncertain: set[str],
) -> ConditionGroup:
    cells = tuple(sorted(members, key=place_order))
    uncertain_here = frozenset(uncertain & {result.slug for result in cells})
    return ConditionGroup(
        requested=key,
        measured_as=conditions,
        cells=cells,
        rows=make_rows(cells, uncertain_here),
        uncertain=uncertain_here,
    )


def differing(tables: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the conditions that differ between tables of conditions, with each table's value.

    Two workloads differ in nearly everything; there the name says enough.
    """
    names = dict.fromkeys(what for table in tables for what in table)
    result = {}
    for what in names:
        values = [table.get(what, UNRECORDED) for table in tables]
        if len({*values} - {UNRECORDED}) > 1 and not _follows_from_name(what, tables):
            result[what] = values
    return result


def _follows_from_name(what: str, tables: Sequence[Mapping[str, str]]) -> bool:
    """Return whether `what` differs only between workloads of different names."""
    if what not in WORKLOAD_CONDITIONS and not what.startswith(CODE):
        return False
    values: dict[str, set[str]] = {}
    for table in tables:
        if what in table:
            values.setdefault(table[WORKLOAD], set()).add(table[what])
    return all(len(same) == 1 for same in values.values())


def complete_groups(cells: Sequence[CellResult]) -> list[ConditionGroup]:
    """Return a study's condition groups, each with its name and with what other groups measured.

    They have no checks yet: `checks.checked_groups` returns them with their checks.
    """
    groups = group(cells)
    return [
        msgspec.structs.replace(
            group,
            name=_name(number, group, groups),
            elsewhere=_elsewhere(group, groups),
        )
        for number, group in enumerate(groups, start=1)
    ]


def _name(number: int, group: ConditionGroup, groups: Sequence[ConditionGroup]) -> str:
    if len(groups) == 1:
        return ""
    workloads = [other.conditions[WORKLOAD] for other in groups]
    workload = group.conditions[WORKLOAD]
    return workload if workloads.count(workload) == 1 else f"group {number}"


def _elsewhere(
    group: ConditionGroup, groups: Sequence[ConditionGroup]
) -> dict[Place, int]:
    """Return the places that other groups of the same workload's name and device measured."""
    return {
        row.place: number
        for number, other in enumerate(groups, start=1)
        if other is not group and other.kind == group.kind
        for row in other.timed
    }


class Pair(NamedTuple):
    """The same global batch, or batch per GPU, on the reference and on more GPUs.

    The reference is one GPU, or the smallest size.
    """

    reference: Row
    parallel: Row

    @property
    def reference_s(self) -> float:
        """Seconds of the reference's epoch."""
        return self.reference.figures.epoch_s

    @property
    def parallel_s(self) -> float:
        """Seconds of the other epoch."""
        return self.parallel.figures.epoch_s

    @property
    def global_batch(self) -> int:
        """Samples of an iteration on all GPUs."""
        return self.parallel.global_batch

    @property
    def speedup(self) -> float:
        """The ratio of the times; strong(N; G) = epoch_s(g, G / g) / epoch_s(N, G / N)."""
        return formulas.speedup(self.reference_s, self.parallel_s)

    @property
    def efficiency(self) -> float:
        """Share of the ideal speedup, N / g."""
        return formulas.efficiency(
            self.speedup, self.parallel.gpus, self.reference.gpus
        )

    @property
    def karp_flatt(self) -> float | None:
        """The serial fraction by Karp and Flatt; it may be outside (0, 1).

        None against more than one GPU: T1, which it divides by, is not known.
        """
        if not self.reference.is_baseline:
            return None
        return formulas.karp_flatt(self.speedup, self.parallel.gpus)

    @property
    def serial_fraction(self) -> float | None:
        """The same; None where it is no fraction."""
        value = self.karp_flatt
        return value if value is not None and 0 < value < 1 else None


def pairs(group: ConditionGroup) -> list[Pair]:
    """Return every pair with the same global batch in the grid."""
    rows = [((row.global_batch, row.path_of_batch), row) for row in group.timed]
    by_global_batch = by_key(rows)
    has_single = any(row.is_baseline for row in group.rows)
    same_batch = []
    for batch, row in rows:
        candidates = by_global_batch[batch]
        # The same global batch may be a batch on N GPUs and N accumulated batches on one.
        candidates.sort(key=lambda candidate: candidate.path != row.path)
        reference = reference_among(row, candidates, has_single=has_single)
        if row.gpus > 1 and reference and reference.gpus < row.gpus:
            same_batch.append(Pair(reference, row))
    return same_batch
