"""The rows of one strategy in Tables 1 to 3, and what these tables share."""

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Role, Step
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import (
    DASH,
    OOM,
    percent,
    seconds,
    three_digits,
)
from hpml_jobs.report.frame.table import (
    Column,
    Line,
    Number,
    Table,
    TableText,
    columns_of,
    line_from,
    texts_of,
)
from hpml_jobs.results.cells import Place, Setup
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row


class StrategyRows(Value, frozen=True, kw_only=True):
    """The rows of one strategy and its baseline: the setups and batches of Tables 1 to 3."""

    group: ConditionGroup
    strategy: Strategy
    setups: tuple[Setup, ...]
    batches: tuple[int, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows at these places."""
        rows = [row for row in self.group.rows if row.setup in self.setups]
        return tuple(row for row in rows if row.batch_per_gpu in self.batches)

    @property
    def parallel_setups(self) -> tuple[Setup, ...]:
        """Setups with more than one GPU: those that communicate."""
        return tuple(setup for setup in self.setups if setup.gpus > 1)

    @property
    def parallel_rows(self) -> tuple[Row, ...]:
        """The rows with more than one GPU."""
        return tuple(row for row in self.rows if row.gpus > 1)

    @property
    def places(self) -> set[Place]:
        """Every setup at every batch, requested or not."""
        return {Place(setup, batch) for setup in self.setups for batch in self.batches}

    @property
    def instrumented(self) -> bool:
        """Whether any cell may have separate times of computation and communication.

        Imported timings may have them; otherwise protocol=full measures them.
        """
        if any(row.figures.compute_s for row in self.parallel_rows):
            return True
        slugs = {slug for row in self.parallel_rows for slug in row.cells}
        return any(
            result.cell is not None and result.cell.protocol is Protocol.FULL
            for result in self.group.cells
            if result.slug in slugs
        )


def strategy_rows(group: ConditionGroup, strategy: Strategy) -> StrategyRows:
    """Return the rows of a group that belong to one strategy, with those of its baseline.

    Without a row on one GPU that was requested, rows may have another baseline.
    """
    rows = [row for row in group.rows if row.strategy is strategy]
    setups = {row.setup for row in rows}
    if not any(row.reference == row.setup for row in rows):
        setups |= {row.setup.baseline for row in rows}
    return StrategyRows(
        group=group,
        strategy=strategy,
        setups=tuple(sorted(setups, key=attrgetter("order"))),
        batches=tuple(sorted({row.batch_per_gpu for row in rows})),
    )


def _absences(
    group: ConditionGroup, rows: Sequence[Row], places: Collection[Place]
) -> list[str]:
    """Return a line for every cell at these places without a number, then for cells not requested.

    `rows` are those of the table.
    """
    timed = {row.place for row in rows if row.timing}
    requested = {row.place for row in rows}
    lines = []
    for result in group.cells:
        place = result.place
        if place is None or place not in places or result.measured:
            continue
        reason = f"{result.reason} [{result.slug}]"
        if result.slug in group.uncertain:
            reason += "; it is assigned to a group when it has a record"
        if place in timed:
            reason += "; the other runs are used"
        lines.append(f"{captions.cell_words(place, group.device)}: {reason}")
    reasons = []
    in_order = sorted(
        set(places) - requested,
        key=lambda at: (at.setup.order, at.batch_per_gpu),
    )
    for place in in_order:
        why = "not requested"
        if number := group.elsewhere.get(place):
            why = f"measured under other conditions (group {number})"
        reasons.append((why, place))
    return lines + captions.by_reason(reasons, group.device)


def dash_or_oom(row: Row) -> str:
    """Return the text for a missing number."""
    return OOM if row.timing is None and row.outcome is Outcome.OOM else DASH


def _speedup(row: Row) -> str | None:
    """Return a speedup with its likely range; the reference has none."""
    if row.pair is None or row.speedup is None:
        return None
    interval = row.pair.interval
    if interval is None:
        return "1" if row.speedup == 1 else three_digits(row.speedup)
    ends = f"[{three_digits(interval.low)}, {three_digits(interval.high)}]"
    return f"{three_digits(row.speedup)} {ends}"


class LabLine(NamedTuple):
    """The numbers of a row in Tables 1 to 3; those with `residual` are derived."""

    time_s: Annotated[Number, Column("Time(s)", seconds, doubt="time_doubtful")]
    speedup: Number
    speedup_and_range: Annotated[str | None, Column("Speedup", doubt="is_doubtful")]
    time_doubtful: bool
    speedup_doubtful: bool
    split_doubtful: bool
    bandwidth_doubtful: bool
    compute_s: Annotated[Number, Column("Compute", seconds, doubt="split_doubtful")]
    comm_s: Annotated[Number, Column("Comm", seconds, doubt="split_doubtful")]
    comm_exposed_s: Number
    compute_residual_s: Annotated[
        Number, Column("Compute", seconds, doubt="speedup_doubtful")
    ]
    comm_residual_s: Annotated[
        Number, Column("Comm", seconds, doubt="speedup_doubtful")
    ]
    gb_per_s: Annotated[
        Number, Column("GB/s", three_digits, doubt="bandwidth_doubtful")
    ]
    of_peak: Annotated[Number, Column("% of peak", percent, doubt="bandwidth_doubtful")]
    bus_residual_gb_per_s: Annotated[
        Number, Column("GB/s", three_digits, doubt="speedup_doubtful")
    ]
    is_doubtful: bool

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the line of a row; `is_doubtful`: the speedup, unless it is the reference's."""
        figures = row.figures
        residual = row.residual
        bandwidth = row.bandwidth
        doubts_speedup = row.speedup is not None and row.is_ratio_doubtful
        return line_from(
            cls,
            figures,
            row,
            time_s=row.values.epoch_s if row.values else None,
            time_doubtful=bool(row.timing) and Affected.TIME in row.doubts,
            speedup_and_range=_speedup(row),
            speedup_doubtful=doubts_speedup,
            split_doubtful=Affected.SPLIT in row.doubts,
            bandwidth_doubtful=Affected.BANDWIDTH in row.doubts,
            compute_residual_s=residual.compute_s if residual else None,
            comm_residual_s=residual.comm_s if residual else None,
            gb_per_s=bandwidth.lab_gb_per_s if bandwidth else None,
            of_peak=bandwidth.of_peak if bandwidth else None,
            bus_residual_gb_per_s=residual.bus_gb_per_s if residual else None,
            is_doubtful=doubts_speedup and row.reference != row.setup,
        )


def strategy_table(
    selection: StrategyRows,
    text: TableText,
    setups: Iterable[Setup],
    names: Collection[str],
    notes: Iterable[str],
) -> Table:
    """Return a table of a strategy: a line per setup, and for every batch a block of columns.

    `names` are those of the columns. A place that was not requested shows the dash.
    """
    group = selection.group
    strategy = selection.strategy.value
    columns = columns_of(LabLine)
    shown = {name: columns[name] for name in names}

    def texts(row: Row) -> tuple[str, ...]:
        first, *rest = texts_of(shown, LabLine.of(row))
        return (dash_or_oom(row) if first == DASH else first), *rest

    at = {row.place: texts(row) for row in selection.rows}
    unit = captions.unit(group.device)
    return Table(
        label=f"{text.label}-{strategy}",
        title=f"{text.title}, {strategy}",
        corner=text.corner,
        columns=tuple(
            column._replace(under=f"batch {batch} per {unit}", batch=batch)
            if len(shown) > 1
            else Column(f"batch {batch} per {unit}")
            for batch in selection.batches
            for column in shown.values()
        ),
        lines=tuple(
            Line(
                captions.row_label(setup, group.device),
                tuple(
                    column_text
                    for batch in selection.batches
                    for column_text in at.get(Place(setup, batch), (DASH,) * len(shown))
                ),
            )
            for setup in setups
        ),
        caption=text.caption,
        setting=captions.setting(group),
        notes=tuple(notes),
    )


def absent(
    group: ConditionGroup,
    rows: Sequence[Row],
    places: set[Place],
    roles: Collection[Role | Step] = (Role.TIMED,),
) -> list[str]:
    """Return notes on missing numbers and on runs left out for these roles, then warnings."""
    return [
        *_absences(group, rows, places),
        *captions.left_out_runs(rows, group.device, roles),
        *(
            f"{result.slug}: {result.warning}"
            for result in group.cells
            if result.warning and result.place in places
        ),
    ]
