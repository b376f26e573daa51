"""Commands collect, report and record."""

import contextlib
import os
import sys
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import structs
from rich.console import Console
from rich.text import Text
from typer import Option

from hpml_jobs.cli.commands import repeated
from hpml_jobs.cli.console import console, print_json, print_note
from hpml_jobs.cli.hints import REPLACED, changed_code, current_and_replaced
from hpml_jobs.cli.options import (
    REPORT_KEYS,
    Json,
    Outputs,
    Pattern,
    ReportWords,
    Strict,
    StudyName,
    StudySelection,
    commands_here,
    find_study,
    history_of,
    parse_words,
    select_study,
    study_words,
)
from hpml_jobs.cli.status import check_finished, show_until_idle
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.paths import typed_path
from hpml_jobs.core.text import PROGRAM, counted, with_command
from hpml_jobs.study.snapshot import read_study

if TYPE_CHECKING:
    from hpml_jobs.report.key_numbers import CellSummary
    from hpml_jobs.report.report import Report
    from hpml_jobs.status.states import StudyStatus
    from hpml_jobs.study.study import Study

WATCH_S = 5.0
"""The refresh interval while cells are waited for."""

ReportFolder = Annotated[
    Path | None,
    Option(
        "--to",
        metavar="FOLDER",
        help="folder of the report; default: report/ in the study",
    ),
]
"""The option of where a report is written."""


def collect(
    words: ReportWords = None,
    outputs: Outputs = None,
    wait: Annotated[
        bool, Option("--wait", help="wait until no cell is pending or running")
    ] = False,
    to: ReportFolder = None,
    all_tables: Annotated[bool, Option("--all", help="print all tables")] = False,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Print the answer and the first tables of a study; write all tables into its folder report/.

    They are Markdown, CSV, LaTeX and JSON files; hpml-jobs report draws pictures. If you may only
    read the study, name another folder with --to. Speedups compare with 1 GPU. If no cell has 1
    GPU, baseline=smallest compares with the smallest size that was measured.

    Example: hpml-jobs collect demo
    """
    name, values = parse_words("collect", words, REPORT_KEYS)
    selected = find_study(name, outputs, REPORT_KEYS)
    from hpml_jobs.report.folder import make, write_tables

    if to is not None:
        make(typed_path(to))
    report, status = current_report(selected, values, wait=wait, out_of_the_way=json)

    def write() -> list[Path]:
        return write_report(selected, to, lambda folder: write_tables(report, folder))

    written = None if to is None else write()  # what is refused is refused first
    if json:
        from hpml_jobs.report.files import json_tables

        print(json_tables.document(report).decode(), end="")
    else:
        _show(report, selected, all_tables=all_tables)
    if written is None:
        written = write()
    if written and not json:
        _say_what_is_written(written, report, selected)
    if strict:
        changed = changed_code(status.snapshots)
        current_states, _ = current_and_replaced(status.states, changed)
        check_finished(current_states, strict=strict)


def _show(report: "Report", study: "Study", *, all_tables: bool) -> None:
    from hpml_jobs.report.files.screen import show_all, show_first

    # as commands select it, --outputs included
    commands = commands_here(study, report.commands)
    here = structs.replace(report, study=study_words(study), commands=commands)
    show = show_all if all_tables else show_first
    show(here, console())


def _say_what_is_written(written: list[Path], report: "Report", study: "Study") -> None:
    from hpml_jobs.report.page import HTML
    from hpml_jobs.report.page.contents import is_outdated, records_of

    folder = written[0].parent
    print(f"written: {_files(written)} in {folder}")
    if is_outdated(folder / HTML, records_of(report)):
        sentence = "the page in it is of other records; to write it again"
        print(with_command(sentence, f"{PROGRAM} report {study_words(study)}"))


def current_report(
    study: "Study",
    values: dict[str, Any],
    *,
    wait: bool = False,
    out_of_the_way: bool = False,
) -> "tuple[Report, StudyStatus]":
    """Return the report of a study with the states of its cells, of which SLURM is asked.

    `values` are those of REPORT_KEYS. With `wait`, cells that are pending or running are waited
    for.
    """
    status = _status(study, wait=wait, out_of_the_way=out_of_the_way)
    # else numpy starts a thread per CPU of the node, which a report does not need
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hpml_jobs.report.report import ReportOptions, make_report
    from hpml_jobs.study.snapshot import restore_records

    if status.fault:
        print_note(f"warning: {status.fault}; jobs that only it names are not shown")
    options = ReportOptions(study.last_cluster(), study.commands(), **values)
    report = make_report(study.name, status.snapshots, status.states, options)
    restore_records(status.snapshots)
    return report, status


def write_report(
    study: "Study", to: Path | None, write: Callable[[Path], list[Path]]
) -> list[Path]:
    """Write files into the folder of the report; of a study that may only be read, say so.

    Returns:
        the files; none if the study may only be read.

    Raises:
        HpmlError: the folder that was named, or the user's own study, cannot be written.
    """
    from hpml_jobs.report.folder import ReadOnlyError

    try:
        return write(study.report if to is None else typed_path(to))
    except ReadOnlyError as fault:
        if to is not None:
            raise
        print_note(f"no file was written: {fault}; --to FOLDER writes elsewhere")
        return []


def _status(study: "Study", *, wait: bool, out_of_the_way: bool) -> "StudyStatus":
    """Return the study's status, with `wait` once no cell is pending or running.

    The states are shown meanwhile, on standard error if `out_of_the_way`.
    """
    from hpml_jobs.status.states import study_status
    from hpml_jobs.study.snapshot import RecordCache

    cache = RecordCache()
    status = study_status(study, cache=cache)
    if not (wait and any(state.outcome.may_run for state in status.states)):
        return status
    with contextlib.redirect_stdout(sys.stderr if out_of_the_way else sys.stdout):
        return show_until_idle(StudySelection(study), WATCH_S, cache=cache)


def _files(written: Sequence[Path]) -> str:
    """Return the files of tables in short: those of all tables by name, CSV files counted."""
    names = [path.name for path in written if path.stem == "tables"]
    sheets = sum(path.suffix == ".csv" for path in written)
    return ", ".join([*names, counted(sheets, "CSV file")])


DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of an environment in which a browser opens that does not take the terminal."""

IsOpened = Annotated[bool, Option("--open", help="open the page in a browser")]
"""The option that opens a page."""


def report(
    words: ReportWords = None,
    outputs: Outputs = None,
    to: ReportFolder = None,
    is_opened: IsOpened = False,
) -> None:
    """Write a page that can be handed in: report.html, and the same as report.md.

    The page has the answer, a paragraph for a proposal, pictures, tables, what to trust, answers
    to the questions of the lab, the method and the environment. The HTML file needs no other file
    and can be sent by email. The pictures are also written as PNG and SVG, and the tables as
    hpml-jobs collect writes them.

    Example: hpml-jobs report demo --open
    """
    name, values = parse_words("report", words, REPORT_KEYS)
    study = find_study(name, outputs, REPORT_KEYS)
    contents, _ = current_report(study, values)
    from hpml_jobs.report.folder import write_all
    from hpml_jobs.report.page import HTML, MARKDOWN

    written = write_report(study, to, lambda folder: write_all(contents, folder))
    if not written:
        raise typer.Exit(1)
    html = written[0].parent / HTML
    print(f"the page: {html}")
    pictures = [path.stem for path in written if path.suffix == ".png"]
    files = [MARKDOWN, "all tables"]
    if pictures:
        files.append(f"pictures of {', '.join(pictures)} (PNG, SVG)")
    print(f"beside it: {', '.join(files)}")
    if is_opened:
        open_page(html)


def open_page(path: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Open a file in the user's browser; where there is none, say so."""
    has_display = sys.platform == "darwin" or any(map(environment.get, DISPLAYS))
    file = path.resolve()
    if not (has_display and webbrowser.open(file.as_uri())):
        print(f"no browser here: copy {file} to your computer and open it there")


LEVEL_COLOURS = {Level.FAIL: "red", Level.WARN: "yellow", Level.PASS: "green"}
"""Levels with their colours, the most serious first."""


MOST_EXPLAINED = 5
"""The checks of a cell that are explained: with its numbers they fit on a screen of 24 lines."""


def record(
    study: StudyName = None,
    pattern: Pattern = None,
    outputs: Outputs = None,
    everything: Annotated[
        bool, Option("--all", help="show all numbers and checks of a cell")
    ] = False,
    json: Json = False,
) -> None:
    """Show what was measured in every cell, which checks failed or warn, and why.

    Example: hpml-jobs record demo 'ddp-2proc-*'
    """
    from hpml_jobs.report.key_numbers import summarize

    selection = select_study(study, pattern, outputs)
    snapshots = read_study(selection.study, history_of(selection.study))
    cells = selection.chosen(summarize(snapshots))
    if json:
        print_json({"study": selection.study.name, "cells": cells})
        return
    out = console()
    current_cells, replaced = current_and_replaced(cells, changed_code(snapshots))
    for cell in current_cells:
        _show_cell(out, cell, everything=everything)
    if replaced:
        out.print(Text(f"{counted(len(replaced), 'cell')} {REPLACED}:"))
    for cell in replaced:
        _show_cell(out, cell, everything=everything)
    if not everything:
        out.print(Text(with_command("All numbers and checks", f"{repeated()} --all")))


def _show_cell(out: Console, cell: "CellSummary", *, everything: bool) -> None:
    from hpml_jobs.report.key_numbers import in_short, lines

    has_state = cell.outcome is not Outcome.MISSING  # else it may be pending
    state = f"{cell.outcome.value} " if has_state else ""
    out.print(Text(f"==== {cell.slug}: {state}{cell.reason}".rstrip(), "bold"))
    numbers_text = lines if everything else in_short
    for line in numbers_text(cell.numbers):
        out.print(Text(f"  {line}"))
    order = [*LEVEL_COLOURS]
    ranked = sorted(cell.checks, key=lambda result: order.index(result.level))
    violated = [result for result in ranked if result.level is not Level.PASS]
    explained = ranked if everything else violated[:MOST_EXPLAINED]
    for result in explained:
        line_of_check = Text(f"  {result.level.value} ", LEVEL_COLOURS[result.level])
        line_of_check.append(f"{result.check}: {result.reason}", style="default")
        out.print(line_of_check)
    more = ", ".join(result.check for result in violated[len(explained) :])
    if more:
        out.print(Text(f"  more: {more}"))
    if cell.checks and not everything:
        passed = counted(len(ranked) - len(violated), "check")
        out.print(Text(f"  {passed} passed"))
