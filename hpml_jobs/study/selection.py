"""Finding a study by a word, and its cells by a pattern."""

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol, TypeVar

from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.text import alike, did_you_mean
from hpml_jobs.study.files import reading
from hpml_jobs.study.manifest import last_time
from hpml_jobs.study.study import Study

SHOWN_CELLS = 10
"""Number of cells that an error message lists."""

OUTPUTS = "outputs"
"""The default of outputs=: the folder of the studies, in the folder of a submission."""

LEVELS = 5
"""How many folders above the current one are searched for a study."""

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
    latest_first = sorted(_roots(outputs), key=submitted_at, reverse=True)
    return [*map(Study, latest_first)]


def no_study(outputs: Path) -> HpmlError:
    """Return the error of a folder without studies."""
    if (Path.cwd() / "cells").is_dir():
        remedy = "; the current folder is a study: name it as ."
    else:
        remedy = ": submit one first, or name the folder with --outputs FOLDER"
    return HpmlError(f"no study in {outputs.absolute()}{remedy}")


def find(outputs: Path, word: str | None) -> Study:
    """Return the study of a word; without one, the most recently submitted study.

    The word is the study's name, study=NAME, or a path: the study's folder, or FOLDER/NAME of a
    study in FOLDER/outputs.

    Raises:
        HpmlError: it does not exist or cannot be read; the message names the folder, and the
            studies in it.
        UsageError: the word is a file.
    """
    name = word.removeprefix("study=") if word else None
    if name and is_path(name):
        return _checked(_by_path(name))
    # one level too deep
    if (outputs / "cells").is_dir() and name in (None, outputs.name):
        outputs, name = outputs.resolve().parent, outputs.resolve().name
    folders = _roots(outputs)
    if name is not None:
        name = check_name(name.rstrip("/"))
        if outputs / name not in folders:
            raise _no_study_of_name(
                name, outputs, sorted(path.name for path in folders)
            )
        return _checked(outputs / name)
    if not folders:
        raise no_study(outputs)
    latest = max(
        folders, key=lambda path: (os.access(path, os.X_OK), submitted_at(path))
    )
    return _checked(latest)


def _no_study_of_name(name: str, outputs: Path, names: Sequence[str]) -> HpmlError:
    listed = ", ".join(names) or "none"
    message = f"no study {name} in {outputs.absolute()} (studies: {listed})"
    elsewhere = _elsewhere(name)
    if elsewhere:
        return HpmlError(f"{message}; there is one in another folder: {elsewhere}")
    if Path(name).is_file():
        raise UsageError(
            f"{name} is a file; an archive becomes a study by: tar xzf {name} -C {outputs}"
        )
    return HpmlError(f"{message}{did_you_mean(alike(name, names))}")


def _checked(root: Path) -> Study:
    study = Study(root)
    study.check_schema()
    return study


def is_path(word: str) -> bool:
    """Return whether a word is a path; NAME/, which a shell completes, may be a name.

    >>> is_path("outputs/mine"), is_path("."), is_path("mine/"), is_path("mine")
    (True, True, False, False)
    """
    return "/" in word.rstrip("/") or word in (".", "..", "~")


def _by_path(word: str) -> Path:
    """Return the folder of the study that a path names."""
    folder = resolve_path(word)
    for root in (folder, folder.parent / OUTPUTS / folder.name):
        if (root / "cells").is_dir():
            return root
    around = next((parent for parent in folder.parents if is_study(parent)), None)
    if around:
        raise HpmlError(f"{folder} is inside of a study; name the study: {around}")
    studies = [*_roots(folder), *_roots(folder / OUTPUTS)]
    names = ", ".join(sorted(path.name for path in studies))
    inside = f"; name a study in it: {names}" if studies else ""
    near = did_you_mean(
        alike(folder.name, (path.name for path in _roots(folder.parent)))
    )
    remedy = inside or near
    raise HpmlError(f"no study in {folder}: it has no folder cells/{remedy}")


def _elsewhere(name: str) -> Path | None:
    """Return the folder of the only study of a name in folders of studies near the current one.

    These are the current folder and those above it, and `outputs` in each.
    """
    here = Path.cwd()
    folders = [here, *here.parents[:LEVELS]]
    folders += [folder / OUTPUTS for folder in folders]
    with_name = {
        (folder / name).resolve() for folder in folders if is_study(folder / name)
    }
    return with_name.pop() if len(with_name) == 1 else None


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
        if any(pattern in item.slug for item in candidates):
            raise HpmlError(
                f"no cell of study {study} is named {pattern}: write '*{pattern}*'"
            )
        names = ", ".join(item.slug for item in candidates[:SHOWN_CELLS]) or "none"
        more = len(candidates) - SHOWN_CELLS
        names += f", and {more} more" if more > 0 else ""
        raise HpmlError(
            f"no cell of study {study} matches {pattern}; its cells: {names}"
        )
    return matches
