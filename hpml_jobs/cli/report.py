"""Command report."""

import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.collect import current_report, write_report
from hpml_jobs.cli.options import REPORT_KEYS, Outputs, ReportWords, find_study, parse_words

if TYPE_CHECKING:
    from hpml_jobs.report.report import Report

DISPLAYS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of an environment in which a browser can be opened; without them it would be a text
browser, which takes the terminal."""


def report(
    words: ReportWords = None,
    outputs: Outputs = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FOLDER", help="folder of the page; default: report/ in the study"
        ),
    ] = None,
    is_opened: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> None:
    """Write a page that can be handed in: report.html, and the same as report.md.

    It begins with the answer and a paragraph for a proposal; pictures, tables, what to trust,
    answers to the questions of the lab, the method and the environment follow. The HTML file is
    complete: it loads nothing, and can be sent as it is. The pictures are written as png and svg,
    too, and the tables as hpml-jobs collect does.

    Example: hpml-jobs report digits-local --open
    """
    name, values = parse_words("report", words, REPORT_KEYS)
    study = find_study(name, outputs)
    made, _ = current_report(study, values)
    from hpml_jobs.report.folder import write_all
    from hpml_jobs.report.page import HTML, MARKDOWN

    written = write_report("report", study, to, lambda folder: write_all(made, folder))
    for line in _answers(made):
        print(line)
    if not written:
        raise typer.Exit(1)
    pictures = [path.stem for path in written if path.suffix == ".png"]
    files = [HTML, MARKDOWN, "all tables"]
    files += [f"pictures of {', '.join(pictures)} (PNG, SVG)"] if pictures else []
    folder = written[0].parent
    print(f"written: {', '.join(files)} in {folder}")
    if is_opened:
        _open(folder / HTML, os.environ)


def _answers(made: "Report") -> list[str]:
    """Return the answer of every group with a number."""
    from hpml_jobs.report.choose.words import answer

    return [
        f"{f'group {group.number}: ' if made.several else ''}{answer(group.choice, made.study)}"
        for group in made.groups
        if group.choice
    ]


def _open(path: Path, environment: Mapping[str, str]) -> None:
    """Open a file in the user's browser; where there is none, say so."""
    has_display = sys.platform == "darwin" or any(environment.get(name) for name in DISPLAYS)
    address = path.resolve().as_uri()
    if not (has_display and webbrowser.open(address)):
        print(f"no browser here: copy {path.resolve()} to your computer and open it there")
