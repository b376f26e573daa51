"""Files of a study: a bounded reader that never waits, atomic writes, and locks."""

import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.process_times import Process
from hpml_jobs.core.value import decode_json

UMASK = os.umask(0o077)
"""The mask of new files as this program began: code of a user may change it later."""

os.umask(UMASK)

FILE_LAG_S = 20
"""How long a shared file system may take to show a file of another node."""

OF_OTHERS = 0o022
"""The permission of others than the owner to write."""


class PathInFolder:
    """The path of a file in a folder, made when it is asked for: there are thousands of folders."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __set_name__(self, owner: type, attribute: str) -> None:
        """Note the attribute of the class."""
        self.attribute = attribute

    def __get__(self, folder: Any, owner: type) -> Path:
        """Return the path in the folder `folder.root`, and keep it there."""
        path: Path = folder.root / self.name
        folder.__dict__[self.attribute] = path
        return path


def others_can_write(path: Path) -> bool:
    """Return whether a path is another user's, or others than its owner may write there."""
    status = path.stat()
    return status.st_uid != os.geteuid() or bool(status.st_mode & OF_OTHERS)


def take_from_others(path: Path) -> None:
    """Take the permission to write in a folder of this user from all others."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OF_OTHERS:
        path.chmod(mode & ~OF_OTHERS)


def encode(value: Any) -> bytes:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def write_whole(
    path: Path, content: bytes, *, parents: bool = True, sync: bool = True
) -> None:
    """Write a file atomically, with fsync and rename: a reader sees all of it or none.

    Its folder is made if it does not exist; without `parents` that is an error. Without `sync` it
    may be lost if this machine fails, for files of which there is another copy.
    """
    if parents:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        Path(name).chmod(0o644 & ~UMASK)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class ReadOnlyError(HpmlError):
    """A file or folder may only be read: it is another user's, or its file system is read-only."""


@contextmanager
def writing(place: object) -> Iterator[None]:
    """Turn an error of the file system into one that names the file or folder.

    Raises:
        ReadOnlyError: it may only be read.
        HpmlError: it cannot be written.
    """
    try:
        yield
    except OSError as fault:
        is_read_only = fault.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        error = ReadOnlyError if is_read_only else HpmlError
        raise error(f"{place} cannot be written: {fault.strerror}") from fault


@contextmanager
def reading(place: object) -> Iterator[None]:
    """Turn an error of the file system, or of a file's content, into one that names the place.

    Raises:
        HpmlError: it cannot be read.
    """
    try:
        yield
    except (OSError, ValueError) as fault:
        raise HpmlError(f"{place} cannot be read: {reason_of(fault)}") from fault


@contextmanager
def hold_lock(path: Path, patience_s: float) -> Iterator[Path | None]:
    """Hold a lock file for the `with` block, after waiting for it up to `patience_s` seconds.

    Where the file system has no flock (some NFS, Lustre without `-o flock`), the lock is the
    existence of another file, which is yielded: a link to it is made once, on any file system.

    Raises:
        TimeoutError: another program holds it all that time.
        HpmlError: a program that has ended has left that file.
        OSError: the file cannot be made.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    held = path.with_name(f"{path.name}.held")
    deadline = time.monotonic() + patience_s
    try:
        has_flock, is_locked = _try_flock(handle), False
        while not (is_locked := has_flock or (has_flock is None and _try_link(held))):
            holder = read_valid(held, Process)
            if holder and holder.is_here and not holder.runs:
                raise HpmlError(
                    f"{held} is left from PID {holder.pid}, which ended: remove it"
                )
            if time.monotonic() > deadline:
                by = f" (PID {holder.pid} on {holder.host})" if holder else ""
                raise TimeoutError(f"{path} is held by another program{by}")
            time.sleep(0.1)
            has_flock = _try_flock(handle)
        yield None if has_flock else held
    finally:
        os.close(handle)  # releases the lock too
        if is_locked and not has_flock:
            held.unlink(missing_ok=True)


def _try_flock(handle: int) -> bool | None:
    """Try to take the lock; None where the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _try_link(held: Path) -> bool:
    """Make the file that is the lock, with this process in it; return whether it is ours."""
    handle, name = tempfile.mkstemp(prefix=f".{held.name}.", dir=held.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(Process.of(os.getpid())))
        # over NFS an error may hide that it was made
        with contextlib.suppress(OSError):
            held.hardlink_to(temporary)
        return temporary.stat().st_nlink == 2
    finally:
        temporary.unlink()


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
        raise OSError(
            errno.EFBIG, f"{megabytes:.3g} MB are more than the limit of {most:.3g} MB"
        )
    return content


def read_json(path: Path, kind: type[T]) -> T:
    """Return the value of a JSON file.

    Raises:
        OSError: as `read_bytes`.
        ValueError: it is not JSON of this kind, or is nested too deeply.
    """
    return decode_json(read_bytes(path), kind)


def read_valid(path: Path, kind: type[T]) -> T | None:
    """Return the value of a JSON file; None if there is none, or none that can be read."""
    try:
        return read_json(path, kind)
    except (OSError, ValueError):
        return None


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
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    if isinstance(fault, UnicodeDecodeError):
        return f"it is not UTF-8 text (byte {fault.start + 1}): save it as UTF-8"
    return str(fault)


def owner(path: Path) -> str:
    """Return the login name of a path's owner, or the number of a user who has none."""
    try:
        return path.owner()
    except KeyError:
        return str(path.stat().st_uid)
