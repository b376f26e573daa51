"""The command that looks whether this machine can measure: doctor."""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from hpml_jobs.cli.console import console, print_changes, print_json, totals
from hpml_jobs.cli.deliver import deliver
from hpml_jobs.cli.options import ConfigDir, Json, Words
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.findings import Finding, Level
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError

WATCH_EVERY_S = 5.0
COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "red"}


def doctor(
    words: Words = None,
    config_dir: ConfigDir = None,
    job: Annotated[
        bool, typer.Option("--job/--no-job", help="also send a short job that looks at a node")
    ] = True,
    patience: Annotated[
        float, typer.Option("--patience", help="minutes that the job is waited for")
    ] = 10.0,
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", help="instead: measure a small study on so many GPUs, and judge it"),
    ] = None,
    json: Json = False,
) -> None:
    """Can this machine submit here? Every finding in a line; a short job looks at a node.

    With --gpus N a small study proves the measurement on real hardware; its checks are printed as
    one block, to be pasted into a bug report. Example: hpml-jobs doctor cluster.account=ACCOUNT
    """
    if gpus is not None:
        holds = _prove(words or [], config_dir, gpus, json=json)
    else:
        holds = _examine(words or [], config_dir, job=job, patience_s=60 * patience, json=json)
    if not holds:
        raise typer.Exit(1)


def _examine(
    words: list[str], config_dir: Path | None, *, job: bool, patience_s: float, json: bool
) -> bool:
    """Tell what was found; whether there is no problem."""
    from hpml_jobs.doctor.examine import examine

    out = Console(stderr=True) if json else console()
    with out.status("looking") as line:  # of the console that the findings go to
        say = line.update if out.is_terminal else print_changes(sys.stderr)
        found = examine(words, config_dir, job=job, patience_s=patience_s, say=say)
        told = list(found) if json else _tell(found, out)
    problems = [one for one in told if one.level is Level.PROBLEM]
    if json:
        print_json({"ok": not problems, "findings": told})
    else:
        print(_in_short(told))
    return not problems


def _in_short(told: list[Finding]) -> str:
    """How many findings of each level there are, and what follows."""
    numbers = Counter(one.level for one in told)
    parts = [f"{numbers[Level.OK]} ok"]
    worse = (Level.WARNING, Level.PROBLEM)
    parts += [counted(numbers[level], level.value) for level in worse if numbers[level]]
    end = "first mend the problems" if numbers[Level.PROBLEM] else "studies can be sent"
    return f"{', '.join(parts)}: {end}"


def _prove(words: list[str], config_dir: Path | None, gpus: int, *, json: bool) -> bool:
    """Measure and judge the study that proves; whether it does. Only the block is for stdout."""
    from hpml_jobs.doctor.self_test import plan_of, proof_of
    from hpml_jobs.status.watch import watch_study
    from hpml_jobs.submit.selection import select

    say = print_changes(sys.stderr)
    with contextlib.redirect_stdout(sys.stderr):
        plan = plan_of(words, gpus, config_dir, say)
        plan.study.create()
        try:
            deliver(plan, select(plan), json=False)
        except HpmlError as fault:
            if plan.cluster.launcher is Launcher.SLURM:
                raise
            say(str(fault))  # a cell that failed here is told in the block
        watch_study(plan.study, WATCH_EVERY_S, lambda now, _note: say(totals(now)))
        proof = proof_of(plan, gpus)
    if json:
        print_json({"ok": proof.holds, "cells": proof.cells, "block": proof.block})
    else:
        print(proof.block)
    return proof.holds


def _tell(found: Iterable[Finding], out: Console) -> list[Finding]:
    """Each finding in a line as it comes."""
    told = []
    for one in found:
        told.append(one)
        line = Text(f"{one.level.value:8}", COLOURS[one.level])
        line.append(f"{one.about:14} {' '.join(one.seen.split())}", "default")
        line.append(f" → {one.remedy}" if one.remedy else "", "bold")
        out.print(line, soft_wrap=True)
    return told
