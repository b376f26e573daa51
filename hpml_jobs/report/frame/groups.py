"""Cells measured under the same conditions, and their table rows."""

from collections.abc import Mapping
from functools import cached_property

from hpml_jobs.checks import CheckResult, Level
from hpml_jobs.checks.result import Affected, Tier, worst_level
from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.conditions import Conditions
from hpml_jobs.core.record import Model, Record
from hpml_jobs.core.strategies import Baseline, Device, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame.cells import CellResult
from hpml_jobs.report.frame.rows import Place, Row, Setup, Work, baseline_setup, setup_order


class ConditionGroup(Value, frozen=True, kw_only=True, dict=True):
    """Cells that may share a table, and their numbers as rows.

    `measured_as` is empty where none of them has a record. A cell that ran under unknown conditions
    is in every group that it may belong to, and `uncertain` names it if there are several.
    `elsewhere` gives for a place the number of another group that measured it under other
    conditions; `checks` are the data-quality checks by slug; `baseline` is what the ratios of the
    rows are against.
    """

    requested: Conditions
    measured_as: Conditions
    cells: tuple[CellResult, ...]
    rows: tuple[Row, ...]
    uncertain: frozenset[str] = frozenset()
    elsewhere: Mapping[Place, int] = {}
    checks: Mapping[str, tuple[CheckResult, ...]] = {}
    baseline: Baseline = Baseline.SINGLE

    @cached_property
    def conditions(self) -> dict[str, str]:
        """All conditions on which the cells agree."""
        return dict(self.requested + self.measured_as)

    @cached_property
    def a_cell(self) -> Cell:
        """A representative cell: all cells agree in everything but their place."""
        return next(cell_result.cell for cell_result in self.cells if cell_result.cell is not None)

    @property
    def device(self) -> Device:
        """The device that the cells compute on."""
        return self.a_cell.device

    @property
    def imported(self) -> bool:
        """Whether the timings were imported."""
        return self.a_cell.protocol is Protocol.IMPORTED

    @cached_property
    def rate_units(self) -> tuple[str, ...]:
        """The units of imported rates that times were computed from; empty without rates."""
        records = (cell_result.record for cell_result in self.cells if cell_result.record)
        units = (record.imported.unit for record in records if record.imported)
        return tuple(dict.fromkeys(unit for unit in units if unit))

    @cached_property
    def work(self) -> Work | None:
        """What the times are of, where that is not an epoch."""
        return next((row.timing.work for row in self.timed if row.timing), None)

    @property
    def model(self) -> Model | None:
        """The trained model, from the first record that has it."""
        models = (cell_result.record.model for cell_result in self.cells if cell_result.record)
        return next((model for model in models if model), None)

    @cached_property
    def timed(self) -> tuple[Row, ...]:
        """The rows with numbers."""
        return tuple(row for row in self.rows if row.timing)

    @cached_property
    def _measured(self) -> dict[str, CellResult]:
        return {cell_result.slug: cell_result for cell_result in self.cells if cell_result.measured}

    def runs(self, row: Row) -> list[CellResult]:
        """Return the measured cells of a row, by seed and repeat."""
        return [self._measured[slug] for slug in row.cells if slug in self._measured]

    def records(self, row: Row) -> list[Record]:
        """Return the records of a row's runs."""
        return [
            cell_result.record for cell_result in self.runs(row) if cell_result.record is not None
        ]

    def counted_records(self, row: Row, affected: Affected) -> list[Record]:
        """Return the records that the row's numbers of this kind are medians of."""
        return [record for record in self.records(row) if row.counts(record.slug, affected)]

    def worst(self, row: Row, affected: Affected) -> Level:
        """Return the worst level of the checks that make these numbers of a row doubtful."""
        return worst_level(
            result
            for slug in row.cells
            for result in self.checks.get(slug, ())
            if result.tier is Tier.NUMBER
            and affected in result.affects
            and row.counts(slug, affected)
        )

    def doubts(self, row: Row, affected: Affected) -> bool:
        """Return whether a check makes these numbers of a row doubtful."""
        return self.worst(row, affected) is not Level.PASS

    def fails(self, row: Row, check: str) -> bool:
        """Return whether a run of a row fails a check of its time."""
        return any(
            result.check == check and result.level is Level.FAIL
            for slug in row.cells
            if row.counts(slug, Affected.TIME)
            for result in self.checks.get(slug, ())
        )

    def doubts_ratio(self, row: Row, reference: Row | None = None) -> bool:
        """Return whether a check makes a row's time doubtful, or that which it is compared with.

        That is by default the row that its ratios are against.
        """
        rows = (row, reference or self.reference(row))
        return any(self.doubts(of_ratio, Affected.TIME) for of_ratio in rows if of_ratio)

    @cached_property
    def _by_place(self) -> dict[Place, Row]:
        return {row.place: row for row in self.timed}

    @cached_property
    def main_path(self) -> str:
        """The training path that answers of one number are about: the plain one, or the first."""
        paths = [row.path for row in self.timed]
        return "" if "" in paths else next(iter(paths), "")

    def reference(self, row: Row) -> Row | None:
        """Return the row that a row's ratios are against; None where it has no ratios."""
        if row.reference is None:
            return None
        return self._by_place.get(Place(row.reference, row.batch_per_gpu))


class StrategyRows(Value, frozen=True, kw_only=True):
    """The rows of one strategy and its baseline: the setups and batches of Tables 1 to 3."""

    group: ConditionGroup
    strategy: Strategy
    setups: tuple[Setup, ...]
    batches: tuple[int, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows at these places."""
        return tuple(
            row
            for row in self.group.rows
            if row.setup in self.setups and row.batch_per_gpu in self.batches
        )

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
        if self.group.imported:
            return any(row.figures.compute_s for row in self.parallel_rows)
        slugs = {slug for row in self.parallel_rows for slug in row.cells}
        cells = (cell_result.cell for cell_result in self.group.cells if cell_result.slug in slugs)
        return any(cell.protocol is Protocol.FULL for cell in cells if cell)


def strategy_rows(group: ConditionGroup, strategy: Strategy) -> StrategyRows:
    """Return the rows of a group that belong to one strategy, with those of its baseline.

    With `baseline=smallest` the single-GPU row is shown only where it was requested.
    """
    rows = [row for row in group.rows if row.strategy is strategy]
    setups = {row.setup for row in rows}
    if group.baseline is Baseline.SINGLE or any(row.is_baseline for row in group.rows):
        setups |= {baseline_setup(path) for path in {setup.path for setup in setups}}
    return StrategyRows(
        group=group,
        strategy=strategy,
        setups=tuple(sorted(setups, key=setup_order)),
        batches=tuple(sorted({row.batch_per_gpu for row in rows})),
    )
