"""What is installed in the folders of Python's path, by the metadata beside it."""

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

import msgspec


def is_installed(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether metadata in one of the folders of Python's path names a file there."""
    return any(_is_listed(path, folder) for folder in folders)


def is_of_another_project(path: Path, own_folders: Sequence[Path]) -> bool:
    """Return whether a file is of a project that is developed elsewhere than in `own_folders`.

    It is installed in place, by `pip install -e`.
    """
    return any(
        path.is_relative_to(project) and not _overlaps(project, own_folders)
        for project in _projects()
    )


def _overlaps(project: Path, folders: Iterable[Path]) -> bool:
    return any(
        folder.is_relative_to(project) or project.is_relative_to(folder)
        for folder in folders
    )


def _is_listed(path: Path, folder: Path) -> bool:
    if not path.is_relative_to(folder):
        return False
    way = path.relative_to(folder)
    names = _installed(folder)
    return way.as_posix() in names or way.parts[0].removesuffix(".py") in names


@cache
def _installed(folder: Path) -> frozenset[str]:
    """Return the files, or the packages, that were copied into a folder, by its metadata."""
    names: set[str] = set()
    for about in folder.glob("*.dist-info"):
        rows = csv.reader(_text(about / "RECORD").splitlines())
        files = {row[0] for row in rows if row}
        names |= files or {*_text(about / "top_level.txt").split()}
    return frozenset(names)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@cache
def _projects() -> list[Path]:
    """Return the folders of the projects that are installed in place."""
    projects = []
    for package in metadata.distributions():
        text = package.read_text("direct_url.json")
        try:
            origin = msgspec.json.decode(text or "{}", type=_Origin)
        except ValueError:
            continue
        if origin.dir_info.get("editable"):
            projects.append(Path(unquote(urlparse(origin.url).path)).resolve())
    return projects


class _Origin(msgspec.Struct):
    """Where a package was installed from: direct_url.json of Python's packaging standard."""

    url: str = ""
    dir_info: dict[str, bool] = {}
