"""Files: values as JSON, atomic writes, and locks."""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec


def encode(value: Any) -> bytes:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def write_whole(path: Path, content: bytes, *, parents: bool = True) -> None:
    """Write a file atomically, with fsync and rename: a reader sees all of it or none.

    Its folder is made if it does not exist; without `parents` that is an error.
    """
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def hold_lock(path: Path, patience_s: float) -> Iterator[None]:
    """Hold a lock file for the `with` block, after waiting for it up to `patience_s` seconds.

    Raises:
        TimeoutError: another program holds it all that time.
        OSError: the file cannot be made.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        deadline = time.monotonic() + patience_s
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} is held by another program")
            time.sleep(0.1)
        yield
    finally:
        os.close(handle)  # releases the lock too


def _try_lock(handle: int) -> bool:
    """Try to take the lock; on a file system without locks this always succeeds."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
