"""Curves of training: the arrays of a run's iterations.npz, for tables, curves.csv and plots."""

import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hpml_jobs.core.measurements import Epoch
from hpml_jobs.core.record import Record
from hpml_jobs.errors import HpmlError
from hpml_jobs.report.merge import learning
from hpml_jobs.report.merge.cells import CellResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

NAMES = ("curve_loss", "curve_step_s", "curve_lr")
"""Arrays of (ranks, iterations of all epochs of training, in order)."""

_DAMAGED = (OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
"""Exceptions from reading a damaged file."""

_OTHER = (ValueError, TypeError, AttributeError)
"""Exceptions from reading a file of other content: pickles, text, a single array."""


class NoCurveError(HpmlError):
    """A run without curves; the message says why."""


class Curve(NamedTuple):
    """One run by iteration, over all epochs of training: mean loss, most seconds of a rank."""

    loss: "Values"
    step_s: "Values"
    lr: "Values"
    epochs: tuple[Epoch, ...]

    @property
    def starts(self) -> list[int]:
        """The iteration at which each epoch begins."""
        return [sum(e.iterations for e in self.epochs[:n]) for n in range(len(self.epochs))]


def has_curve(result: CellResult) -> bool:
    """Return whether the run has a file of curves."""
    return result.measured and result.iterations is not None and result.iterations.is_file()


def read(result: CellResult) -> Curve:
    """Read the curves of a cell's run.

    Raises:
        NoCurveError: there are none, or they are not those of its record.
    """
    record, path = result.record, result.iterations
    if record is None or path is None or not record.ranks:
        raise NoCurveError("no record of iterations")
    arrays = _load(path)
    epochs = tuple(learning.training(record.ranks[0]))
    _check(arrays, record, sum(epoch.iterations for epoch in epochs))
    loss, step_s, lr = (arrays[name] for name in NAMES)
    return Curve(loss.mean(axis=0), step_s.max(axis=0), lr[0], epochs)


def _load(path: Path) -> dict[str, Any]:
    """Return the arrays by name, as float64; nothing is unpickled."""
    import numpy as np  # noqa: PLC0415 - heavy, and only reports with curves need it

    try:
        with path.open("rb") as content, np.load(content, allow_pickle=False) as file:
            missing = [name for name in NAMES if name not in file]
            if missing:
                raise NoCurveError(f"{path.name} has no {', '.join(missing)}")
            return {name: np.asarray(file[name], dtype=np.float64) for name in NAMES}
    except FileNotFoundError as fault:
        raise NoCurveError(f"{path.name} is missing") from fault
    except _DAMAGED as fault:
        raise NoCurveError(f"{path.name} cannot be read: {_line(fault)}") from fault
    except _OTHER as fault:
        raise NoCurveError(f"{path.name} is not a file of numbers per iteration") from fault


def _line(fault: BaseException) -> str:
    """Return a fault as one short line."""
    return " ".join(str(fault).split())[:80] or type(fault).__name__


def _check(arrays: dict[str, Any], record: Record, iterations: int) -> None:
    wanted = (len(record.ranks), iterations)
    for name, values in arrays.items():
        if values.shape != wanted:
            raise NoCurveError(
                f"iterations.npz: {name} is {_shape(values.shape)}, "
                f"its record has {_shape(wanted)} (ranks x iterations)"
            )


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"
