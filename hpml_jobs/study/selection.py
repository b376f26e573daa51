"""Selection of a study by a word, and of its cells by a pattern."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol, TypeVar

from hpml_jobs.errors import HpmlError

SHOWN_CELLS = 10
"""Number of cells that an error message lists."""


class _HasSlug(Protocol):
    """Anything of a cell: a folder, a state, a record."""

    @property
    def slug(self) -> str: ...


OfCell = TypeVar("OfCell", bound=_HasSlug)


def name_and_outputs(word: str | None, outputs: Path) -> tuple[str | None, Path]:
    """Return the study's name and the folder of the studies, of a word in one of its forms.

    It may be a name, study=NAME, or a study's folder.
    """
    key, is_pair, value = (word or "").partition("=")
    if is_pair and key == "study":
        return value, outputs
    folder = Path(word or "").expanduser()
    if word and "/" in word and (folder / "cells").is_dir():
        return folder.resolve().name, folder.resolve().parent
    return word, outputs


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
