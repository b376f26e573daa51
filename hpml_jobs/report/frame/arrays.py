"""Reading of iterations.npz, of bounded size."""

import struct
import zipfile
import zlib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.study.files import open_regular, reason_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

Shape = tuple[int, ...]

ARRAY_BYTES = 512 * 2**20
"""Largest array that is read: 64 ranks x 1,000,000 iterations of 8 bytes."""

DIRECTORY_BYTES = 2**20
"""Largest list of arrays in a file. 20 arrays need 2 kB."""

_END = struct.Struct("<4s4H2LH")
"""The end of a zip file: signature, 4 counts, size and place of the list, length of a comment."""

_LOCATOR_BYTES = 20
"""Before that end, a file above 4 GB has so many more bytes."""

_DAMAGED = (OSError, EOFError, zipfile.BadZipFile, zlib.error)
"""Exceptions from reading a damaged file."""

_OTHER = (
    *(ValueError, TypeError, KeyError),
    *(AttributeError, NotImplementedError, RuntimeError),
)
"""Exceptions from a file of other content: pickles, text, deep nesting, encryption."""


class NoArraysError(HpmlError):
    """Arrays that cannot be used; the message says why."""


class _ContentError(Exception):
    """What is wrong with an array."""


def read_arrays(
    path: Path, shapes: Mapping[str, Shape], optional: Container[str] = ()
) -> "dict[str, Values]":
    """Return arrays by name as float64. No byte is read of an array of another shape.

    Arrays in `optional` may be missing: earlier versions did not write them.

    Raises:
        NoArraysError: an array is missing, has another shape than `shapes` says, is not of finite
            real numbers, or is damaged.
    """
    try:
        with open_regular(path) as content:
            _check_end(content)
            with zipfile.ZipFile(content) as file:
                members = {
                    info.filename.removesuffix(".npy"): info for info in file.infolist()
                }
                missing = [n for n in shapes if n not in members and n not in optional]
                if missing:
                    raise NoArraysError(f"{path.name} has no {', '.join(missing)}")
                return {
                    name: _array(file, members[name], shape)
                    for name, shape in shapes.items()
                    if name in members
                }
    except _ContentError as fault:
        raise NoArraysError(f"{path.name}: {fault}") from fault
    except FileNotFoundError as fault:
        raise NoArraysError(f"{path.name} is missing") from fault
    except _DAMAGED as fault:
        raise NoArraysError(f"{path.name} cannot be read: {_line(fault)}") from fault
    except _OTHER as fault:
        raise NoArraysError(
            f"{path.name} is not a file of numbers per iteration"
        ) from fault


def _check_end(content: BinaryIO) -> None:
    """Refuse a zip file whose list of members would fill the memory.

    Raises:
        BadZipFile: the list is cut off, too long, or in the format of files above 4 GB.
        ValueError: it is not a zip file.
    """
    if content.read(2) != b"PK":
        raise ValueError("not a zip file")
    size = content.seek(0, 2)
    content.seek(max(0, size - _END.size - _LOCATOR_BYTES))
    end = content.read()
    if len(end) < _END.size + _LOCATOR_BYTES or end[-_END.size :][:4] != b"PK\5\6":
        raise zipfile.BadZipFile("its end is missing")
    *_, list_bytes, list_at, _ = _END.unpack(end[-_END.size :])
    is_of_above_4_gb = end.startswith(b"PK\6\7")
    if (
        is_of_above_4_gb
        or not list_bytes <= min(DIRECTORY_BYTES, size)
        or list_at > size
    ):
        raise zipfile.BadZipFile(f"its list of arrays has {list_bytes:,} bytes")
    content.seek(0)


def _array(file: zipfile.ZipFile, info: zipfile.ZipInfo, wanted: Shape) -> "Values":
    import numpy as np  # noqa: PLC0415 - heavy, and only reports with iterations need it

    name = info.filename.removesuffix(".npy")
    with file.open(info) as member:
        version = np.lib.format.read_magic(member)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, is_fortran, dtype = read_header(member)
        if dtype.kind not in "fiu":
            raise ValueError(f"{name} has values of type {dtype}")
        if shape != wanted:
            raise _ContentError(
                f"{name} is {_text(shape)}, its record has {_text(wanted)} (ranks x iterations)"
            )
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size > ARRAY_BYTES:
            raise _ContentError(
                f"{name} has {size:,} bytes, the limit is {ARRAY_BYTES:,}"
            )
        content = member.read(size)
        # at the end, the checksum is compared
        if len(content) != size or member.read(1):
            raise EOFError(f"{name} has another size than its header says")
    values = np.frombuffer(content, dtype).reshape(
        shape, order="F" if is_fortran else "C"
    )
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise _ContentError(f"{name} has values that are not finite")
    return numbers


def _line(fault: BaseException) -> str:
    """Return a fault as one short line."""
    text = reason_of(fault) if isinstance(fault, OSError) else str(fault)
    return " ".join(text.split())[:80] or type(fault).__name__


def _text(shape: Shape) -> str:
    return " x ".join(str(size) for size in shape[:4]) or "one number"
