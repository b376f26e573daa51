"""Finding a study by a word, and its cells by a pattern."""

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol, TypeVar

from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.study.files import reading
from hpml_jobs.study.manifest import last_time
from hpml_jobs.study.study import Study

SHOWN_CELLS = 10
"""Number of cells that an error message lists."""

OUTPUTS = "outputs"
"""The default of outputs=: the folder of the studies, in the folder of a submission."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST_NAME = 100


class _HasSlug(Protocol):
    """Anything of a cell: a folder, a state, a record."""

    @property
    def slug(self) -> str: ...


OfCell = TypeVar("OfCell", bound=_HasSlug)


def check_name(name: str) -> str:
    """Return a study's name if it is one folder name of letters, digits, `.`, `_`, `-`.

    Raises:
        UsageError: it is not, or it is a path.
    """
    if len(name) > _LONGEST_NAME:
        raise UsageError(
            f"study={name[:20]}… has {len(name)} characters: use at most {_LONGEST_NAME}"
        )
    if not _NAME.fullmatch(name) or ".." in name:
        raise UsageError(
            f"study={name!r} is not a name: use letters, digits, '.', '_' and '-', no '..' or '/' "
            "(set the folder of the studies with outputs=PATH)"
        )
    return name


def all_studies(outputs: Path) -> list[Study]:
    """Return the studies of a folder, the most recently submitted first; none if there is none."""
    return [Study(root) for root in sorted(_roots(outputs), key=submitted_at, reverse=True)]


def studies_in(folder: Path) -> list[Study]:
    """Return the study that a folder is, or those in it and in its folder `outputs`.

    In each, the most recently submitted is first.

    Raises:
        HpmlError: it is not a folder, or cannot be read.
    """
    if not folder.is_dir():
        raise HpmlError(f"{folder} is not a folder: name studies, or folders of studies")
    if is_study(folder):
        return [Study(folder.resolve())]
    outputs = folder / OUTPUTS
    inside = [] if is_study(outputs) else all_studies(outputs)  # a study is in the folder itself
    return [*all_studies(folder), *inside]


def no_study(outputs: Path) -> HpmlError:
    """Return the error of a folder without studies."""
    return HpmlError(
        f"no study in {outputs}: submit one first, or name the folder with --outputs FOLDER"
    )


def find(outputs: Path, word: str | None) -> Study:
    """Return the study of a word; without one, the most recently submitted study.

    The word is the study's name, study=NAME, or the study's folder.

    Raises:
        HpmlError: it does not exist; the message lists the studies of the folder.
    """
    name = word.removeprefix("study=") if word else word
    folder = Path(word or "").expanduser()
    if word and "/" in word and (folder / "cells").is_dir():
        outputs, name = folder.resolve().parent, folder.resolve().name
    if (outputs / "cells").is_dir() and name in (None, outputs.name):  # one level too deep
        outputs, name = outputs.resolve().parent, outputs.resolve().name
    folders = _roots(outputs)
    names = ", ".join(sorted(path.name for path in folders)) or "none"
    if name is not None:
        root = outputs / check_name(name)
        if root not in folders:
            raise HpmlError(f"no study {name} in {outputs} (studies: {names})")
    else:
        if not folders:
            raise no_study(outputs)
        root = max(folders, key=lambda folder: (os.access(folder, os.X_OK), submitted_at(folder)))
    study = Study(root)
    study.check_schema()
    return study


def _roots(outputs: Path) -> list[Path]:
    """Return the folders of the studies in a folder; one that may not be entered is a study too.

    Raises:
        HpmlError: the folder exists and cannot be read.
    """
    with reading(outputs):
        try:
            return [path for path in outputs.iterdir() if is_study(path)]
        except (FileNotFoundError, NotADirectoryError):
            return []


def is_study(path: Path) -> bool:
    """Return whether a folder is a study, or one that may not be entered."""
    try:
        return (path / "cells").is_dir()
    except OSError:
        return path.is_dir() and not path.name.startswith(".")


def submitted_at(root: Path) -> float:
    """Return when a study was last submitted, else made, in seconds since 1970; 0 if unknown."""
    study = Study(root)
    return last_time(study.manifest) or study.created or 0.0


def matching(items: Iterable[OfCell], pattern: str, study: str) -> list[OfCell]:
    """Return the items whose slug is or matches the pattern.

    Raises:
        HpmlError: none does; the message lists slugs of the study.
    """
    candidates = list(items)
    matches = [item for item in candidates if fnmatchcase(item.slug, pattern)]
    if not matches:
        names = ", ".join(item.slug for item in candidates[:SHOWN_CELLS]) or "none"
        more = len(candidates) - SHOWN_CELLS
        names += f", and {more} more" if more > 0 else ""
        raise HpmlError(f"no cell of study {study} matches {pattern}; its cells: {names}")
    return matches
