"""Reading of iterations.npz."""

import zipfile
import zlib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.study.files import open_regular

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

Shape = tuple[int, ...]

_FAULTS = (
    *(AttributeError, EOFError, MemoryError, OSError, RuntimeError, TypeError),
    *(ValueError, zipfile.BadZipFile, zlib.error),
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
