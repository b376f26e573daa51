"""Merge a study's records into the lab's tables and the full ones; write them into its folder.

The report folder:

    tables.md, tables.tex   the tables as they are read, caption and notes under each
    tables.json             unrounded numbers, units in their names; notes and missing cells
    q1.csv, table1.csv, …   the lab's tables as sheets: a column per batch and quantity, unrounded
    scaling.csv, …          a full table each, unrounded, units in the names, all groups in one
    curves.csv              loss, seconds and learning rate of every iteration of every run
    cells.csv               one row per cell, those without numbers too: raw values and facts
"""

from collections.abc import Mapping
from pathlib import Path

from hpml_jobs.errors import HpmlError
from hpml_jobs.files import write_whole
from hpml_jobs.report import found, latex, machine, markdown, sheets
from hpml_jobs.report.curves_csv import curves_csv
from hpml_jobs.report.groups import FULL, Report, merge
from hpml_jobs.study import CellState, Study


def collect(study: Study, states: Mapping[str, CellState]) -> Report:
    """The study's tables. `states` tells, by slug, why a cell has no valid record."""
    return merge(study.name, found.read(study, states))


def write(report: Report, folder: Path) -> list[Path]:
    """Write every form of the tables, each file whole or not at all; the same report, same bytes.

    Raises:
        HpmlError: the folder cannot be written.
    """
    curves = curves_csv(report)
    contents = {
        "tables.md": markdown.document(report),
        "tables.tex": latex.document(report),
        "tables.json": machine.document(report),
        **sheets.sheets(report),
        **({"curves.csv": curves} if curves else {}),
    }
    paths = []
    for name, text in contents.items():
        path = folder / name
        try:
            write_whole(path, text.encode())
        except OSError as fault:
            raise HpmlError(f"report {path} cannot be written: {fault.strerror}") from fault
        paths.append(path)
    for label in (*FULL, "curves"):  # of an earlier collect, and this one does not have it
        if f"{label}.csv" not in contents:
            (folder / f"{label}.csv").unlink(missing_ok=True)
    return paths
