"""The report of a study: its cells in groups of equal conditions, each with its tables."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.text import counted, printable
from hpml_jobs.core.value import Value
from hpml_jobs.report import warnings
from hpml_jobs.report.choice import Candidate, Wish, asked, candidates_of, choice_table
from hpml_jobs.report.communication import (
    communication,
    messages,
    phases,
    phases_picture,
)
from hpml_jobs.report.frame import captions, picture
from hpml_jobs.report.frame.picture import Picture
from hpml_jobs.report.frame.table import Sheet, Table
from hpml_jobs.report.lab.replicas import replicas, shuffling
from hpml_jobs.report.lab.tables import StrategyTables, q1, strategy_tables
from hpml_jobs.report.quantization import histograms, quantization, spreads
from hpml_jobs.report.scaling.gap import gap_table, waterfall
from hpml_jobs.report.scaling.sizes import scaling, speedup, strong_table
from hpml_jobs.report.training import iterations, loss_picture, table4
from hpml_jobs.results.cells import CellResult, Place, cell_results
from hpml_jobs.results.checks.study import checked_groups
from hpml_jobs.results.conditions import CODE, SCRIPT, TIMING, UNRECORDED
from hpml_jobs.results.gap.parts import Gap
from hpml_jobs.results.groups import ConditionGroup, differing
from hpml_jobs.study.snapshot import CellState, FolderSnapshot
from hpml_jobs.study.study import keys_of


class ReportOptions(NamedTuple):
    """What a report takes from outside the records.

    `cluster` says which cells are charged whole nodes, `commands` submitted the study, `wish` is
    what a cell to ask for must meet.
    """

    cluster: Cluster | None = None
    commands: Sequence[str] = ()
    wish: Wish = Wish()


DEFAULTS = ReportOptions()


class ReportGroup(Value, frozen=True, kw_only=True):
    """The tables of one condition group; `differences` distinguish it from the other groups.

    `name` is the shortest of them, in a list of groups.

    `candidates` are all cells with a number, the fastest first, and `asked` is the one that the
    `wish` asks for.
    `is_replaced`: nothing came of its cells, and later ones of other code have numbers. `sheets`
    are numbers for programs, by label.
    """

    number: int
    name: str
    differences: str
    source: ConditionGroup
    wish: Wish
    candidates: tuple[Candidate, ...]
    asked: Candidate | None
    is_replaced: bool
    q1: Table | None
    strategies: tuple[StrategyTables, ...]
    full: tuple[Table, ...]
    sheets: Mapping[str, Sheet]

    @property
    def tables(self) -> tuple[Table, ...]:
        """All its tables in reading order."""
        return (*self.lab, *self.full)

    @property
    def lab(self) -> list[Table]:
        """Those of the lab: Q1, and of each strategy Tables 1 to 3."""
        first = [self.q1] if self.q1 else []
        of_strategies = [strategy.tables for strategy in self.strategies]
        return [*first, *chain.from_iterable(of_strategies)]

    @property
    def main_table(self) -> Table | None:
        """That of the answer: by batch and size, by global batch, or of one GPU by batch."""
        series = self.source.series
        if series and series.is_global:
            return strong_table(self.source)
        strategy = series.largest.parallel.strategy if series else None
        if self.q1 and all(cell.row.is_baseline for cell in self.candidates):
            return self.q1 if self.candidates else None
        of_strategies = (
            tables.tables[0]
            for tables in self.strategies
            if strategy in (None, tables.strategy)
        )
        return next(of_strategies, None)

    @property
    def main_gaps(self) -> dict[Place, Gap]:
        """The gaps of the largest size of the answer and of the cell that is asked for."""
        rows = [self.source.series.largest.parallel] if self.source.series else []
        rows += [self.asked.row] if self.asked else []
        places = [row.place for row in rows]
        return {
            place: self.source.gaps[place]
            for place in places
            if place in self.source.gaps
        }

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
    def keys(self) -> list[dict[str, str]]:
        """The keys of each submission, as they were typed."""
        return [*map(keys_of, self.commands)]

    @property
    def is_of_lab(self) -> bool:
        """Whether its page answers the questions of the lab."""
        return any(keys.get("grid") in ("lab", "hw5") for keys in self.keys)

    @property
    def measured_again(self) -> str:
        """How many cells are pending or running, in words; empty if none."""
        cells = [r for group in self.groups for r in group.source.cells]
        number = sum(result.is_active for result in cells)
        return f"{number} of {counted(len(cells), 'cell')}" if number else ""

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
        """The report without replaced code, the group with the most plain numbers first."""
        kept = [group for group in self.groups if not group.is_replaced]
        # groups of other code share a number: the latest is first
        rows = Counter[str]()
        codes = {group.number: str(group.source.without_code) for group in kept}
        for group in kept:
            plain = [row for row in group.source.timed if row.setup.is_plain]
            rows[codes[group.number]] += len(plain)
        groups = sorted(
            kept,
            key=lambda group: (not group.candidates, -rows[codes[group.number]]),
        )
        return msgspec.structs.replace(self, groups=tuple(groups))


def make_report(
    study: str,
    snapshots: Iterable[FolderSnapshot],
    states: Iterable[CellState],
    options: ReportOptions = DEFAULTS,
) -> Report:
    """Return all cells of a study in tables; cells that cannot be read are in none.

    `snapshots` hold the records, `states` why one is missing.
    """
    cells = cell_results(snapshots, {state.slug: state for state in states})
    checked = checked_groups(cells)
    differences = differing([group.conditions for group in checked])
    groups = [
        msgspec.structs.replace(group, name=printable(_name(number, differences)))
        for number, group in enumerate(checked, start=1)
    ]
    together = quantization(groups)
    return Report(
        study=study,
        differences=tuple(
            f"{condition}: {' | '.join(values)}"
            for condition, values in differences.items()
        ),
        groups=tuple(
            _report_group(
                number,
                group,
                differences,
                options,
                _is_replaced(group, groups),
            )
            for number, group in enumerate(groups, start=1)
        ),
        tables=(together,) if together else (),
        unplaced=tuple(result for result in cells if result.cell is None),
        commands=tuple(options.commands),
    )


def _is_replaced(group: ConditionGroup, groups: Sequence[ConditionGroup]) -> bool:
    """Return whether none of its cells may run, and later ones of other code have its numbers."""
    if any(result.outcome.may_run for result in group.cells):
        return False
    began = group.latest_began
    return began > 0 and any(
        _replaces(other, group) and other.latest_began > began for other in groups
    )


def _replaces(later: ConditionGroup, group: ConditionGroup) -> bool:
    """Return whether a group has other code, and numbers of the same cells; it must be later.

    Where nothing came of the earlier cells, other arguments of a script are other code.
    """
    if _code(later) == _code(group) or later.kind != group.kind:
        return False
    if not group.timed:
        return bool(later.timed)
    is_same = later.without_code == group.without_code
    places = {row.place for row in group.timed}
    return is_same and places <= {row.place for row in later.timed}


def _code(group: ConditionGroup) -> dict[str, str]:
    requested = dict(group.requested)
    names = [name for name in requested if name == SCRIPT or name.startswith(CODE)]
    return {name: requested[name] for name in names}


def _name(number: int, differences: Mapping[str, Sequence[str]]) -> str:
    """Return the values of the conditions that differ most, as many as tell a group apart."""
    parts: list[str] = []
    alike: set[int] = set()
    most_first = sorted(differences, key=lambda what: -len({*differences[what]}))
    for what in most_first:
        values = differences[what]
        value = values[number - 1]
        same = {n for n, other in enumerate(values) if other == value}
        if parts and alike <= same:
            continue
        alike = alike & same if parts else same
        parts.append(_words(what, value))
        if len(alike) == 1:
            break
    return ", ".join(parts)


def _words(what: str, value: str) -> str:
    """Return a condition in a name: `digits_cnn`, `5 epochs`, `timing runs`, `images 512`."""
    if what == "epochs":
        return "timing runs" if value == TIMING else f"{value} epochs"
    return value if what in NAMES else f"{what} {value}"


NAMES = ("workload", "model")
"""Conditions whose values are names."""


def _differences(number: int, differences: Mapping[str, Sequence[str]]) -> str:
    texts = []
    for what, values in differences.items():
        value = values[number - 1]
        if value != UNRECORDED:
            texts.append(f"{what} {value}")
    return ", ".join(texts)


def _report_group(
    number: int,
    group: ConditionGroup,
    differences: Mapping[str, Sequence[str]],
    options: ReportOptions,
    is_replaced: bool,
) -> ReportGroup:
    if options.wish.epochs is not None and group.work is not None:
        raise UsageError(
            f"epochs={options.wish.epochs}: {group.a_cell.workload.name} was measured by a "
            "window, which does not tell the samples of an epoch: leave epochs= out"
        )
    wish = options.wish
    candidates = candidates_of(group, options.cluster)
    cell = asked(wish, candidates, group.series)
    choice = choice_table(group, candidates, wish, cell)
    others = [make(group) for make in FULL.values()]
    has_baseline = any(row.is_baseline for row in group.rows)
    age = " (older version)" if is_replaced else ""
    return ReportGroup(
        number=number,
        name=group.name + age,
        differences=_differences(number, differences),
        source=group,
        wish=wish,
        candidates=tuple(candidates),
        asked=cell,
        is_replaced=is_replaced,
        q1=q1(group) if has_baseline else None,
        strategies=strategy_tables(group),
        full=tuple(filter(None, [choice, *others])),
        sheets={
            label: sheet for label, make in SHEETS.items() if (sheet := make(group))
        },
    )


CHECKS = "checks"

FULL: dict[str, Callable[[ConditionGroup], Table | None]] = {
    "gap": gap_table,
    "scaling": scaling,
    "iterations": iterations,
    "table4": table4,
    "shuffling": shuffling,
    "communication": communication,
    "phases": phases,
    "replicas": replicas,
    CHECKS: warnings.checks,
}
"""The full tables after that of the choice, by label, in the order of reading; a table without
rows is None."""

SHEETS: dict[str, Callable[[ConditionGroup], Sheet | None]] = {
    "messages": messages,
    "spreads": spreads,
}
"""Numbers that only programs read, by label: as CSV and JSON, without words."""

LABELS = ("choice", *FULL, *SHEETS, "quantization")
"""The labels of all of them, and of the table of all groups together."""


def _gap(report: Report) -> Picture | None:
    return waterfall(
        [
            (group.source, place, gap)
            for group in report.groups
            for place, gap in group.main_gaps.items()
        ]
    )


PLOTS: dict[str, Callable[[Report], Picture | None]] = {
    "speedup": lambda report: speedup(report.sources),
    "gap": _gap,
    "phases": lambda report: phases_picture(report.sources),
    "loss": lambda report: loss_picture(report.sources),
    "histograms": lambda report: histograms(report.sources),
}
"""The pictures by name, in the order of reading; a picture without data is None."""


def pictures(report: Report) -> dict[str, Picture]:
    """Return the pictures for which the report has data, by name; they are not rendered yet."""
    with picture.applied():
        drawn = {name: draw(report) for name, draw in PLOTS.items()}
    return {name: shown._replace(name=name) for name, shown in drawn.items() if shown}
