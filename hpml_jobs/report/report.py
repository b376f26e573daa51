"""The report of a study: its cells in groups of equal conditions, each with its tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.conditions import CODE, UNRECORDED
from hpml_jobs.core.strategies import Baseline, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.predict.forecast import Forecast
from hpml_jobs.report import largest_batch, sharding, warnings
from hpml_jobs.report import warnings as check_tables
from hpml_jobs.report.choose.rules import Choice, Wish, choose
from hpml_jobs.report.choose.table import choice_table
from hpml_jobs.report.communication import bandwidth, messages, microbenchmark, phases
from hpml_jobs.report.communication import table as communication
from hpml_jobs.report.cost import table as cost_table
from hpml_jobs.report.frame import captions, references
from hpml_jobs.report.frame.cells import CellResult, cell_results
from hpml_jobs.report.frame.groups import ConditionGroup, charged_gpus, complete_groups, differing
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.lab import residual
from hpml_jobs.report.lab import tables as lab
from hpml_jobs.report.lab.selection import StrategyRows, strategy_rows
from hpml_jobs.report.predict import table as predictions
from hpml_jobs.report.predict.rules import forecast
from hpml_jobs.report.profiler import table as profiler
from hpml_jobs.report.quantization import layers
from hpml_jobs.report.quantization import table as quantization
from hpml_jobs.report.repeats import strategies
from hpml_jobs.report.repeats import table as repeats
from hpml_jobs.report.scaling import strong
from hpml_jobs.report.scaling import table as scaling
from hpml_jobs.report.training import curves, quality, replicas, shuffling
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.snapshot import FolderSnapshot


class ReportOptions(NamedTuple):
    """What a report takes from outside the records.

    `cluster` says which cells are charged whole nodes, `commands` submitted the study, `baseline`
    is what speedups and efficiencies are against.
    """

    cluster: Cluster | None = None
    commands: Sequence[str] = ()
    baseline: Baseline = Baseline.SINGLE


DEFAULTS = ReportOptions()


class StrategyTables(Value, frozen=True, kw_only=True):
    """Tables 1, 2 and 3 of one strategy, measured and by residual, and the rows in them."""

    strategy: Strategy
    rows: tuple[Row, ...]
    tables: tuple[Table, ...]


class ReportGroup(Value, frozen=True, kw_only=True):
    """The tables of one condition group; `differences` distinguish it from the other groups.

    `usability` says which tables can be used; `suggestion` names `baseline=smallest` where ratios
    are missing without it; `choice` is None if no cell has a number; `forecast` is of the next
    two doublings of GPUs. `is_replaced`: nothing came of its cells, and later ones of other code
    have numbers.
    """

    number: int
    title: str
    differences: str
    source: ConditionGroup
    usability: str
    suggestion: str
    choice: Choice | None
    is_replaced: bool
    forecast: Forecast
    q1: Table | None
    strategies: tuple[StrategyTables, ...]
    full: tuple[Table, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """All its tables in reading order."""
        q1 = (self.q1,) if self.q1 else ()
        return (
            *q1,
            *(table for strategy in self.strategies for table in strategy.tables),
            *self.full,
        )

    @property
    def setting(self) -> str:
        """The workload and the hardware in one line."""
        return captions.setting(self.source)


class Report(Value, frozen=True, kw_only=True):
    """A study's tables.

    `differences` are the conditions in which groups differ; `unplaced` cells are in no table.
    `tables` have rows of all groups: their numbers do not depend on the hardware; `commands`
    submitted the cells, the latest last.
    """

    study: str
    differences: tuple[str, ...]
    groups: tuple[ReportGroup, ...]
    tables: tuple[Table, ...]
    unplaced: tuple[CellResult, ...]
    commands: tuple[str, ...] = ()

    @property
    def several(self) -> bool:
        """Whether the report has several groups, which may not share a table."""
        return len(self.groups) > 1

    @property
    def sources(self) -> list[ConditionGroup]:
        """The cells of its groups."""
        return [group.source for group in self.groups]

    @property
    def first_screen(self) -> "Report":
        """The report without cells of replaced code, groups with numbers first."""
        kept = (group for group in self.groups if not group.is_replaced)
        groups = sorted(kept, key=lambda group: not group.source.timed)
        return msgspec.structs.replace(self, groups=tuple(groups))


def merge(study: str, cells: Sequence[CellResult], options: ReportOptions = DEFAULTS) -> Report:
    """Return all cells of a study in tables; cells that cannot be read are in none."""
    groups = complete_groups(cells, options.baseline)
    differences = differing([group.conditions for group in groups])
    together = (make(groups) for make in TOGETHER.values())
    return Report(
        study=study,
        differences=tuple(f"{what}: {' | '.join(values)}" for what, values in differences.items()),
        groups=tuple(
            _report_group(
                study,
                number,
                group,
                _differences(number, differences),
                options,
                _is_replaced(group, groups),
            )
            for number, group in enumerate(groups, start=1)
        ),
        tables=tuple(table for table in together if table is not None),
        unplaced=tuple(result for result in cells if result.cell is None),
        commands=tuple(options.commands),
    )


def _is_replaced(group: ConditionGroup, groups: Sequence[ConditionGroup]) -> bool:
    """Return whether no cell has a record or may get one, and later ones of other code have."""
    if any(result.record or result.outcome.may_run for result in group.cells):
        return False
    began = _latest_began(group)
    return began > 0 and any(
        other.timed
        and other.kind == group.kind
        and _code(other) != _code(group)
        and _latest_began(other) > began
        for other in groups
    )


def _latest_began(group: ConditionGroup) -> float:
    """Return when the latest attempt of its cells began; 0 if that is not known."""
    return max((result.began or 0.0 for result in group.cells), default=0.0)


def _code(group: ConditionGroup) -> dict[str, str]:
    return {name: value for name, value in group.requested if name.startswith(CODE)}


def _differences(number: int, differences: Mapping[str, Sequence[str]]) -> str:
    values = {what: values[number - 1] for what, values in differences.items()}
    return ", ".join(f"{what} {values[what]}" for what in values if values[what] != UNRECORDED)


def _report_group(  # noqa: PLR0913, PLR0917  (what is known of a group)
    study: str,
    number: int,
    group: ConditionGroup,
    differences: str,
    options: ReportOptions,
    is_replaced: bool,
) -> ReportGroup:
    cell, cluster = group.a_cell, options.cluster
    parallel = {row.strategy for row in group.rows if not row.is_baseline}
    hardware = captions.hardware(group) or cell.gpu_type or cell.device.value
    args = f" ({cell.workload.args_text})" if cell.workload.args else ""
    choice = choose(group, Wish(), cluster)
    made = {label: make(group) for label, make in FULL.items()}
    made[CHOICE] = choice_table(group, choice, study) if choice else None
    outlook = forecast(group, cluster, options.commands)
    if outlook.predictions:
        made[PREDICTIONS] = predictions.predictions(group, outlook, cluster)
    made[cost_table.LABEL] = cost_table.cost(group, charged_gpus(group, cluster))
    full = [table for label in LABELS if (table := made.get(label)) is not None]
    without_remarks = ReportGroup(
        number=number,
        title=f"{cell.workload.name}{args} on {hardware}",
        differences=differences,
        source=group,
        usability=warnings.usability(group),
        suggestion=references.suggestion(group),
        choice=choice,
        is_replaced=is_replaced,
        forecast=outlook,
        q1=lab.q1(group) if any(row.is_baseline for row in group.rows) else None,
        strategies=tuple(
            _strategy_tables(strategy_rows(group, strategy))
            for strategy in Strategy
            if strategy in parallel
        ),
        full=tuple(full),
    )
    return _with_remarks(without_remarks)


def _with_remarks(group: ReportGroup) -> ReportGroup:
    """Return a group with each remark under the first table that it affects.

    Where the group has no such table, the remark is listed with the checks.
    """
    under: dict[str, list[str]] = {}
    labels = [table.label for table in group.tables]
    for affected, text in warnings.remarks(group.source):
        beginnings = (*warnings.UNDER[affected], CHECKS)
        home = next(
            label for beginning in beginnings for label in labels if label.startswith(beginning)
        )
        under.setdefault(home, []).append(text)

    def remarked(table: Table) -> Table:
        added = under.get(table.label, ())
        return msgspec.structs.replace(table, notes=(*table.notes, *added)) if added else table

    return msgspec.structs.replace(
        group,
        q1=remarked(group.q1) if group.q1 else None,
        strategies=tuple(
            msgspec.structs.replace(s, tables=tuple(map(remarked, s.tables)))
            for s in group.strategies
        ),
        full=tuple(map(remarked, group.full)),
    )


def _strategy_tables(selection: StrategyRows) -> StrategyTables:
    tables = [lab.table1(selection)]
    if selection.instrumented:
        tables.append(lab.table2(selection))
    has_residual = _has_residual(selection)
    if has_residual:
        tables.append(residual.table2r(selection))
    if selection.instrumented and not selection.group.imported:
        tables.append(lab.table3(selection))
    if has_residual and selection.group.work is None:  # the bytes of other work are not known
        tables.append(residual.table3r(selection))
    return StrategyTables(
        strategy=selection.strategy,
        rows=selection.rows,
        tables=tuple(table for table in tables if table.lines),
    )


def _has_residual(selection: StrategyRows) -> bool:
    """Return whether Tables 2r and 3r are shown: with `baseline=smallest` not if all are dashes."""
    is_single = selection.group.baseline is Baseline.SINGLE
    return is_single or any(row.residual for row in selection.rows)


CHECKS = "checks"

FULL: dict[str, Callable[[ConditionGroup], Table | None]] = {
    "scaling": scaling.scaling,
    "strong": strong.strong,
    "largest": largest_batch.largest,
    "repeats": repeats.repeats,
    "compared": strategies.compared,
    "sharding": sharding.sharding,
    "paths": sharding.training_paths,
    "table4": quality.table4,
    "evaluation": quality.evaluation,
    "shuffling": shuffling.shuffling,
    "communication": communication.communication,
    "repeats-measured": repeats.measured,
    "bandwidth": bandwidth.bandwidth,
    "phases": phases.phases,
    "messages": messages.messages,
    "replicas": replicas.replicas,
    "microbenchmark": microbenchmark.points,
    "fit": microbenchmark.fits,
    "profiler": profiler.profiler,
    "curve-ends": curves.curve_table,
    "latency": layers.latency,
    "quantization-layers": layers.layers,
    "spreads": layers.spreads,
    CHECKS: check_tables.checks,
}
"""The full tables by label, in the order of reading; a table without rows is None."""

CHOICE, PREDICTIONS = "choice", "predictions"

LABELS = (CHOICE, PREDICTIONS, cost_table.LABEL, *FULL)
"""The labels of all full tables, in the order of reading."""

TOGETHER: dict[str, Callable[[Sequence[ConditionGroup]], Table | None]] = {
    "quantization": quantization.quantization,
}
"""The tables of all groups together, by label."""


def make_report(
    study: str,
    snapshots: Iterable[FolderSnapshot],
    states: Iterable[CellState],
    options: ReportOptions = DEFAULTS,
) -> Report:
    """Return the report of a study: `snapshots` hold the records, `states` why one is missing."""
    by_slug = {state.slug: state for state in states}
    return merge(study, cell_results(snapshots, by_slug), options)
