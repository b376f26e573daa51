"""Curves of training: the iterations of a run, read from iterations.npz."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Epoch, Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import CLOCKS_APART, SLACK_S
from hpml_jobs.report.frame import captions
from hpml_jobs.results.arrays import NoArraysError, read_arrays
from hpml_jobs.results.cells import CellResult, Place
from hpml_jobs.results.groups import ConditionGroup

if TYPE_CHECKING:
    from hpml_jobs.results.arrays import Values

T = TypeVar("T")

NAMES = ("curve_loss", "curve_step_s", "curve_lr")
"""Arrays of (ranks, iterations of all epochs of training, in order)."""

LAST_STALL = "last_stall_s"
"""Array of (ranks): the time after the last iteration of the timed epoch; since schema 5."""


class NoCurveError(HpmlError):
    """A run without curves; the message says why."""


class Curve(NamedTuple):
    """One run by iteration, over all epochs of training: mean loss, most seconds of a rank."""

    loss: "Values"
    step_s: "Values"
    lr: "Values"
    epochs: tuple[Epoch, ...]
    starts: list[int]


def has_curve(result: CellResult) -> bool:
    """Return whether the run has a file of curves; the losses of a script are not visible."""
    if result.record is None or result.record.loss is None:
        return False
    return result.iterations is not None and result.iterations.is_file()


def read(result: CellResult) -> Curve:
    """Read the curves of a cell's run.

    Raises:
        NoCurveError: there are none, or they are not those of its record.
    """
    record = result.record
    path = result.iterations
    if record is None or path is None or not record.ranks:
        raise NoCurveError("no record of iterations")
    epochs = tuple(record.trained)
    shape = (len(record.ranks), sum(epoch.iterations for epoch in epochs))
    shapes = dict.fromkeys(NAMES, shape) | {LAST_STALL: shape[:1]}
    try:
        arrays = read_arrays(path, shapes, optional=(LAST_STALL,))
    except NoArraysError as fault:
        raise NoCurveError(str(fault)) from fault
    counts = [epoch.iterations for epoch in epochs]
    starts = [sum(counts[:number]) for number in range(len(counts))]
    timed = [epoch.role for epoch in epochs].index(Role.TIMED)
    of_timed = slice(starts[timed], starts[timed] + counts[timed])
    _check_times(arrays, record, arrays["curve_step_s"][:, of_timed])
    loss, step_s, lr = (arrays[name] for name in NAMES)
    return Curve(loss.mean(axis=0), step_s.max(axis=0), lr[0], epochs, starts)


def _check_times(
    arrays: Mapping[str, "Values"], record: Record, steps_s: "Values"
) -> None:
    """Compare the iterations of the timed epoch with the time that the record gives for it.

    Raises:
        NoCurveError: they take longer, or do not add up to it together with the last stall.
    """
    for rank, of_rank_s in zip(record.ranks, steps_s.sum(axis=1), strict=True):
        epoch_s = rank.timed.epoch_s
        least_s = of_rank_s
        most_s = math.inf
        if LAST_STALL in arrays:
            least_s = most_s = of_rank_s + arrays[LAST_STALL][rank.rank]
        slack_s = (CLOCKS_APART - 1) * epoch_s + SLACK_S
        if not least_s - slack_s <= epoch_s <= most_s + slack_s:
            raise NoCurveError(
                f"iterations.npz: the iterations of rank {rank.rank} take {least_s:.4g} s in the "
                f"timed epoch, its record says {epoch_s:.4g} s"
            )


def unreadable(group: ConditionGroup) -> list[str]:
    """Return a note for each reason why runs have no curves, where others have some."""
    if not any(map(has_curve, group.cells)):
        return []
    _, faults = by_run(group, lambda curve: curve.epochs)
    return captions.by_reason(faults, group.device, captions.full_label)


def by_run(
    group: ConditionGroup, of_curve: Callable[[Curve], T]
) -> tuple[dict[str, T], list[tuple[str, Place]]]:
    """Return by slug what `of_curve` makes of each run, and why a run has no curve."""
    values: dict[str, T] = {}
    faults: list[tuple[str, Place]] = []
    for row in group.timed:
        counted = {record.slug for record in row.trained}
        for result in (run for run in row.measured if run.slug in counted):
            try:
                values[result.slug] = of_curve(read(result))
            except NoCurveError as fault:
                faults.append((f"no curves: {fault}", row.place))
    return values, faults
