"""Merge a study's records into tables and pictures; write them into its folder.

The report folder:

    tables.md, tables.tex   the tables as they are read, caption and notes under each
    tables.json             unrounded numbers, units in their names; notes and missing cells
    q1.csv, table1.csv, …   the lab's tables as sheets: a column per batch and quantity, unrounded
    scaling.csv, …          a full table each, unrounded, units in the names, all groups in one
    curves.csv              loss, seconds and learning rate of every iteration of every run
    speedup.png, .svg, …    pictures (docs/pictures.md); .pictures.json says what they show
    cells.csv               one row per cell, those without numbers too: raw values and facts
"""

import errno
from collections.abc import Iterable, Mapping
from pathlib import Path

from hpml_jobs.errors import HpmlError
from hpml_jobs.report import plots
from hpml_jobs.report.formats import csv_tables, json_tables, latex, markdown
from hpml_jobs.report.formats.csv_curves import curves_csv
from hpml_jobs.report.merge.cells import cell_results
from hpml_jobs.report.plots import unchanged
from hpml_jobs.report.report import DEFAULTS, LABELS, TOGETHER, Report, ReportOptions, merge
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.files import write_whole
from hpml_jobs.study.snapshot import FolderSnapshot


class ReadOnlyError(HpmlError):
    """A report cannot be written into a folder that may only be read."""


def make_report(
    study: str,
    snapshots: Iterable[FolderSnapshot],
    states: Iterable[CellState],
    options: ReportOptions = DEFAULTS,
) -> Report:
    """Return the report of a study: `snapshots` hold the records, `states` why one is missing."""
    by_slug = {state.slug: state for state in states}
    return merge(study, cell_results(snapshots, by_slug), options)


def write(report: Report, folder: Path) -> list[Path]:
    """Write tables and pictures, each file whole or not at all; the same report, the same bytes.

    Pictures that are there and show the same are not drawn again.

    Raises:
        ReadOnlyError: the folder may not be written.
        HpmlError: the folder cannot be written.
    """
    curves = curves_csv(report)
    tables = json_tables.document(report)
    digest = unchanged.digest(report, tables)
    kept = unchanged.kept(folder, digest)
    pictures = plots.plots(report) if kept is None else {}
    contents: dict[str, str | bytes] = {
        "tables.md": markdown.document(report),
        "tables.tex": latex.document(report),
        "tables.json": tables,
        **csv_tables.sheets(report),
        **({"curves.csv": curves} if curves else {}),
        **pictures,
    }
    names = [*contents, *(kept or ())]
    changing = [*(f"{label}.csv" for label in (*LABELS, *TOGETHER, "curves")), *plots.names()]
    has_report = (folder / "tables.json").exists()
    gone = [name for name in changing if has_report and name not in names]
    note = {unchanged.FILE: unchanged.note(digest, pictures)} if kept is None else {}
    write_files({**contents, **note}, folder, gone)
    return [folder / name for name in names]


def write_files(
    contents: Mapping[str, str | bytes], folder: Path, gone: Iterable[str] = ()
) -> list[Path]:
    """Write files into a report's folder, each whole or not at all, then remove the `gone` ones.

    Raises:
        ReadOnlyError: the folder may not be written.
        HpmlError: the folder cannot be written.
    """
    path = folder
    try:
        for name, text in contents.items():
            path = folder / name
            write_whole(path, text if isinstance(text, bytes) else text.encode())
        for path in (folder / name for name in gone):  # of an earlier collect
            path.unlink(missing_ok=True)
    except OSError as fault:
        is_read_only = fault.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
        error = ReadOnlyError if is_read_only else HpmlError
        raise error(f"report {path} cannot be written: {fault.strerror}") from fault
    return [folder / name for name in contents]
