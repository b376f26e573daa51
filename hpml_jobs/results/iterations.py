"""Reading of iterations.npz: its arrays, and the curves of a run by iteration."""

import math
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Epoch, Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import CLOCKS_APART, SLACK_S
from hpml_jobs.results.cells import CellResult, Place
from hpml_jobs.results.rows import Row
from hpml_jobs.study.files import open_regular

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

Shape = tuple[int, ...]

_FAULTS = (
    AttributeError,
    EOFError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy raises for a damaged file, or one of other content."""


class NoArraysError(HpmlError):
    """Arrays that cannot be used; the message says why."""


def read_arrays(
    path: Path, shapes: Mapping[str, Shape], optional: Container[str] = ()
) -> "dict[str, Values]":
    """Return arrays by name as float64.

    Arrays in `optional` may be missing: earlier versions did not write them.

    Raises:
        NoArraysError: an array is missing, has another shape than `shapes` says, is not of finite
            real numbers, or is damaged.
    """
    import numpy as np  # noqa: PLC0415 - heavy, and only reports with iterations need it

    try:
        with open_regular(path) as content, np.load(content) as file:
            names = [name for name in shapes if name in file or name not in optional]
            arrays = {name: file[name] for name in names}
    except FileNotFoundError as fault:
        raise NoArraysError(f"{path.name} is missing") from fault
    except KeyError as fault:
        raise NoArraysError(f"{path.name}: {fault.args[0]}") from fault
    except _FAULTS as fault:
        reason = " ".join(str(fault).split())[:80]
        raise NoArraysError(f"{path.name} cannot be read: {reason}") from fault
    for name, values in arrays.items():
        if values.shape != shapes[name]:
            raise NoArraysError(
                f"{path.name}: {name} is {_text(values.shape)}, its record has "
                f"{_text(shapes[name])} (ranks x iterations)"
            )
        if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise NoArraysError(f"{path.name}: {name} is not of finite numbers")
    return {name: values.astype(np.float64) for name, values in arrays.items()}


def _text(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "one number"


T = TypeVar("T")

NAMES = ("curve_loss", "curve_step_s", "curve_lr")
"""Arrays of (ranks, iterations of all epochs of training, in order)."""

LAST_STALL = "last_stall_s"
"""Array of (ranks): the time after the last iteration of the timed epoch; since schema 5."""


class Curve(NamedTuple):
    """One run by iteration, over all epochs of training: mean loss, most seconds of a rank."""

    loss: "Values"
    step_s: "Values"
    lr: "Values"
    epochs: tuple[Epoch, ...]
    starts: list[int]


def has_curve(result: CellResult) -> bool:
    """Return whether the run has a file of curves; the losses of a script are not visible."""
    has_loss = result.record is not None and result.record.loss is not None
    return has_loss and result.iterations is not None and result.iterations.is_file()


def read_curve(result: CellResult) -> Curve:
    """Read the curves of a cell's run.

    Raises:
        NoArraysError: there are none, or they are not those of its record.
    """
    record = result.record
    path = result.iterations
    if record is None or path is None or not record.ranks:
        raise NoArraysError("no record of iterations")
    epochs = tuple(record.trained)
    shape = (len(record.ranks), sum(epoch.iterations for epoch in epochs))
    shapes = dict.fromkeys(NAMES, shape) | {LAST_STALL: shape[:1]}
    arrays = read_arrays(path, shapes, optional=(LAST_STALL,))
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
        NoArraysError: they take longer, or do not add up to it together with the last stall.
    """
    for rank, of_rank_s in zip(record.ranks, steps_s.sum(axis=1), strict=True):
        epoch_s = rank.timed.epoch_s
        least_s = of_rank_s
        most_s = math.inf
        if LAST_STALL in arrays:
            least_s = most_s = of_rank_s + arrays[LAST_STALL][rank.rank]
        slack_s = (CLOCKS_APART - 1) * epoch_s + SLACK_S
        if not least_s - slack_s <= epoch_s <= most_s + slack_s:
            raise NoArraysError(
                f"iterations.npz: the iterations of rank {rank.rank} take {least_s:.4g} s in the "
                f"timed epoch, its record says {epoch_s:.4g} s"
            )


def by_run(
    rows: Iterable[Row], of_curve: Callable[[Curve], T]
) -> tuple[dict[str, T], list[tuple[str, Place]]]:
    """Return by slug what `of_curve` makes of each run, and why a run has no curve."""
    values: dict[str, T] = {}
    faults: list[tuple[str, Place]] = []
    for row in rows:
        counted = {record.slug for record in row.trained}
        for result in (run for run in row.measured_cells if run.slug in counted):
            try:
                values[result.slug] = of_curve(read_curve(result))
            except NoArraysError as fault:
                faults.append((f"no curves: {fault}", row.place))
    return values, faults
