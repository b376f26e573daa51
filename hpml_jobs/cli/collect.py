"""Command collect."""

import contextlib
import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import structs
from typer import Option

from hpml_jobs.cli.console import console, print_note
from hpml_jobs.cli.hints import changed_code, not_replaced
from hpml_jobs.cli.options import (
    Json,
    Outputs,
    ReportWords,
    Strict,
    StudyPattern,
    find_study,
    parse_words,
    study_words,
)
from hpml_jobs.cli.status import check_finished, show_until_idle
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import typed_path
from hpml_jobs.study.files import ReadOnlyError
from hpml_jobs.study.study import limit_of

if TYPE_CHECKING:
    from hpml_jobs.report.report import Report
    from hpml_jobs.status.states import StudyStatus
    from hpml_jobs.study.study import Study


def collect(
    words: ReportWords = None,
    outputs: Outputs = None,
    wait: Annotated[
        bool, Option("--wait", help="wait until no cell is pending or running")
    ] = False,
    to: Annotated[
        Path | None,
        Option(
            "--to",
            metavar="FOLDER",
            help="folder of the report; default: report/ in the study",
        ),
    ] = None,
    all_tables: Annotated[
        bool,
        Option("--all", help="print all tables and checks, and write a CSV of each"),
    ] = False,
    is_opened: Annotated[
        bool, Option("--open", help="open the page in a browser")
    ] = False,
    handin: Annotated[
        Path | None,
        Option(
            "--handin",
            metavar="FOLDER",
            help="write into a new FOLDER what the lab hands in: page, PDF, text to edit, commands",
        ),
    ] = None,
    student: Annotated[
        str | None,
        Option("--name", metavar="TEXT", help="your name and number, for --handin"),
    ] = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Print the answer and Table 1 of a study; write all tables and a page into report/.

    With min_efficiency=0.8, as after auto, the answer is the most GPUs with at least that
    efficiency; with epochs=90 gpu_hours=50 the fastest cell within that budget. Speedups
    compare with 1 GPU, or where no cell has 1 GPU with the smallest size that was measured.
    With --json it prints JSON and writes nothing.

    Example: hpml-jobs collect demo min_efficiency=0.8
    """
    if json and (to or is_opened or handin or all_tables):
        raise UsageError(
            "--json prints all tables, and writes nothing: leave --to, --open, --handin and --all "
            "out"
        )
    name, values = parse_words(words or [])
    selected = find_study(name, outputs)
    if student is not None and handin is None:
        raise UsageError("--name is for a hand-in: add --handin FOLDER")
    report, status = _report(selected, values, wait=wait)
    if json:
        from hpml_jobs.report.files import json_tables

        print(json_tables.document(report).decode(), end="")
    else:
        from hpml_jobs.report.files.screen import show_all, show_first

        if handin:
            print(_hand_in(report, handin, student))
        else:
            show = show_all if all_tables else show_first
            # as commands select it, --outputs included
            show(structs.replace(report, study=study_words(selected)), console())
        page = _write(report, selected, to, all_tables)
        if page:
            print(f"The page with tables and pictures: {page}")
            if is_opened:
                webbrowser.open(page.resolve().as_uri())
    if strict:
        changed = changed_code(status.snapshots)
        check_finished(not_replaced(status.states, changed), strict=strict)


def _report(
    study: "Study", values: dict[str, Any], *, wait: bool
) -> "tuple[Report, StudyStatus]":
    """Return the report of a study with the states of its cells, of which SLURM is asked.

    With `wait`, cells that are pending or running are waited for.
    """
    from hpml_jobs.report.choice import Wish
    from hpml_jobs.status.states import study_status

    commands = study.commands()
    # after auto, the limit is that of the submission
    wish = Wish(**values) if values else Wish(min_efficiency=limit_of(commands))
    if wait:
        # the states are shown meanwhile
        with contextlib.redirect_stdout(sys.stderr):
            status = show_until_idle(StudyPattern(study))
    else:
        status = study_status(study)
    # else numpy starts a thread per CPU of the node, which a report does not need
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hpml_jobs.report.report import ReportOptions, make_report
    from hpml_jobs.study.snapshot import restore_records

    if status.fault:
        print_note(f"warning: {status.fault}; jobs that only it names are not shown")
    options = ReportOptions(study.last_cluster(), commands, wish)
    report = make_report(study.name, status.snapshots, status.states, options)
    restore_records(status.snapshots)
    return report, status


def _write(
    report: "Report", study: "Study", to: Path | None, has_all: bool
) -> Path | None:
    """Write the files of a report and return its page; None if the study may only be read.

    Raises:
        HpmlError: the folder that was named, or the user's own study, cannot be written.
    """
    from hpml_jobs.lab.questions import section
    from hpml_jobs.report.folder import write_all
    from hpml_jobs.report.page.contents import HTML

    try:
        folder = typed_path(to) if to else study.report
        write_all(report, folder, section, has_all=has_all)
    except ReadOnlyError as fault:
        if to is not None:
            raise
        print_note(f"no file was written: {fault}; --to FOLDER writes elsewhere")
        return None
    return folder / HTML


def _hand_in(report: "Report", folder: Path, student: str | None) -> str:
    """Write what is handed in, and return what to do with it."""
    from hpml_jobs.lab.handin import write_handin

    write_handin(report, typed_path(folder), student)
    return (
        f"Replace YOUR WORDS in {folder}/report.md and hand it in with the pictures beside it; "
        "report.html and (where Chromium is) report.pdf are without your words"
    )
