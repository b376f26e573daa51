"""Commands that see a study through: status, watch, logs, collect."""

from collections.abc import Callable
from typing import Annotated

import typer

from hpml_jobs.finding import (
    Json,
    Outputs,
    Pattern,
    Strict,
    StudyName,
    find_study,
    outputs_words,
    which,
)
from hpml_jobs.screen import console, print_json
from hpml_jobs.study import CellState
from hpml_jobs.verdicts.judgement import in_short
from hpml_jobs.wording import counted


def status(
    study: StudyName = None,
    outputs: Outputs = None,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Where every cell stands. Example: hpml-jobs status digits-local"""
    from hpml_jobs.submit.status import states  # noqa: PLC0415

    found = find_study(study, outputs)
    now = states(found)
    if json:
        print_json({"study": found.name, "cells": now})
    else:
        from hpml_jobs.screen import states_table, totals  # noqa: PLC0415

        console().print(states_table(now))
        print(totals(now))
        if any(in_short(state.verdicts) for state in now):
            print(f"why: hpml-jobs record {found.name}{outputs_words(outputs)}")
    if strict and not all(state.recorded for state in now):
        raise typer.Exit(1)


def watch(
    study: StudyName = None,
    outputs: Outputs = None,
    every: Annotated[float, typer.Option("--every", help="seconds between two looks")] = 5.0,
) -> None:
    """The states, live, until no cell is under way. Example: hpml-jobs watch"""
    from rich.console import Group  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from hpml_jobs.screen import states_table, totals  # noqa: PLC0415
    from hpml_jobs.submit.watching import watch_study  # noqa: PLC0415

    found = find_study(study, outputs)
    out = console()
    if not out.is_terminal:  # a file or a pipe gets a line per change
        watch_study(found, max(every, 0.5), _say_changes(totals))
        return
    with Live(console=out, auto_refresh=False) as live:

        def show(now: list[CellState]) -> None:
            live.update(Group(states_table(now), totals(now)), refresh=True)

        watch_study(found, max(every, 0.5), show)


def _say_changes(words: Callable[[list[CellState]], str]) -> Callable[[list[CellState]], None]:
    said: list[str] = []

    def show(now: list[CellState]) -> None:
        line = words(now)
        if said[-1:] != [line]:
            said.append(line)
            print(line, flush=True)

    return show


def logs(
    study: StudyName = None,
    pattern: Pattern = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="lines of the log's end")] = 20,
    outputs: Outputs = None,
) -> None:
    """Why cells failed, or the log of cells of a pattern: the first failing rank's traceback.

    Example: hpml-jobs logs digits-local 'ddp-4gpu-*'
    """
    from hpml_jobs.submit.logs import log_text  # noqa: PLC0415
    from hpml_jobs.submit.status import states  # noqa: PLC0415

    asked = which(study, pattern, outputs)
    found = asked.study
    chosen = asked.chosen(states(found))
    if asked.pattern is None:
        chosen = [s for s in chosen if not (s.outcome.active or s.recorded) and s.job]
        if not chosen:
            print("no cell has failed; hpml-jobs logs STUDY PATTERN shows any cell's log")
    for state in chosen:
        print(f"==== {state.slug}: {state.outcome.value} {state.reason}")
        print(log_text(found, state, lines))


def collect(
    study: StudyName = None,
    outputs: Outputs = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="first wait until no cell is under way")
    ] = False,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Tables 1, 2 and 3 from the records, on screen and under report/ as md, csv, tex and json.

    Example: hpml-jobs collect digits-local
    """
    from hpml_jobs.submit.status import states  # noqa: PLC0415

    found = find_study(study, outputs)
    now = states(found)
    if wait and any(state.outcome.active for state in now):
        watch(found.name, found.root.parent)
        now = states(found)
    from hpml_jobs.report.collect import collect as make  # noqa: PLC0415
    from hpml_jobs.report.collect import write  # noqa: PLC0415

    report = make(found, {state.slug: state for state in now})
    written = write(report, found.report)
    if json:
        print(next(path for path in written if path.suffix == ".json").read_text(), end="")
    else:
        from hpml_jobs.report.render import show  # noqa: PLC0415

        show(report, console())
        sheets = [path for path in written if path.suffix == ".csv"]
        whole = ", ".join(path.name for path in written if path not in sheets)
        print(f"written: {whole} and {counted(len(sheets), 'CSV file')} in {found.report}")
    if strict and not all(state.recorded for state in now):
        raise typer.Exit(1)
