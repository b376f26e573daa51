"""Command collect."""

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.completion import studies
from hpml_jobs.cli.console import console
from hpml_jobs.cli.options import (
    REPORT_KEYS,
    Json,
    Outputs,
    Strict,
    StudySelection,
    cluster_of,
    find_study,
    parse_words,
)
from hpml_jobs.cli.status import show_until_idle
from hpml_jobs.core.text import counted
from hpml_jobs.slurm.states import Outcome

if TYPE_CHECKING:
    from hpml_jobs.report.report import Report
    from hpml_jobs.status.states import StudyStatus
    from hpml_jobs.study.study import Study

WATCH_S = 5.0
"""The refresh interval while cells are waited for."""


def collect(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STUDY] [KEY=VALUE]",
            help="study, default: the most recently submitted; key: baseline=smallest",
            autocompletion=studies,
        ),
    ] = None,
    outputs: Outputs = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="wait until no cell is pending or running")
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FOLDER", help="folder of the report; default: report/ in the study"
        ),
    ] = None,
    all_tables: Annotated[bool, typer.Option("--all", help="print all tables")] = False,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Print what a study says, and write its tables and figures into its report/ folder.

    Formats: md, csv, tex and json; png and svg. Of a study that you may only read, nothing is
    written; --to writes elsewhere. Speedups are against 1 GPU;
    with baseline=smallest, where there is no single-GPU cell, against the smallest measured size.

    Example: hpml-jobs collect digits-local
    """
    name, values = parse_words("collect", words, REPORT_KEYS)
    selected = find_study(name, outputs)
    status = _status(selected, wait=wait, out_of_the_way=json)
    from hpml_jobs.report.collect import make_report
    from hpml_jobs.report.report import ReportOptions
    from hpml_jobs.study.snapshot import restore_records

    if status.fault:
        print(f"warning: {status.fault}; jobs that only it names are not shown", file=sys.stderr)
    report = make_report(
        selected.name,
        status.snapshots,
        status.states,
        ReportOptions(cluster_of(selected), selected.commands(), **values),
    )
    restore_records(status.snapshots)
    if json:
        from hpml_jobs.report.formats import json_tables

        print(json_tables.document(report), end="")
    else:
        from hpml_jobs.report.formats import first_screen, screen

        (screen if all_tables else first_screen).show(report, console())
    _write(report, selected, to, json=json)
    if strict and not all(state.outcome.finished for state in status.states):
        raise typer.Exit(1)


def _write(report: "Report", study: "Study", to: Path | None, *, json: bool) -> None:
    """Write the report; of a study that may only be read, say that it was not written.

    Raises:
        HpmlError: the folder that was named, or the user's own study, cannot be written.
    """
    from hpml_jobs.report.collect import ReadOnlyError, write

    folder = study.report if to is None else to.expanduser()
    try:
        written = write(report, folder)
    except ReadOnlyError as fault:
        if to is not None:
            raise
        print(
            f"no file was written: {fault}; hpml-jobs collect {study.name} --to FOLDER writes the "
            "report elsewhere",
            file=sys.stderr,
        )
    else:
        if not json:
            print(f"written: {_files(written)} in {folder}")


def _status(study: "Study", *, wait: bool, out_of_the_way: bool) -> "StudyStatus":
    """Return the study's status, with `wait` once no cell is pending or running.

    The states are shown meanwhile, on standard error if `out_of_the_way`.
    """
    from hpml_jobs.status.states import study_status
    from hpml_jobs.study.snapshot import RecordCache

    cache = RecordCache()
    status = study_status(study, cache=cache)
    may_change = any(s.outcome.active or s.outcome is Outcome.UNKNOWN for s in status.states)
    if not (wait and may_change):
        return status
    with contextlib.redirect_stdout(sys.stderr if out_of_the_way else sys.stdout):
        return show_until_idle(StudySelection(study), WATCH_S, cache=cache)


def _files(written: Sequence[Path]) -> str:
    """Return the report's files in short: tables by name, CSV files counted, pictures by name."""
    tables = [path.name for path in written if path.stem == "tables"]
    pictures = [path.stem for path in written if path.suffix == ".png"]
    sheets = sum(path.suffix == ".csv" for path in written)
    parts = [*tables, counted(sheets, "CSV file")]
    parts += [f"pictures of {', '.join(pictures)} (PNG, SVG)"] if pictures else []
    return ", ".join(parts)
