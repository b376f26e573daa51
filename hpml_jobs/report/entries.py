"""The numbers of one place in the tables: medians over its runs, then speedup and residual."""

from collections.abc import Collection, Iterable, Sequence
from statistics import median

import msgspec

from hpml_jobs import formulas
from hpml_jobs.cell import Cell, Settled, Strategy
from hpml_jobs.record import Model, Record
from hpml_jobs.report.found import Found
from hpml_jobs.slurm import Outcome

Row = tuple[int, int, Strategy]
"""GPUs, nodes, strategy: a row of a table."""


class Timing(Settled, frozen=True, kw_only=True):
    """Medians over the runs of one place: seconds per epoch, with and without data loading."""

    runs: int
    epoch_s: float
    train_s: float
    iterations: int
    gradient_bytes: int
    loader_workers_total: int


class Residual(Settled, frozen=True, kw_only=True):
    """The lab's estimate, seconds per epoch: `comm_s` beyond single-GPU iterations, the rest.

    `bus_gb_per_s` (GB = 1e9 bytes) is None where `comm_s` is not above zero.
    """

    compute_s: float
    comm_s: float
    bus_gb_per_s: float | None


class Entry(Settled, frozen=True, kw_only=True):
    """N GPUs with one strategy at one batch per GPU; `cells` are the cells it is made of.

    Without a valid record there is no timing, without a baseline at the same batch no speedup and
    no residual.
    """

    strategy: Strategy
    gpus: int
    nodes: int
    batch_per_gpu: int
    outcome: Outcome
    timing: Timing | None = None
    speedup: float | None = None
    residual: Residual | None = None
    cells: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        """The row it stands in."""
        return (self.gpus, self.nodes, self.strategy)

    @property
    def is_baseline(self) -> bool:
        """Whether it is what others are compared with: the plain loop on one GPU."""
        return self.strategy is Strategy.SINGLE


def row_of(cell: Cell) -> Row:
    """The row a cell stands in."""
    return (cell.gpus, cell.nodes, cell.strategy)


def row_order(row: Row) -> tuple[int, int, int]:
    """Rows stand by GPUs, then nodes, then strategy (`single` first)."""
    gpus, nodes, strategy = row
    return gpus, nodes, list(Strategy).index(strategy)


def place_order(found: Found) -> tuple[object, ...]:
    """Cells stand by row, batch and repeat; those of which nothing is known stand first."""
    cell = found.cell
    if cell is None:
        return (found.slug,)
    return (row_order(row_of(cell)), cell.batch, cell.repeat, found.slug)


def entries(cells: Iterable[Found], uncertain: Collection[str] = ()) -> list[Entry]:
    """An entry for every place that was asked for, by row and batch.

    `uncertain` cells may belong to other conditions: nothing is claimed of their outcome.
    """
    places: dict[tuple[Row, int], list[Found]] = {}
    for found in cells:
        if found.cell is not None:
            places.setdefault((row_of(found.cell), found.cell.batch), []).append(found)
    timed = [_timed(row, batch, runs, uncertain) for (row, batch), runs in places.items()]
    baseline = {entry.batch_per_gpu: entry.timing for entry in timed if entry.is_baseline}
    derived = (_derived(entry, baseline.get(entry.batch_per_gpu)) for entry in timed)
    return sorted(derived, key=lambda entry: (row_order(entry.row), entry.batch_per_gpu))


def _timed(row: Row, batch: int, runs: Sequence[Found], uncertain: Collection[str]) -> Entry:
    """One place with its timing; without any, the outcome that says most."""
    timing = _timing([run.record for run in runs if run.record is not None and run.measured])
    outcomes = [Outcome.UNKNOWN if run.slug in uncertain else run.outcome for run in runs]
    without = Outcome.OOM if Outcome.OOM in outcomes else outcomes[0]
    gpus, nodes, strategy = row
    return Entry(
        strategy=strategy,
        gpus=gpus,
        nodes=nodes,
        batch_per_gpu=batch,
        outcome=Outcome.OK if timing else without,
        timing=timing,
        cells=tuple(run.slug for run in runs),
    )


def _timing(records: Sequence[Record]) -> Timing | None:
    model = next((record.model for record in records if record.model is not None), None)
    if model is None:
        return None
    return Timing(
        runs=len(records),
        epoch_s=median(record.epoch_s for record in records),
        train_s=median(record.train_s for record in records),
        iterations=records[0].slowest.timed.iterations,
        gradient_bytes=model.gradient_bytes,
        loader_workers_total=sum(rank.loader_workers for rank in records[0].ranks),
    )


def _derived(entry: Entry, baseline: Timing | None) -> Entry:
    """With speedup, and on more than one GPU the residual: medians first, then the ratio."""
    if entry.timing is None or baseline is None:
        return entry
    return msgspec.structs.replace(
        entry,
        speedup=formulas.speedup(baseline.epoch_s, entry.timing.epoch_s),
        residual=_residual(entry.timing, baseline, entry.gpus) if entry.gpus > 1 else None,
    )


def _residual(timing: Timing, baseline: Timing, gpus: int) -> Residual:
    comm_s = formulas.residual_communication_s(
        timing.train_s, timing.iterations, baseline.train_s, baseline.iterations
    )
    sent = timing.iterations * timing.gradient_bytes
    return Residual(
        compute_s=timing.train_s - comm_s,
        comm_s=comm_s,
        bus_gb_per_s=formulas.bus_gb_per_s(sent, comm_s, gpus) if comm_s > 0 else None,
    )


def model_of(cells: Iterable[Found]) -> Model | None:
    """What was really trained, from the first record that tells."""
    return next(
        (found.record.model for found in cells if found.record and found.record.model), None
    )
