"""Command record: key numbers and data-quality checks of every cell."""

from rich.console import Console
from rich.text import Text

from hpml_jobs.checks.result import Level
from hpml_jobs.cli.console import console, print_json
from hpml_jobs.cli.options import (
    Json,
    Outputs,
    Pattern,
    StudyName,
    history_of,
    select_study,
)
from hpml_jobs.report.key_numbers import CellSummary, lines, summarize
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.snapshot import read_study

COLOURS = {Level.FAIL: "red", Level.WARN: "yellow", Level.PASS: "green"}
"""Levels with their colours, the most serious first."""


def record(
    study: StudyName = None,
    pattern: Pattern = None,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Show the key numbers of every cell, and each data-quality check with its reason.

    Example: hpml-jobs record digits-local 'ddp-4proc-*'
    """
    selection = select_study(study, pattern, outputs)
    cells = selection.chosen(summarize(read_study(selection.study, history_of(selection.study))))
    if json:
        print_json({"study": selection.study.name, "cells": cells})
        return
    out = console()
    for cell in cells:
        _show(out, cell)


def _show(out: Console, cell: CellSummary) -> None:
    has_state = cell.outcome is not Outcome.MISSING  # else it may be pending
    state = f"{cell.outcome.value} " if has_state else ""
    out.print(Text(f"==== {cell.slug}: {state}{cell.reason}".rstrip(), "bold"))
    for line in lines(cell.numbers):
        out.print(Text(f"  {line}"))
    for level, colour in COLOURS.items():
        for result in cell.checks:
            if result.level is level:
                line_of_check = Text(f"  {level.value} ", style=colour)
                line_of_check.append(f"{result.check}: {result.reason}", style="default")
                out.print(line_of_check)
