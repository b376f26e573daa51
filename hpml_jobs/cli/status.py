"""Commands status, logs and list."""

import os
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text
from typer import Option

from hpml_jobs.cli.console import (
    MOST_LISTED,
    by_outcome,
    console,
    plain_table,
    print_changes,
    print_json,
    states_table,
    totals,
    usage_line,
)
from hpml_jobs.cli.hints import changed_code, hints_for, not_replaced
from hpml_jobs.cli.options import (
    AllCells,
    Json,
    Outputs,
    Pattern,
    Strict,
    StudyName,
    StudyPattern,
    outputs_of,
    select_study,
    study_words,
)
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import in_short
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text import PROGRAM, with_command
from hpml_jobs.study.selection import all_studies, no_study, submitted_at
from hpml_jobs.study.snapshot import CellState
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.status.states import StudyStatus


def status(
    study: StudyName = None,
    pattern: Pattern = None,
    live: Annotated[
        bool,
        Option(
            "--watch", "-w", help="show it live until no cell is pending or running"
        ),
    ] = False,
    outputs: Outputs = None,
    all_cells: AllCells = False,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Show the state of every cell, the resources used and suggested next commands.

    Of more than 30 cells, the most urgent are listed. If the output is a file or a pipe, --watch
    prints a line for each change.

    Example: hpml-jobs status demo 'ddp-2proc-*'
    """
    from hpml_jobs.status.states import study_status
    from hpml_jobs.status.usage import usage_of

    if live and (all_cells or json):
        raise UsageError(
            "--watch shows as many cells as the screen has: leave --all and --json out"
        )
    selection = select_study(study, pattern, outputs)
    if live:
        check_finished(_watch(selection), strict=strict)
        return
    selected = selection.study
    current = study_status(selected, all_jobs=True, with_checks=True)
    chosen, usage = selection.chosen(current.states), usage_of(current)
    changed = changed_code(current.snapshots)
    current_states = not_replaced(chosen, changed)
    states = sorted(chosen, key=lambda state: changed.get(state.slug, False))
    name = study_words(selected)
    hints = []
    if any(in_short(state.checks) for state in current_states):
        sentence = "checks warn of some numbers; to see the reasons"
        hints.append(with_command(sentence, f"{PROGRAM} collect {name} --all"))
    if current.fault:
        hints.append(f"warning: {current.fault}; jobs that only it names are not shown")
    if current.complaint:
        hints.append(f"warning: SLURM does not answer ({current.complaint})")
    hints += _followup_job(selected, current)
    hints += hints_for(states, name, changed)
    if json:
        print_json(
            {
                "study": selected.name,
                "cells": states,
                "usage": usage,
                "advice": hints,
            }
        )
    else:
        is_large = len(states) > MOST_LISTED and not all_cells
        console().print(states_table(states, MOST_LISTED if is_large else None))
        print(totals(states))
        if usage and selection.pattern is None:
            print(usage_line(usage))
        for hint in hints:
            print(hint)
    check_finished(current_states, strict=strict)


def check_finished(states: list[CellState], *, strict: bool) -> None:
    """Exit with 1 if that was asked for and a cell has not finished."""
    are_finished = bool(states) and all(state.outcome.finished for state in states)
    if strict and not are_finished:
        raise typer.Exit(1)


def _followup_job(study: Study, current: "StudyStatus") -> list[str]:
    """Return a line on the job that follows the cells, if there is one."""
    from hpml_jobs.status.evidence import words_of_script

    closing = current.history.closing
    if not closing:
        return []
    job, task = [*closing.items()][-1]
    answer = current.slurm.of(job)
    word = "state unknown" if answer.doubt else "no longer known to SLURM"
    if answer.state:
        word = answer.state.state.split()[0].lower()
    words = words_of_script(study, job)
    said = f": {words}" if words else ""
    return [f"follow-up job {job} ({task}): {word}{said}"]


def _watch(selection: StudyPattern) -> list[CellState]:
    """Show the states live, then what to do next; return the last states of the current code."""
    last = show_until_idle(selection)
    states = selection.chosen(last.states)
    changed = changed_code(last.snapshots)
    if console().is_terminal:
        print("\n".join(hints_for(states, study_words(selection.study), changed)))
    return not_replaced(states, changed)


def show_until_idle(selection: StudyPattern) -> "StudyStatus":
    """Show the states until no cell is pending or running; return the last status.

    Ctrl-C ends the command, not the jobs.
    """
    from rich.console import Group
    from rich.live import Live

    from hpml_jobs.status.watch import watch_study

    study, out, print_change = selection.study, console(), print_changes()
    live = Live(console=out, auto_refresh=False) if out.is_terminal else None

    def show(states: list[CellState], note: str) -> None:
        if live:
            table = states_table(states, rows=max(3, out.size.height - 5))
            live.update(Group(table, totals(states), note), refresh=True)
        else:  # a file or a pipe gets a line per change
            print_change(f"{totals(states)}; {note}" if note else totals(states))

    with live or nullcontext():
        return watch_study(study, show, selection.chosen)


def logs(
    study: StudyName = None,
    pattern: Pattern = None,
    lines: Annotated[
        int, Option("--lines", "-n", metavar="N", help="number of lines of each log")
    ] = 20,
    follow: Annotated[
        bool,
        Option(
            "--follow",
            "-f",
            help="print the log of a running cell as it grows, until Ctrl-C",
        ),
    ] = False,
    outputs: Outputs = None,
) -> None:
    """Show why cells failed: the first failing rank's traceback, or the end of the log.

    With a PATTERN, the logs of all matching cells.

    Example: hpml-jobs logs demo 'ddp-2proc-*'
    """
    from hpml_jobs.status.states import study_status
    from hpml_jobs.status.watch import log_text

    selection = select_study(study, pattern, outputs)
    if follow:
        _follow(selection, lines)
        return
    selected = selection.study
    current = study_status(selected)
    states = selection.chosen(current.states)
    if selection.pattern is None:
        states = [s for s in states if not (s.outcome.active or s.recorded) and s.job]
        states = not_replaced(states, changed_code(current.snapshots))
    if not states:
        print("no cell has failed; name a cell to see its log")
    for state in states:
        print(f"==== {state.slug}: {state.outcome.value} {state.reason}")
        print(log_text(selected, state, lines))


def _follow(selection: StudyPattern, lines: int) -> None:
    """Become `tail`, which prints the log of the running cell that started last until Ctrl-C."""
    from hpml_jobs.status.states import cell_states

    study = selection.study
    states = selection.chosen(cell_states(study))
    running = [state for state in states if state.outcome is Outcome.RUNNING]
    if not running:
        sentence = f"no cell of study {study.name} is running; to see the states"
        raise HpmlError(
            with_command(sentence, f"{PROGRAM} status {study_words(study)}")
        )
    state = min(running, key=lambda state: state.elapsed_s or 0.0)
    attempt = study.cell(state.slug).latest_attempt()
    if attempt is None or attempt.job != state.job:
        raise HpmlError(f"{state.slug} is starting, it has no log yet: repeat this")
    print(f"==== {state.slug}, until Ctrl-C", flush=True)
    log = str(attempt.log_of(0))
    os.execvp("tail", ["tail", "-n", str(lines), "-F", log])  # noqa: S606  (no shell)


def list_(outputs: Outputs = None) -> None:
    """List all studies: date of the last submission, cells by state.

    SLURM is asked only for studies with unfinished cells.

    Example: hpml-jobs list
    """
    folder = outputs_of(outputs)
    studies = all_studies(folder)
    if not studies:
        raise no_study(folder)
    table = plain_table(("study", "submitted"), ("cells",))
    for study in studies:
        submitted_s = submitted_at(study.root)
        moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(submitted_s))
        cells = Text(_cells(study))
        table.add_row(study.name, moment if submitted_s else "", cells)
    console().print(table)


def _cells(study: Study) -> str:
    """Return the cells of a study by state, or why it cannot be read."""
    from hpml_jobs.status.states import study_status

    try:
        study.check_schema()
        return by_outcome(study_status(study).states)
    except HpmlError as fault:
        return str(fault)
