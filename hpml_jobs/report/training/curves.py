"""Curves of training: the arrays of a run's iterations.npz, and the table of their ends."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from hpml_jobs.core.measurements import Epoch, Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import CLOCKS_APART, SLACK_S
from hpml_jobs.errors import HpmlError
from hpml_jobs.report.frame import learning
from hpml_jobs.report.frame.cells import CellResult
from hpml_jobs.report.training.arrays import NoArraysError, read_arrays

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]
from statistics import median
from typing import Annotated, Self

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, line_table
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.marks import by_reason
from hpml_jobs.report.frame.numbers import loss, milliseconds
from hpml_jobs.report.frame.rows import Place, Row
from hpml_jobs.report.frame.table import Table

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
    """Return whether the run has a file of curves."""
    return result.measured and result.iterations is not None and result.iterations.is_file()


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


CURVES = (
    "Loss: mean over ranks, in the first and in the last tenth of all iterations of training, "
    "warm-up included. Step: milliseconds of an iteration of the timed epoch on the rank with the "
    "largest stall, stall included: median, 90th percentile, and medians of its first and last "
    "tenth. curves.csv has every iteration of every run (every k-th of long runs, see its column "
    "every); loss.png and steps.png show them."
)


class CurveLine(NamedTuple):
    """Losses in the first and the last tenth of training; seconds of timed iterations."""

    loss_first_tenth: Annotated[float, Shown("first 10 %", loss, "loss")]
    loss_last_tenth: Annotated[float, Shown("last 10 %", loss, "loss")]
    step_median_s: Annotated[Number, Shown("median", milliseconds, "step, ms")]
    step_p90_s: Annotated[Number, Shown("p90", milliseconds, "step, ms")]
    step_first_tenth_s: Annotated[Number, Shown("first 10 %", milliseconds, "step, ms")]
    step_last_tenth_s: Annotated[Number, Shown("last 10 %", milliseconds, "step, ms")]

    @classmethod
    def of(cls, group: ConditionGroup, row: Row, ends: dict[str, tuple[float, float]]) -> Self:
        """Return the line of a row, medians over runs; `ends` are the losses of each run."""
        timed = [record.most_stalled.timed.steps for record in group.records(row) if record.ranks]
        steps = [of_run for of_run in timed if of_run]
        figures = {
            f"step_{name}": median(getattr(of_run, name) for of_run in steps) if steps else None
            for name in ("median_s", "p90_s", "first_tenth_s", "last_tenth_s")
        }
        first, last = zip(*(ends[slug] for slug in row.cells if slug in ends), strict=True)
        return cls(loss_first_tenth=median(first), loss_last_tenth=median(last), **figures)


def curve_table(group: ConditionGroup) -> Table | None:
    """Return how each place's loss begins and ends; None if no run has its iterations."""
    cells = {result.slug: result for result in group.cells if result.measured}
    if not any(has_curve(result) for result in cells.values()):
        return None
    ends: dict[str, tuple[float, float]] = {}
    faults: list[tuple[str, Place]] = []
    for row in group.timed:
        for slug in (record.slug for record in learning.runs(group, row)):
            try:
                ends[slug] = _ends(cells[slug])
            except NoCurveError as fault:
                faults.append((f"no curves: {fault}", row.place))
    rows = [row for row in group.timed if set(row.cells) & set(ends)]

    text = TableText(
        "curve-ends",
        "Curves",
        "",
        (CURVES, captions.runs(rows)),
        bool(faults),
        affected=Affected.LEARNING,
    )
    remarks = [f"loss: {line}" for line in learning.shorter(group, rows)]
    remarks += by_reason(faults, lambda setup: captions.full_label(setup, group.device))
    lines = [(row, CurveLine.of(group, row, ends)) for row in rows]
    return line_table(group, text, lines, columns_of(CurveLine), remarks)


def _ends(result: CellResult) -> tuple[float, float]:
    """Return the mean loss of the first and of the last tenth of a run's iterations."""
    values = read(result).loss
    tenth = max(1, len(values) // 10)
    return float(values[:tenth].mean()), float(values[-tenth:].mean())
