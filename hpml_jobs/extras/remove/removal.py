"""Remove a study's folder: only files that the program or its jobs wrote, and no other study's.

A folder with a file of other origin is refused as a whole, before anything is deleted, so that a
study is there or is gone. Links are not followed: one is deleted where jobs may have made it.
"""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import few
from hpml_jobs.study.files import BLOCK_BYTES, hold_lock, is_name, reading, reason_of
from hpml_jobs.study.study import Study

PATIENCE_S = 5
"""How long a submission to the study is waited for, in seconds."""

ATTEMPTS = "attempts"

CELL_FILES = ("cell.json", "record.json", "iterations.npz", ATTEMPTS)
"""The names in the folder of a cell."""


class Removal(NamedTuple):
    """The files and links of a study, and its folders with the deepest first; their size on disk.

    `foreign` are the names, below the study's folder, of what the program did not write.
    """

    files: list[Path]
    folders: list[Path]
    size: int
    foreign: list[str]


def removal_of(study: Study, report_files: Collection[str]) -> Removal:
    """Return what removing a study deletes; `report_files` are the names of files in its report.

    Raises:
        HpmlError: a folder of it cannot be read.
    """
    owner = _Owner(study, report_files)
    files, folders, foreign = [], [study.root], []
    for path in _paths(study.root):
        if not owner.has(path):
            foreign.append(str(path.relative_to(study.root)))
        elif path.is_dir() and not path.is_symlink():
            folders.append(path)
        else:
            files.append(path)
    size = sum(path.lstat().st_blocks for path in files) * BLOCK_BYTES
    return Removal(files, folders[::-1], size, foreign)


def _paths(folder: Path) -> Iterator[Path]:
    """Yield everything in a folder, a folder before what is in it; links are not followed."""
    with reading(folder):
        paths = sorted(folder.iterdir())
    for path in paths:
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _paths(path)


class _Owner:
    """Says by its name whether the program or a job wrote a file in a study's folder."""

    def __init__(self, study: Study, report_files: Collection[str]) -> None:
        self.study = study
        self.report_files = report_files
        self.names = {
            *(
                study.manifest,
                study.about,
                study.lock,
                study.cluster,
                study.commands_file,
            ),
            *(study.cells_folder, study.slurm, study.report),
            *(study.slurm_answers, study.root / f"{study.lock.name}.held"),
        }

    def has(self, path: Path) -> bool:
        """Whether a path is the program's. A link is so only among what jobs write."""
        study = self.study
        folders = [*path.parents]
        if study.slurm in folders or self._is_of_attempt(path):
            return True
        if path.is_symlink():
            return False
        path = path.with_name(_without_suffix(path.name))
        if path.parent == study.report:
            return path.name in self.report_files
        if path.parent == study.cells_folder:
            return is_name(path.name) and path.is_dir()
        if path.parent.parent == study.cells_folder:
            return path.name in CELL_FILES
        return path in self.names

    def _is_of_attempt(self, path: Path) -> bool:
        """Return whether a path is below cells/CELL/attempts/."""
        below = path.relative_to(self.study.root).parts
        return len(below) > 3 and (below[0], below[2]) == (
            self.study.cells_folder.name,
            ATTEMPTS,
        )


_TEMPORARY = re.compile(r"^\.(.+)\.\w+$")


def _without_suffix(name: str) -> str:
    """Return the name of the file that a temporary file is written for, as `write_whole` does.

    >>> _without_suffix(".study.json.x1_y"), _without_suffix("study.json"), _without_suffix(".a")
    ('study.json', 'study.json', '.a')
    """
    return _TEMPORARY.sub(r"\1", name)


def refuse_foreign(study: Study, removal: Removal) -> None:
    """Refuse to remove a study.

    Raises:
        HpmlError: something else is in its folder, the folder is a link, or may not be written.
    """
    if study.root.is_symlink():
        raise HpmlError(
            f"{study.root} is a link to {study.root.resolve()}: name that folder"
        )
    if removal.foreign:
        raise HpmlError(
            f"{study.root} has what hpml-jobs did not write: {few(removal.foreign)}; move it "
            "elsewhere, or delete the folder by hand; nothing was removed"
        )
    for folder in [*removal.folders, study.root.parent]:
        if not os.access(folder, os.W_OK | os.X_OK):
            raise HpmlError(f"{folder} may not be written: nothing was removed")


@contextmanager
def without_submission(study: Study) -> Iterator[None]:
    """Hold the study's lock for the `with` block, so that nothing is submitted to it.

    Raises:
        HpmlError: a submission to it is running, or the lock cannot be made.
    """
    try:
        with hold_lock(study.lock, PATIENCE_S):
            yield
    except TimeoutError as fault:
        raise HpmlError(
            f"{fault}: a submission is running; nothing was removed"
        ) from fault
    except OSError as fault:
        raise HpmlError(
            f"{study.lock} cannot be written: {reason_of(fault)}"
        ) from fault


def remove_files(study: Study, removal: Removal) -> None:
    """Delete what was listed; the cells come late, so that a study in part is one still.

    Raises:
        HpmlError: something cannot be deleted, or a folder has what was not listed.
    """

    def turn(path: Path) -> int:
        is_of_cells = study.cells_folder in (path, *path.parents)
        return 2 if path in (study.lock, study.root) else int(is_of_cells)

    path = study.root
    try:
        for path in sorted(removal.files, key=turn):
            path.unlink(missing_ok=True)
        for path in sorted(removal.folders, key=turn):
            path.rmdir()
    except OSError as fault:
        raise HpmlError(
            f"{path} cannot be removed: {reason_of(fault)}; the rest is in {study.root}"
        ) from fault
