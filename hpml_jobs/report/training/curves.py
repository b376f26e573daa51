"""Curves of training, and the sheet of their ends."""

import math
from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self, TypeVar

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Epoch, Role
from hpml_jobs.core.place import Place
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import CLOCKS_APART, SLACK_S
from hpml_jobs.report.frame import captions, learning
from hpml_jobs.report.frame.arrays import NoArraysError, read_arrays
from hpml_jobs.report.frame.builder import (
    Number,
    Shown,
    TableText,
    columns_of,
    line_table,
    row_sheet,
)
from hpml_jobs.report.frame.captions import by_reason
from hpml_jobs.report.frame.numbers import loss, milliseconds
from hpml_jobs.report.frame.table import Sheet, Table
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

if TYPE_CHECKING:
    from hpml_jobs.report.frame.arrays import Values

T = TypeVar("T")

NAMES = ("curve_loss", "curve_step_s", "curve_lr")
"""Arrays of (ranks, iterations of all epochs of training, in order)."""

LAST_STALL = "last_stall_s"
"""Array of (ranks): the time after the last iteration of the timed epoch; since schema 5."""


class NoCurveError(HpmlError):
    """A run without curves; the message says why."""


class RankCurves(NamedTuple):
    """One run by rank (rows) and iteration (columns), over all epochs of training."""

    loss: "Values"
    step_s: "Values"
    lr: "Values"
    epochs: tuple[Epoch, ...]

    @property
    def starts(self) -> list[int]:
        """The iteration at which each epoch begins."""
        return [sum(e.iterations for e in self.epochs[:n]) for n in range(len(self.epochs))]


class Curve(NamedTuple):
    """One run by iteration, over all epochs of training: mean loss, most seconds of a rank."""

    loss: "Values"
    step_s: "Values"
    lr: "Values"
    epochs: tuple[Epoch, ...]
    starts: list[int]


def has_curve(result: CellResult) -> bool:
    """Return whether the run has a file of curves; the losses of a script are not visible."""
    if not result.measured or (result.cell and result.cell.script):
        return False
    return result.iterations is not None and result.iterations.is_file()


def read(result: CellResult) -> Curve:
    """Read the curves of a cell's run.

    Raises:
        NoCurveError: there are none, or they are not those of its record.
    """
    curves = read_ranks(result)
    return Curve(
        curves.loss.mean(axis=0),
        curves.step_s.max(axis=0),
        curves.lr[0],
        curves.epochs,
        curves.starts,
    )


def read_ranks(result: CellResult) -> RankCurves:
    """Read the curves of every rank of a cell's run.

    Raises:
        NoCurveError: there are none, or they are not those of its record.
    """
    record, path = result.record, result.iterations
    if record is None or path is None or not record.ranks:
        raise NoCurveError("no record of iterations")
    epochs = tuple(learning.training(record.ranks[0]))
    shape = (len(record.ranks), sum(epoch.iterations for epoch in epochs))
    shapes = dict.fromkeys(NAMES, shape) | {LAST_STALL: shape[:1]}
    try:
        arrays = read_arrays(path, shapes, optional=(LAST_STALL,))
    except NoArraysError as fault:
        raise NoCurveError(str(fault)) from fault
    loss, step_s, lr = (arrays[name] for name in NAMES)
    curves = RankCurves(loss, step_s, lr, epochs)
    _check_times(arrays, record, curves)
    return curves


def _check_times(arrays: Mapping[str, "Values"], record: Record, curves: RankCurves) -> None:
    """Compare the iterations of the timed epoch with the time that the record gives for it.

    Raises:
        NoCurveError: they take longer, or do not add up to it together with the last stall.
    """
    number = next(n for n, epoch in enumerate(curves.epochs) if epoch.role == Role.TIMED)
    start = curves.starts[number]
    steps_s = arrays["curve_step_s"][:, start : start + curves.epochs[number].iterations]
    for rank, of_rank_s in zip(record.ranks, steps_s.sum(axis=1), strict=True):
        epoch_s, least_s, most_s = rank.timed.epoch_s, of_rank_s, math.inf
        if LAST_STALL in arrays:
            least_s = most_s = of_rank_s + arrays[LAST_STALL][rank.rank]
        slack_s = (CLOCKS_APART - 1) * epoch_s + SLACK_S
        if not least_s - slack_s <= epoch_s <= most_s + slack_s:
            raise NoCurveError(
                f"iterations.npz: the iterations of rank {rank.rank} take {least_s:.4g} s in the "
                f"timed epoch, its record says {epoch_s:.4g} s"
            )


class CurveLine(NamedTuple):
    """How a row's curves begin and end, medians over runs.

    Loss: mean over ranks, in the first and in the last tenth of all iterations of training. Step:
    seconds of an iteration of the timed epoch on the rank with the largest stall, stall included.
    """

    loss_first_tenth: float
    loss_last_tenth: float
    step_median_s: Number
    step_p90_s: Number
    step_first_tenth_s: Number
    step_last_tenth_s: Number

    @classmethod
    def of(cls, group: ConditionGroup, row: Row, ends: dict[str, tuple[float, float]]) -> Self:
        """Return the line of a row; `ends` are the losses of each run."""
        timed = [record.most_stalled.timed.steps for record in group.records(row) if record.ranks]
        steps = [of_run for of_run in timed if of_run]
        figures = {
            f"step_{name}": median(getattr(of_run, name) for of_run in steps) if steps else None
            for name in ("median_s", "p90_s", "first_tenth_s", "last_tenth_s")
        }
        first, last = zip(*(ends[slug] for slug in row.cells if slug in ends), strict=True)
        return cls(loss_first_tenth=median(first), loss_last_tenth=median(last), **figures)


def curve_ends(group: ConditionGroup) -> Sheet | None:
    """Return how each row's curves begin and end; None if no run has its iterations."""
    ends, _ = _by_run(group, _ends)
    rows = [row for row in group.timed if set(row.cells) & set(ends)]
    lines = [(row, CurveLine.of(group, row, ends)) for row in rows]
    return row_sheet(group, CurveLine._fields, lines) if lines else None


def unreadable(group: ConditionGroup) -> list[str]:
    """Return a note for each reason why runs have no curves, where others have some."""
    if not any(map(has_curve, group.cells)):
        return []
    _, faults = _by_run(group, _ends)
    return by_reason(faults, group.device, captions.full_label)


def _by_run(
    group: ConditionGroup, of_curve: Callable[[Curve], T]
) -> tuple[dict[str, T], list[tuple[str, Place]]]:
    """Return by slug what `of_curve` makes of each run, and why a run has no curve."""
    values: dict[str, T] = {}
    faults: list[tuple[str, Place]] = []
    for row in group.timed:
        counted = {record.slug for record in learning.runs(group, row)}
        for result in (result for result in group.runs(row) if result.slug in counted):
            try:
                values[result.slug] = of_curve(read(result))
            except NoCurveError as fault:
                faults.append((f"no curves: {fault}", row.place))
    return values, faults


def _ends(curve: Curve) -> tuple[float, float]:
    """Return the mean loss of the first and of the last tenth of a run's iterations."""
    tenth = max(1, len(curve.loss) // 10)
    return float(curve.loss[:tenth].mean()), float(curve.loss[-tenth:].mean())


ITERATIONS = (
    "Step: milliseconds of an iteration of the timed epoch, waiting for data included, the longest "
    "of all ranks: mean without the first one. Loss: mean over ranks in the middle and in the last "
    "of the first I iterations of training, those of the warm-up epoch."
)


class IterationLine(NamedTuple):
    """The iterations of an epoch, medians over runs; the mean is without the first of them."""

    mean_step_s: Annotated[float, Shown("step, ms", milliseconds)]
    iterations: Annotated[int, Shown("I")]
    loss_half: Annotated[float, Shown("at I/2", loss, "loss")]
    loss_end: Annotated[float, Shown("at I", loss, "loss")]

    @classmethod
    def of(cls, curve: Curve) -> Self:
        """Return the line of a run."""
        timed = next(n for n, epoch in enumerate(curve.epochs) if epoch.role == Role.TIMED)
        start, count = curve.starts[timed], curve.epochs[timed].iterations
        mean_s = float(curve.step_s[start + 1 : start + count].mean())
        return cls(mean_s, count, float(curve.loss[count // 2 - 1]), float(curve.loss[count - 1]))


def iterations(group: ConditionGroup) -> Table | None:
    """Return what reports that count iterations show; None if no cell has `iterations=`."""
    requested = {r.slug for r in group.cells if r.cell and r.cell.epoch_iterations}
    rows = [row for row in group.timed if requested & set(row.cells)]
    if not rows:
        return None
    values, faults = _by_run(group, IterationLine.of)
    text = TableText(
        "iterations", "Iterations", "", (ITERATIONS, captions.runs(rows)), affected=Affected.TIME
    )
    lines = [
        (row, IterationLine(*map(median, zip(*runs, strict=True))))
        for row in rows
        if (runs := [values[slug] for slug in row.cells if slug in values])
    ]
    notes = by_reason(faults, group.device, captions.full_label)
    return line_table(group, text, lines, columns_of(IterationLine), notes)
