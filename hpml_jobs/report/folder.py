"""Write a report into its folder:

    tables.json             unrounded numbers, units in their names; notes and missing cells
    q1.csv, table1.csv, …   the lab's tables as sheets: a column per batch and quantity, unrounded
    scaling.csv, …          with --all a full table each, unrounded, all groups in one
    cells.csv               one row per cell, those without numbers too: raw values and facts
    report.html, report.md  the page (docs/results.md)
    speedup.png, gap.png, … its pictures (docs/results.md)

Features add files of their own. A file that would not change is not written.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text import printable_bytes
from hpml_jobs.report.files import frames, json_tables, latex
from hpml_jobs.report.page.contents import HTML, MARKDOWN, Questions, files
from hpml_jobs.report.report import LABELS, PLOTS, Report
from hpml_jobs.study.files import read_from, write_whole, writing

TABLES = "tables.json"
LATEX = "tables.tex"
CURVES = "curves.csv"

HEAD_BYTES = 2_000
"""The mark of a report is among so many first bytes of a file."""

Contents: TypeAlias = Mapping[str, str | bytes]
"""The contents of files by name."""

SHEET_FILES = (
    *(f"{label}.csv" for label in LABELS),
    LATEX,
    CURVES,
)
"""The names of the tables' files that not every report has."""

_PICTURES = tuple(f"{name}.png" for name in PLOTS)
"""The names of the pictures' files that not every report has."""

_OF_PAGE = frozenset((HTML, MARKDOWN, *_PICTURES))

_MARKS = {HTML: b'name="generator" content="hpml_jobs', TABLES: b'"schema":'}
"""What a report's page and tables have among their first bytes."""


def write_all(
    report: Report, folder: Path, questions: Questions, *, has_all: bool
) -> list[Path]:
    """Write page, pictures and tables, each file whole or not at all; the same report, same bytes.

    `questions` makes a section before the answer of a lab's page. `has_all`: CSV of all tables.

    Raises:
        UsageError: the folder has files of the same names that no report wrote.
        ReadOnlyError: the folder may not be written.
        HpmlError: the folder cannot be written.
    """
    make(folder)  # before pictures are drawn, which takes seconds
    contents = {**tables(report, has_all=has_all), **files(report, questions)}
    return write(contents, folder, (*SHEET_FILES, *_PICTURES))


def tables(report: Report, *, has_all: bool) -> Contents:
    """Return the files of tables by name, in their order; CSV of the first ones, or of all."""
    texts: dict[str, str | bytes] = {
        LATEX: latex.document(report),
        TABLES: json_tables.document(report),
        **frames.csv_files(report, has_all=has_all),
        CURVES: frames.curves_csv(report) or "",
    }
    return {name: text for name, text in texts.items() if text}


def _owner(folder: Path) -> Callable[[str], bool]:
    """Return whether a file of this name in a folder is of an earlier report."""
    if (folder.parent / "cells").is_dir():  # the report folder of a study
        return lambda _: True
    has = {}
    for name, mark in _MARKS.items():
        has[name] = mark in read_from(folder / name, 0, HEAD_BYTES)
    return lambda name: has[HTML if name in _OF_PAGE else TABLES]


def write(
    contents: Contents,
    folder: Path,
    changing: Iterable[str],
    is_ours: Callable[[str], bool] | None = None,
) -> list[Path]:
    """Write files; of the `changing` names, remove those that an earlier report wrote.

    Raises:
        UsageError: a file would be written over that no report wrote.
    """
    is_ours = is_ours or _owner(folder)
    changed = {}
    for name, text in contents.items():
        path = folder / name
        content = printable_bytes(text.encode()) if isinstance(text, str) else text
        with writing(f"report {path}"):
            if not (path.is_file() and path.read_bytes() == content):
                changed[path] = content
    others = [path.name for path in changed if not is_ours(path.name)]
    names = [name for name in others if os.path.lexists(folder / name)]
    if names:
        raise UsageError(
            f"{', '.join(names)} would be written over, and no report wrote it: name an empty or "
            "a new folder with --to"
        )
    for path, content in changed.items():
        with writing(f"report {path}"):
            write_whole(path, content)
    for path in [folder / name for name in changing if name not in contents]:
        with writing(f"report {path}"):
            if is_ours(path.name):
                path.unlink(missing_ok=True)
    return [folder / name for name in contents]


def make(folder: Path) -> None:
    """Make the folder of a report, where it is not there.

    Raises:
        ReadOnlyError: it may not be made.
        HpmlError: it cannot be made.
    """
    with writing(f"report {folder}"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as fault:
            raise HpmlError(
                f"report {folder} cannot be written: a file is there; name a folder"
            ) from fault
