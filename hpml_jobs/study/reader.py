"""The reader of every file of a study: regular files only, of bounded size; it never waits."""

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, TypeVar

from hpml_jobs.core.value import decode_json

JSON_BYTES = 16 * 2**20
"""Largest JSON, CSV or YAML file that is read. A record has about 6 kB per rank."""

MANIFEST_BYTES = 256 * 2**20
"""Largest manifest that is read. A line has about 1.5 kB per cell that was submitted."""

NAME_BYTES = 1024
"""Largest file that is read where it has only a name in it (attempts/current)."""

LOG_BYTES = 2**20
"""Most bytes of a log that are read at once."""

_NAME = re.compile(r"\w[\w.-]{0,254}", re.ASCII)

T = TypeVar("T")


def open_regular(path: Path, buffering: int = -1) -> BinaryIO:
    """Open a regular file, or a link to one, for reading; `buffering` as of `open`.

    Raises:
        OSError: it cannot be opened; or it is a FIFO, a device or a socket, which may give no byte
            or never end.
    """
    file = open(path, "rb", buffering, opener=_open_without_waiting)  # noqa: SIM115 - no opener
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise OSError(errno.EINVAL, f"not a regular file ({_kind(mode)})")
    return file


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # without it, a FIFO waits for a writer


def _kind(mode: int) -> str:
    kinds = {stat.S_ISFIFO: "FIFO", stat.S_ISCHR: "device", stat.S_ISBLK: "device"}
    return next((name for is_kind, name in kinds.items() if is_kind(mode)), "socket")


def read_bytes(path: Path, limit: int = JSON_BYTES) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more than `limit` bytes.
    """
    with open_regular(path, buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > limit else file.read()
    if size > limit or len(content) > limit:
        megabytes, most = max(size, len(content)) / 1e6, limit / 1e6
        raise OSError(errno.EFBIG, f"{megabytes:.3g} MB are more than the limit of {most:.3g} MB")
    return content


def read_json(path: Path, kind: type[T]) -> T:
    """Return the value of a JSON file.

    Raises:
        OSError: as `read_bytes`.
        ValueError: it is not JSON of this kind, or is nested too deeply.
    """
    return decode_json(read_bytes(path), kind)


def read_from(path: Path, position: int, limit: int = LOG_BYTES) -> bytes:
    """Return up to `limit` bytes of a log from a position, from its end where negative.

    They are empty where the file cannot be read or is not a regular one.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(position if position >= 0 else max(0, size + position))
            return file.read(limit)
    except OSError:
        return b""


def tail(path: Path, size: int) -> str:
    """Return the last `size` bytes of a log as text; empty where it cannot be read."""
    return read_from(path, -size, size).decode(errors="replace")


def is_name(text: str) -> bool:
    """Return whether a text from a file can name something in a folder, and leads nowhere else.

    >>> is_name("17_0.r0"), is_name("../17_0.r0"), is_name(".."), is_name("")
    (True, False, False, False)
    """
    return _NAME.fullmatch(text) is not None


def reason_of(fault: OSError | ValueError) -> str:
    """Return why a file could not be read or written, without its path."""
    return (isinstance(fault, OSError) and fault.strerror) or str(fault)
