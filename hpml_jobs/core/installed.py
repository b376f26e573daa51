"""What is installed in the folders of Python's path, by the metadata beside it."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

import msgspec

SOURCES = "src"
"""The folder of a project that has its packages, and then their metadata."""


def is_installed(path: Path, folders: Iterable[Path]) -> bool:
    """Return whether metadata in one of the folders of Python's path names a file there."""
    return any(_is_listed(path, folder, _installed) for folder in folders)


def is_of_another_project(
    path: Path, folders: Iterable[Path], own_folders: Sequence[Path]
) -> bool:
    """Return whether a file is of a project that is developed elsewhere than in `own_folders`.

    It is installed in place: metadata names its package (`pip install -e`, `setup.py develop`).
    """
    for folder in folders:
        project = folder.parent if folder.name == SOURCES else folder
        if not _overlaps(project, own_folders) and _is_listed(path, folder, _developed):
            return True
    return any(
        path.is_relative_to(project) and not _overlaps(project, own_folders)
        for project in _projects()
    )


def _overlaps(project: Path, folders: Iterable[Path]) -> bool:
    return any(
        folder.is_relative_to(project) or project.is_relative_to(folder)
        for folder in folders
    )


def _is_listed(
    path: Path, folder: Path, names_in: Callable[[Path], frozenset[str]]
) -> bool:
    if not path.is_relative_to(folder):
        return False
    way = path.relative_to(folder)
    names = names_in(folder)
    return way.as_posix() in names or way.parts[0].removesuffix(".py") in names


@cache
def _installed(folder: Path) -> frozenset[str]:
    """Return the files, or the packages, that were copied into a folder, by its metadata."""
    names: set[str] = set()
    for about in folder.glob("*.dist-info"):
        rows = csv.reader(_text(about / "RECORD").splitlines())
        names |= {row[0] for row in rows if row} or _packages(about)
    return frozenset(names)


@cache
def _developed(folder: Path) -> frozenset[str]:
    """Return the packages of a folder in which they are developed, by its metadata."""
    return frozenset().union(*map(_packages, folder.glob("*.egg-info")))


def _packages(about: Path) -> set[str]:
    return {*_text(about / "top_level.txt").split()}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@cache
def _projects() -> tuple[Path, ...]:
    return tuple(_read_projects())


def _read_projects() -> Iterator[Path]:
    for package in metadata.distributions():
        text = package.read_text("direct_url.json")
        try:
            origin = msgspec.json.decode(text or "{}", type=_Origin)
        except ValueError:
            continue
        if origin.dir_info.get("editable"):
            yield Path(unquote(urlparse(origin.url).path)).resolve()


class _Origin(msgspec.Struct):
    """Where a package was installed from: direct_url.json of Python's packaging standard."""

    url: str = ""
    dir_info: dict[str, bool] = {}
