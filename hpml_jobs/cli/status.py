"""Commands that see a study through: status, watch, logs, collect."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.checks.result import in_short
from hpml_jobs.cli.console import (
    console,
    print_changes,
    print_json,
    states_table,
    totals,
    usage_line,
)
from hpml_jobs.cli.hints import advice
from hpml_jobs.cli.options import (
    Json,
    Outputs,
    Pattern,
    Strict,
    StudyName,
    StudySelection,
    find_study,
    outputs_words,
    select_study,
)
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.study import Study

if TYPE_CHECKING:
    from hpml_jobs.status.states import StudyStatus


def status(
    study: StudyName = None,
    pattern: Pattern = None,
    outputs: Outputs = None,
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Where every cell stands, what was used, what to do next.

    Example: hpml-jobs status digits-local 'ddp-4gpu-*'
    """
    from hpml_jobs.status.states import standing
    from hpml_jobs.status.usage import usage

    asked = select_study(study, pattern, outputs)
    found = standing(asked.study, all_jobs=True)
    now, used = asked.chosen(found.states), usage(asked.study, found)
    named = f"{asked.study.name}{outputs_words(outputs)}"
    lines = [*_report_job(asked.study, found), *advice(now, named)]
    if any(in_short(state.checks) for state in now):
        lines.insert(0, f"doubtful or failed checks: hpml-jobs record {named} says why")
    if json:
        print_json({"study": asked.study.name, "cells": now, "usage": used, "advice": lines})
    else:
        console().print(states_table(now))
        print(totals(now))
        if used and asked.pattern is None:
            print(usage_line(used))
        for line in lines:
            print(line)
    if strict and not all(state.outcome.finished for state in now):
        raise typer.Exit(1)


def _report_job(study: Study, found: "StudyStatus") -> list[str]:
    """Where the job that writes the report stands, if there is one."""
    for job in study.history().closing[-1:]:
        told = found.seen.of(job).state
        state = told.state.split()[0].lower() if told else "not known to SLURM any more"
        return [f"the job that comes after all cells, {job}: {state}"]
    return []


def watch(
    study: StudyName = None,
    pattern: Pattern = None,
    outputs: Outputs = None,
    every: Annotated[float, typer.Option("--every", help="seconds between two looks")] = 5.0,
    json: Json = False,
) -> None:
    """The states, live, until no cell is under way; a line per change into a pipe, or as JSON.

    Example: hpml-jobs watch digits-rig 'ddp-*'
    """
    asked = select_study(study, pattern, outputs)
    last = _watch(asked, every, json)
    if not json and console().is_terminal:
        print("\n".join(advice(last, f"{asked.study.name}{outputs_words(outputs)}")))


def _watch(asked: StudySelection, every: float, json: bool = False) -> list[CellState]:
    """Show the states until no cell is under way; the last ones."""
    from hpml_jobs.status.watch import watch_study

    out = console()
    if json or not out.is_terminal:  # a file or a pipe gets a line per change
        words = _json_line(asked) if json else _line
        say = print_changes()
        return watch_study(
            asked.study, max(every, 0.5), lambda now, note: say(words(now, note)), asked.chosen
        )
    from rich.console import Group
    from rich.live import Live

    with Live(console=out, auto_refresh=False) as live:

        def show(now: list[CellState], note: str) -> None:
            table = states_table(now, rows=max(3, out.size.height - 5))
            live.update(Group(table, totals(now), note), refresh=True)

        return watch_study(asked.study, max(every, 0.5), show, asked.chosen)


def _line(now: list[CellState], note: str) -> str:
    return f"{totals(now)}; {note}" if note else totals(now)


def _json_line(asked: StudySelection) -> Callable[[list[CellState], str], str]:
    import msgspec

    def words(now: list[CellState], note: str) -> str:
        told = {"study": asked.study.name, "cells": now, "note": note}
        return msgspec.json.encode(told).decode()

    return words


def logs(
    study: StudyName = None,
    pattern: Pattern = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="lines of the log's end")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="of a running cell, until it ends")
    ] = False,
    outputs: Outputs = None,
    json: Json = False,
) -> None:
    """Why cells failed, or the log of cells of a pattern: the first failing rank's traceback.

    Example: hpml-jobs logs digits-local 'ddp-4gpu-*'
    """
    from hpml_jobs.status.logs import log_text
    from hpml_jobs.status.states import states

    asked = select_study(study, pattern, outputs)
    found = asked.study
    chosen = asked.chosen(states(found))
    if follow:
        _follow(asked, chosen, lines)
        return
    if asked.pattern is None:
        chosen = [s for s in chosen if not (s.outcome.active or s.recorded) and s.job]
    if json:
        told = [{"slug": s.slug, "state": s, "text": log_text(found, s, lines)} for s in chosen]
        print_json({"study": found.name, "cells": told})
        return
    if not chosen:
        print("no cell has failed; hpml-jobs logs STUDY PATTERN shows any cell's log")
    for state in chosen:
        print(f"==== {state.slug}: {state.outcome.value} {state.reason}")
        print(log_text(found, state, lines))


def _follow(asked: StudySelection, chosen: list[CellState], lines: int) -> None:
    """The log of the one running cell, or of that which started last, until it ends."""
    from hpml_jobs.status.follow import follow, running_last
    from hpml_jobs.status.states import states

    state = running_last(asked.study, chosen)
    if state is None:
        name = asked.study.name
        whose = f"study {name}" if asked.pattern is None else f"{asked.pattern} in {name}"
        raise HpmlError(f"no cell of {whose} is running; hpml-jobs status {name} tells why")
    running = sum(one.outcome is state.outcome for one in chosen)
    which_one = f" (of {running} that run, the one that started last)" if running > 1 else ""
    print(f"==== {state.slug}{which_one}, until it ends", flush=True)
    for text in follow(asked.study, state, lines):
        print(text, end="", flush=True)
    now = next(one for one in states(asked.study) if one.slug == state.slug)
    print(f"==== {now.slug}: {now.outcome.value} {now.reason}".rstrip())


def collect(
    study: StudyName = None,
    outputs: Outputs = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="first wait until no cell is under way")
    ] = False,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Tables from the records, on screen and under report/ as md, csv, tex and json; pictures.

    Example: hpml-jobs collect digits-local
    """
    from hpml_jobs.status.states import standing

    found = find_study(study, outputs)
    now = standing(found, judged=False).states
    if wait and any(s.outcome.active or s.outcome is Outcome.UNKNOWN for s in now):
        with contextlib.redirect_stdout(sys.stderr if json else sys.stdout):
            now = _watch(StudySelection(found), every=5.0)
    from hpml_jobs.report.collect import collect as make
    from hpml_jobs.report.collect import write

    report = make(found, {state.slug: state for state in now})
    written = write(report, found.report)
    if json:
        print(next(path for path in written if path.suffix == ".json").read_text(), end="")
    else:
        from hpml_jobs.report.formats.screen import show

        show(report, console())
        print(f"written: {_files(written)} in {found.report}")
    if strict and not all(state.outcome.finished for state in now):
        raise typer.Exit(1)


def _files(written: Sequence[Path]) -> str:
    """The report's files: tables by name, sheets counted, pictures (PNG and SVG each) by name."""
    tables = [path.name for path in written if path.stem == "tables"]
    pictures = [path.stem for path in written if path.suffix == ".png"]
    sheets = sum(path.suffix == ".csv" for path in written)
    parts = [*tables, counted(sheets, "CSV file")]
    parts += [f"pictures of {', '.join(pictures)} (PNG, SVG)"] if pictures else []
    return ", ".join(parts)
