"""What tables are made from: a group of like cells, and within it one strategy's part."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from hpml_jobs.checks import CheckResult, Level
from hpml_jobs.core.cell import Device, Protocol, Strategy
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import Value
from hpml_jobs.report.merge.entries import BASELINE_ROW, Entry, Place, Row, row_order
from hpml_jobs.report.merge.grouping import ConditionGroup


class Scope(Value, frozen=True, kw_only=True, dict=True):
    """What the tables of one group are made from.

    `elsewhere` tells in which other group of unlike records a place has a number; `setting` is
    the line of a caption that is the same for all of them; `checks` are those of its cells.
    """

    alike: ConditionGroup
    device: Device
    entries: tuple[Entry, ...]
    setting: str
    elsewhere: Mapping[Place, int]
    checks: Mapping[str, tuple[CheckResult, ...]] = {}

    @cached_property
    def timed(self) -> tuple[Entry, ...]:
        """The entries with numbers."""
        return tuple(entry for entry in self.entries if entry.timing)

    @property
    def imported(self) -> bool:
        """Whether its timings come from elsewhere; a group's cells agree in that."""
        cells = (found.cell for found in self.alike.cells)
        return any(cell.protocol is Protocol.IMPORTED for cell in cells if cell)

    @cached_property
    def _measured(self) -> dict[str, Record]:
        """By slug, the records with numbers."""
        cells = (found for found in self.alike.cells if found.measured)
        return {found.slug: found.record for found in cells if found.record is not None}

    def records(self, entry: Entry) -> list[Record]:
        """The records an entry is made of, by seed and repeat."""
        return [self._measured[slug] for slug in entry.cells if slug in self._measured]

    def verdicts_of(self, entry: Entry, level: Level) -> Iterator[tuple[str, CheckResult]]:
        """Verdicts of one level on an entry's cells, with the cell's slug."""
        for slug in entry.cells:
            for result in self.checks.get(slug, ()):
                if result.level is level:
                    yield slug, result

    def failed(self, entry: Entry) -> bool:
        """Whether one of its runs fails a check."""
        return any(self.verdicts_of(entry, Level.FAIL))

    @cached_property
    def _baselines(self) -> dict[int, Entry]:
        """The baselines with numbers, by batch."""
        return {entry.batch_per_gpu: entry for entry in self.timed if entry.is_baseline}

    def baseline(self, batch: int) -> Entry | None:
        """The single-GPU entry at a batch, if it has numbers."""
        return self._baselines.get(batch)


class Part(Value, frozen=True, kw_only=True):
    """One strategy beside the baseline: rows and batches found, and the entry at each place."""

    scope: Scope
    strategy: Strategy
    rows: tuple[Row, ...]
    batches: tuple[int, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries at these places."""
        found = self.scope.entries
        return tuple(e for e in found if e.row in self.rows and e.batch_per_gpu in self.batches)

    @property
    def parallel_rows(self) -> tuple[Row, ...]:
        """Rows with more than one GPU: those that communicate."""
        return tuple(row for row in self.rows if row.gpus > 1)

    @property
    def parallel_entries(self) -> tuple[Entry, ...]:
        """The entries of these rows."""
        return tuple(entry for entry in self.entries if entry.gpus > 1)

    @property
    def places(self) -> set[Place]:
        """Every row at every batch, asked for or not."""
        return {(row, batch) for row in self.rows for batch in self.batches}

    @property
    def instrumented(self) -> bool:
        """Whether computation and communication may be known of any of its cells.

        Where they come from elsewhere, they were told; otherwise protocol=full measures them.
        """
        if self.scope.imported:
            return any(entry.values and entry.values.compute_s for entry in self.parallel_entries)
        slugs = {slug for entry in self.parallel_entries for slug in entry.cells}
        cells = (found.cell for found in self.scope.alike.cells if found.slug in slugs)
        return any(cell.protocol is Protocol.FULL for cell in cells if cell)


def part(scope: Scope, strategy: Strategy) -> Part:
    """The part of a group that belongs to one strategy."""
    own = [entry for entry in scope.entries if entry.strategy is strategy]
    return Part(
        scope=scope,
        strategy=strategy,
        rows=tuple(sorted({BASELINE_ROW, *(entry.row for entry in own)}, key=row_order)),
        batches=tuple(sorted({entry.batch_per_gpu for entry in own})),
    )
