"""Commands init and doctor."""

import contextlib
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from hpml_jobs.cli.console import Console, console, print_changes, print_json, totals
from hpml_jobs.cli.deliver import DeliveryOptions, deliver
from hpml_jobs.cli.options import ConfigDir, Json, Overrides
from hpml_jobs.core.answers import Finding, Severity
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text import PROGRAM, counted, with_command
from hpml_jobs.study.files import writing


def init(
    show: Annotated[
        bool, typer.Option("--print", help="print the file, write nothing")
    ] = False,
) -> None:
    """Write a file of your defaults from what sinfo, sacctmgr and the environment say.

    Partition, account, GPU type and folders are set where there is one answer; other choices are
    comments. An existing file is never changed.

    Example: hpml-jobs init --print
    """
    from hpml_jobs.doctor.profile import make_profile
    from hpml_jobs.plan.user_config import user_config_file

    path = user_config_file()
    if not show and os.path.lexists(path):
        raise HpmlError(
            f"{path} exists and was not changed: init --print prints the new one"
        )
    profile = make_profile()
    print(profile.text, end="")
    if show:
        return
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(profile.text)
    print(f"written: {path}")
    print(
        with_command("next", f"{PROGRAM} plan -m gpus=1,2 batch=32\n{PROGRAM} doctor")
    )


SEVERITY_COLOURS = {
    Severity.OK: "green",
    Severity.WARNING: "yellow",
    Severity.PROBLEM: "red",
}


def doctor(
    words: Overrides = None,
    config_dir: ConfigDir = None,
    job: Annotated[
        bool,
        typer.Option("--job/--no-job", help="submit a short diagnostic job to a node"),
    ] = True,
    patience: Annotated[
        float,
        typer.Option(
            "--patience", metavar="MINUTES", help="longest wait for the job, minutes"
        ),
    ] = 10.0,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus",
            metavar="N",
            help="instead, run a small validation study on N GPUs",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check whether this machine can submit and run a study; submit a short diagnostic job.

    With --gpus N, run a small study that validates the measurement on your hardware, and print
    its checks as one block of text for a bug report.

    Example: hpml-jobs doctor cluster.account=ACCOUNT
    """
    if gpus is None:
        passed = _examine(
            words or [], config_dir, job=job, patience_s=60 * patience, json=json
        )
    elif not job:
        raise UsageError("--gpus runs a study instead of the job: leave --no-job out")
    else:
        passed = _run_self_test(words or [], config_dir, gpus, json=json)
    if not passed:
        raise typer.Exit(1)


def _examine(
    words: list[str],
    config_dir: Path | None,
    *,
    job: bool,
    patience_s: float,
    json: bool,
) -> bool:
    """Print each finding when it comes; return whether there is no problem."""
    from hpml_jobs.doctor.examine import examine

    out = Console(stderr=True) if json else console()
    findings = []
    with out.status("checking") as status:  # on the console of the findings
        notify = status.update if out.is_terminal else print_changes(sys.stderr)
        for finding in examine(
            words, config_dir, job=job, patience_s=patience_s, notify=notify
        ):
            findings.append(finding)
            if not json:
                _show_finding(finding, out)
    numbers = Counter(finding.level for finding in findings)
    problems = numbers[Severity.PROBLEM]
    if json:
        print_json({"ok": not problems, "findings": findings})
    else:
        conclusion = "fix the problems" if problems else "you can submit studies"
        print(
            f"{numbers[Severity.OK]} ok, {counted(numbers[Severity.WARNING], 'warning')}, "
            f"{counted(problems, 'problem')}: {conclusion}"
        )
    return not problems


def _show_finding(finding: Finding, out: Console) -> None:
    line = Text(f"{finding.level.value:8}", SEVERITY_COLOURS[finding.level])
    line.append(f"{finding.about:14} {' '.join(finding.seen.split())}", "default")
    remedy, *commands = finding.remedy.split("\n")
    line.append(f" → {remedy}" if remedy else "", "bold")
    for text in (line, *map(Text, commands)):
        out.print(text, soft_wrap=True)


def _run_self_test(
    words: list[str], config_dir: Path | None, gpus: int, *, json: bool
) -> bool:
    """Run the validation study and print its result on stdout; return whether it passed."""
    from hpml_jobs.doctor.self_test import self_test_plan, self_test_result
    from hpml_jobs.status.watch import watch_study
    from hpml_jobs.submit.selection import select

    notify = print_changes(sys.stderr)
    with contextlib.redirect_stdout(sys.stderr):
        plan = self_test_plan(words, gpus, config_dir, notify)
        try:
            deliver(plan.study, lambda: select(plan), DeliveryOptions())
        except HpmlError as error:
            if plan.cluster.launcher is Launcher.SLURM:
                raise
            notify(str(error))  # the result reports cells that failed here
        watch_study(plan.study, lambda states, _note: notify(totals(states)))
        result = self_test_result(plan, gpus)
    if json:
        print_json(
            {"ok": result.is_passed, "cells": result.cells, "block": result.block}
        )
    else:
        print(result.block)
    return result.is_passed
