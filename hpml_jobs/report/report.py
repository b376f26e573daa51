"""A study as a report: groups of like records, each with its own baseline and its own tables."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from hpml_jobs import checks
from hpml_jobs.core.cell import Cell, Device, Strategy
from hpml_jobs.core.conditions import UNRECORDED, WORKLOAD
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import Value
from hpml_jobs.report.merge import grouping
from hpml_jobs.report.merge.cells import CellResult
from hpml_jobs.report.merge.entries import Entry, Place, entries, model_of
from hpml_jobs.report.merge.grouping import ConditionGroup
from hpml_jobs.report.merge.scope import Part, Scope, part
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables import bandwidth as speeds
from hpml_jobs.report.tables import (
    communication,
    latency,
    messages,
    microbenchmark,
    phases,
    profiler,
    quantization,
    repeats,
    replicas,
    residual,
    scaling,
    shuffling,
)
from hpml_jobs.report.tables import curves as curve_table
from hpml_jobs.report.tables import lab as tables
from hpml_jobs.report.tables import largest_batch as largest
from hpml_jobs.report.tables import learning as training
from hpml_jobs.report.tables import quantization_layers as quantized
from hpml_jobs.report.tables import strategies as compared
from hpml_jobs.report.text import captions
from hpml_jobs.report.text import marks as judged


class StrategySet(Value, frozen=True, kw_only=True):
    """Tables 1, 2 and 3 of one strategy, measured and by residual; sets share the baseline."""

    strategy: Strategy
    entries: tuple[Entry, ...]
    tables: tuple[Table, ...]


class Group(Value, frozen=True, kw_only=True, dict=True):
    """Everything measured under the same conditions; `apart` is what sets it apart, if anything."""

    number: int
    title: str
    setting: str
    apart: str
    conditions: dict[str, str]
    device: Device
    entries: tuple[Entry, ...]
    q1: Table | None
    sets: tuple[StrategySet, ...]
    full: tuple[Table, ...]
    cells: tuple[CellResult, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """All its tables in the order of reading."""
        first = (self.q1,) if self.q1 else ()
        return (*first, *(table for one_set in self.sets for table in one_set.tables), *self.full)

    def runs(self, entry: Entry) -> list[CellResult]:
        """The cells with numbers that an entry is made of."""
        return [self._measured[slug] for slug in entry.cells if slug in self._measured]

    @cached_property
    def _measured(self) -> dict[str, CellResult]:
        return {found.slug: found for found in self.cells if found.measured}

    def records(self, entry: Entry) -> list[Record]:
        """Their records."""
        return [found.record for found in self.runs(entry) if found.record is not None]


class Report(Value, frozen=True, kw_only=True):
    """A study's tables. `unlike` says what differs between groups; `unplaced` cells are in none.

    `tables` are of all groups together: what stands in them does not depend on the hardware;
    `quantized` are the runs that were.
    """

    study: str
    unlike: tuple[str, ...]
    groups: tuple[Group, ...]
    tables: tuple[Table, ...]
    quantized: tuple[quantization.Runs, ...]
    unplaced: tuple[CellResult, ...]

    @property
    def several(self) -> bool:
        """Whether there are records that may not share a table."""
        return len(self.groups) > 1

    def name(self, group: Group) -> str:
        """What tells a group from the others in short: its workload, or else its number."""
        workloads = [one.conditions[WORKLOAD] for one in self.groups]
        if not self.several:
            return ""
        own = group.conditions[WORKLOAD]
        return own if workloads.count(own) == 1 else f"group {group.number}"


def merge(study: str, cells: Sequence[CellResult]) -> Report:
    """All cells of a study in tables; those of which not even the cell is known stand apart."""
    alikes = grouping.group(cells)
    differing = grouping.differences(alikes)
    merged = [entries(alike.cells, alike.uncertain) for alike in alikes]
    measured = [found.record for found in cells if found.record is not None and found.measured]
    ruling = checks.of_study(measured)
    scopes = [
        _scope(alike, tuple(found), _elsewhere(number, alikes, merged), ruling)
        for number, (alike, found) in enumerate(zip(alikes, merged, strict=True), start=1)
    ]
    together = (make(scopes) for make in TOGETHER.values())
    return Report(
        study=study,
        unlike=tuple(f"{what}: {' | '.join(values)}" for what, values in differing.items()),
        groups=tuple(
            _group(number, scope, _apart(number, differing))
            for number, scope in enumerate(scopes, start=1)
        ),
        tables=tuple(table for table in together if table is not None),
        quantized=tuple(quantization.quantized(scopes)),
        unplaced=tuple(found for found in cells if found.cell is None),
    )


def _apart(number: int, differing: Mapping[str, Sequence[str]]) -> str:
    own = {what: values[number - 1] for what, values in differing.items()}
    return ", ".join(f"{what} {own[what]}" for what in own if own[what] != UNRECORDED)


def _elsewhere(
    number: int, alikes: Sequence[ConditionGroup], merged: Sequence[Sequence[Entry]]
) -> dict[Place, int]:
    """Where in other groups of the same workload's name and device a place has a number."""
    own = _kin(alikes[number - 1])
    return {
        (entry.row, entry.batch_per_gpu): other
        for other, (alike, found) in enumerate(zip(alikes, merged, strict=True), start=1)
        if other != number and _kin(alike) == own
        for entry in found
        if entry.timing
    }


def _kin(alike: ConditionGroup) -> tuple[str, Device]:
    cell = _a_cell(alike)
    return cell.workload.name, cell.device


def _scope(
    alike: ConditionGroup,
    found: tuple[Entry, ...],
    elsewhere: Mapping[Place, int],
    ruling: Mapping[str, tuple[checks.CheckResult, ...]],
) -> Scope:
    cell = _a_cell(alike)
    return Scope(
        alike=alike,
        device=cell.device,
        entries=found,
        setting=captions.setting(cell, model_of(alike.cells), dict(alike.conditions)),
        elsewhere=elsewhere,
        checks=ruling,
    )


def _a_cell(alike: ConditionGroup) -> Cell:
    return next(found.cell for found in alike.cells if found.cell is not None)


def _group(number: int, scope: Scope, apart: str) -> Group:
    cell, conditions = _a_cell(scope.alike), dict(scope.alike.conditions)
    parallel = {entry.strategy for entry in scope.entries if not entry.is_baseline}
    where = captions.hardware(cell.device, conditions) or cell.gpu_type or cell.device.value
    return Group(
        number=number,
        title=f"{cell.workload.name} on {where}",
        setting=scope.setting,
        apart=apart,
        conditions=conditions,
        device=cell.device,
        entries=scope.entries,
        q1=tables.q1(scope) if any(entry.is_baseline for entry in scope.entries) else None,
        sets=tuple(_set(part(scope, strategy)) for strategy in Strategy if strategy in parallel),
        full=_full(scope),
        cells=scope.alike.cells,
    )


def _set(of: Part) -> StrategySet:
    measured = (tables.table2(of),) if of.instrumented else ()
    speed = (tables.table3(of),) if of.instrumented and not of.scope.imported else ()
    all_of_them = (
        tables.table1(of),
        *measured,
        residual.table2r(of),
        *speed,
        residual.table3r(of),
    )
    shown = tuple(table for table in all_of_them if table.lines)
    return StrategySet(strategy=of.strategy, entries=of.entries, tables=shown)


FULL: dict[str, Callable[[Scope], Table | None]] = {
    "scaling": scaling.scaling,
    "strong": scaling.strong,
    "largest": largest.largest,
    "repeats": repeats.repeats,
    "compared": compared.compared,
    "table4": training.table4,
    "evaluation": training.evaluation,
    "shuffling": shuffling.shuffling,
    "communication": communication.communication,
    "repeats-measured": repeats.measured,
    "bandwidth": speeds.bandwidth,
    "phases": phases.phases,
    "messages": messages.messages,
    "replicas": replicas.replicas,
    "microbenchmark": microbenchmark.points,
    "fit": microbenchmark.fits,
    "profiler": profiler.profiler,
    "curve-ends": curve_table.curve_table,
    "latency": latency.latency,
    "quantization-layers": quantized.layers,
    "spreads": quantized.spreads,
    "checks": judged.checks,
}
"""The full tables by label, in the order of reading; one without any line is None."""

TOGETHER: dict[str, Callable[[Sequence[Scope]], Table | None]] = {
    "quantization": quantization.quantization,
}
"""The tables of all groups together, by label."""


def _full(scope: Scope) -> tuple[Table, ...]:
    found = (make(scope) for make in FULL.values())
    return tuple(table for table in found if table is not None)
