"""Command report with what is handed in."""

from pathlib import Path
from typing import Annotated

import typer

from hpml_jobs.cli import collect
from hpml_jobs.cli.collect import IsOpened, ReportFolder, current_report, open_page
from hpml_jobs.cli.options import (
    REPORT_KEYS,
    Outputs,
    ReportWords,
    find_study,
    parse_words,
)
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import typed_path
from hpml_jobs.core.text import counted


def report(  # noqa: D103  (its help is that of the kernel's command)
    words: ReportWords = None,
    outputs: Outputs = None,
    to: ReportFolder = None,
    handin: Annotated[
        Path | None,
        typer.Option(
            "--handin",
            metavar="FOLDER",
            help="write into FOLDER what is handed in: page, PDF, text to edit, README, script, "
            "notebook",
        ),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="your name, for --handin"),
    ] = None,
    number: Annotated[
        str | None,
        typer.Option(
            "--number", metavar="NUMBER", help="your student number, for --handin"
        ),
    ] = None,
    is_opened: IsOpened = False,
) -> None:
    if handin is None:
        if student is not None or number is not None:
            raise UsageError(
                "--name and --number are for a hand-in: add --handin FOLDER"
            )
        collect.report(words, outputs, to, is_opened)
        return
    name, values = parse_words("report", words, REPORT_KEYS)
    if to:
        raise UsageError("--handin and --to are both given: leave one of them out")
    contents, _ = current_report(find_study(name, outputs), values)
    from hpml_jobs.extras.course.handin import (
        PDF,
        README,
        SCRIPT,
        Student,
        write_handin,
    )
    from hpml_jobs.report.page import HTML, MARKDOWN

    folder = typed_path(handin)
    handed_in = write_handin(contents, folder, Student(student, number))
    files = [path.name for path in handed_in.files if path.parent == folder]
    print(f"written: {', '.join([*files, 'data/*.csv'])} in {folder}")
    is_named = student is not None or number is not None
    with_name = ", with your name," if is_named else ""
    for file, beside in handed_in.kept.items():
        new = (
            f"the new text{with_name} is {beside}"
            if beside
            else "it has the study's newest numbers"
        )
        print(f"kept: {file}, which was edited; {new}")
    if missing := _missing(folder / MARKDOWN, is_named=is_named):
        print(f"to fill in: {missing}")
        print(f"{HTML} has the measured answers only: hand in {MARKDOWN}, too")
    if PDF not in files:
        print(
            f"no {PDF}: Chromium is not here; open {HTML} in a browser and save it as PDF"
        )
    if SCRIPT not in {*files, *handed_in.kept}:
        print(f"no {SCRIPT}: it repeats no cell of this study; {README} has the reason")
    if is_opened:
        open_page(folder / HTML)


def _missing(text_file: Path, *, is_named: bool) -> str:
    """Return what a text still lacks: `9 answers in report.md, name or number`."""
    from hpml_jobs.extras.course.handin import OWN_WORDS, TO_FILL_IN

    text = text_file.read_text(encoding="utf-8", errors="replace")
    parts = []
    if blanks := text.count(OWN_WORDS):
        parts.append(f"{counted(blanks, 'answer')} in {text_file.name}")
    if TO_FILL_IN in text and not is_named:
        parts.append("your name or number (--name, --number)")
    return ", ".join(parts)


report.__doc__ = collect.report.__doc__
