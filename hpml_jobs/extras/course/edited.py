"""Texts that a student may edit: an edited one is kept, and the new one is written beside it."""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.study.files import open_regular, reading


class PlacedTexts(NamedTuple):
    """Texts by the name of the file that they are written to, and the hashes of all of them.

    `kept` are the edited files of these texts, each with the name of the new file beside it; empty
    where the program has nothing new to write. `unneeded` are unedited files of an earlier call.
    """

    contents: dict[str, str]
    hashes: dict[str, str]
    kept: dict[str, str]
    unneeded: list[str]


def placed(
    folder: Path, texts: Mapping[str, str], written: Mapping[str, str]
) -> PlacedTexts:
    """Return where texts are written; `written` are the hashes of earlier ones by file name.

    Raises:
        HpmlError: a file cannot be read.
    """
    contents, kept = {}, {}
    for name, text in texts.items():
        new = _hash(text)
        for file in _numbered(name):
            if not _is_edited(folder / file, {written.get(file), new}):
                break
        is_new = new not in written.values() or file in written
        if is_new:
            contents[file] = text
        if file != name:
            kept[name] = file if is_new else ""
    unneeded, hashes = [], {file: _hash(text) for file, text in contents.items()}
    for file in written.keys() - contents.keys():
        if _is_edited(folder / file, {written[file]}):
            hashes[file] = written[file]
        else:
            unneeded.append(file)
    return PlacedTexts(contents, hashes, kept, unneeded)


def _numbered(name: str) -> Iterator[str]:
    """Yield `report.md`, `report-2.md`, `report-3.md`, …"""
    yield name
    path = Path(name)
    for number in count(2):
        yield f"{path.stem}-{number}{path.suffix}"


def _is_edited(path: Path, hashes: set[str | None]) -> bool:
    """Return whether a file is there that has none of these hashes."""
    if not path.exists():
        return False
    with reading(path), open_regular(path) as file:
        return hashlib.sha256(file.read()).hexdigest() not in hashes


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
