"""A disk that is full, or a study folder that is gone: errors that say so, and room to say it."""

import contextlib
import errno
import os
import sys
from pathlib import Path

import msgspec

from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.attempt import AttemptEnd, AttemptFolder
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import write_whole

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_RESERVE_BYTES = 16_384
"""Room for the exit report, which is written last."""


class NoSpaceError(HpmlError):
    """The disk of the study is full, or the user's quota is used up."""


def explained(fault: OSError, folder: CellFolder) -> Exception:
    """Return what an error of the file system means for a cell; other errors as they are."""
    if fault.errno in _NO_SPACE:
        return NoSpaceError(f"{fault.strerror}: {folder.root}")
    if not folder.root.exists():
        return HpmlError(
            f"the folder {folder.root} was deleted or renamed while the cell ran: its record "
            "cannot be written; submit the cell again"
        )
    return fault


def print_safely(text: str, *, error: bool = False) -> None:
    """Print to standard output or error, which SLURM writes to a disk that may be full."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr if error else sys.stdout, flush=True)


def reserve(paths: AttemptFolder) -> None:
    """Write a file whose room `release` gives to the exit report."""
    write_whole(paths.reserve, bytes(_RESERVE_BYTES), parents=False)


def release(paths: AttemptFolder) -> None:
    """Remove the file of `reserve`."""
    with contextlib.suppress(OSError):
        paths.reserve.unlink()


def with_disk_reason(end: AttemptEnd, folder: CellFolder) -> AttemptEnd:
    """Return the end of a failed attempt with the disk as its reason if that is full now."""
    if end.outcome not in (Outcome.FAILED, Outcome.MISSING):
        return end
    words = _full_disk(folder.root)
    if not words or words in (end.reason or ""):
        return end
    reason = f"{words}; {end.reason}" if end.reason else words
    return msgspec.structs.replace(end, outcome=Outcome.FAILED, reason=reason)


def _full_disk(folder: Path) -> str:
    """Return the error of writing some bytes into a folder if there is no space for them."""
    probe = folder / f".space-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(_RESERVE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as fault:
        return f"{fault.strerror}: {folder}" if fault.errno in _NO_SPACE else ""
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return ""
