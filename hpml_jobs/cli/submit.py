"""Commands submit and plan: from the typed line to a plan, which is delivered or shown."""

from functools import partial
from typing import Annotated

from typer import Option

from hpml_jobs.cli.console import print_note
from hpml_jobs.cli.deliver import DeliveryOptions, deliver
from hpml_jobs.cli.options import (
    AllCells,
    ConfigDir,
    DryRun,
    Json,
    Multirun,
    Overrides,
    Yes,
)
from hpml_jobs.cli.terminal import repeated
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.text import PROGRAM, with_command
from hpml_jobs.study.study import limit_of


def submit(
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    all_cells: AllCells = False,
    json: Json = False,
    is_followup: Annotated[
        bool,
        Option(
            "--followup", help="with auto: submit no cell that failed, as its jobs do"
        ),
    ] = False,
) -> None:
    """Submit a study, or run it here if there is no SLURM.

    Finished, pending and running cells are skipped. On a terminal it asks before more than
    cluster.confirm_gpu_hours GPU-hours are requested.

    Example: hpml-jobs -m gpus=1,2,4 batch=32,128,512
    """
    from hpml_jobs.cli.collect import collect
    from hpml_jobs.plan.resolve import make_plan
    from hpml_jobs.plan.sweep import expand
    from hpml_jobs.submit.selection import select

    words = overrides or []
    if not dry_run and len(words) == 1 and words[0].startswith("study="):
        # probably the study was to be shown
        raise UsageError(
            with_command(
                f"{words[0]} alone names no cell: add e.g. gpus=1; to see the study",
                f"{PROGRAM} status {words[0].removeprefix('study=')}",
            )
        )
    sweep = expand(words, multirun=multirun, config_dir=config_dir)
    plan = make_plan(sweep, fetch=not dry_run, notify=print_note)
    delivery = DeliveryOptions(json, yes, all_cells, dry_run)
    options = ["-m"] if multirun else []
    options += ["--config-dir", str(config_dir)] if config_dir else []
    plan = plan._replace(words=(*options, *words))
    by_job = is_followup
    command = "" if by_job else repeated()
    if plan.goal and command and limit_of([command]) is None:
        command += f" min_efficiency={sweep.first.min_efficiency:g}"
    # with auto, step by step here; on SLURM a job of the study submits the next one
    goes_on = True
    while goes_on:
        choose = partial(select, plan, by_job=by_job)
        goes_on = deliver(plan.study, choose, delivery, command) and bool(plan.goal)
        by_job = True
        command = ""
    if plan.has_followup and plan.cluster.is_local and not (dry_run or json):
        collect([str(plan.study.root)])


def plan(
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    all_cells: AllCells = False,
    json: Json = False,
) -> None:
    """Show the cells, GPU-hours and values of a submission, with --all its scripts; submit nothing.

    Example: hpml-jobs plan -m gpus=1,2,4 batch=32,128,512 cluster=greene
    """
    submit(
        overrides, multirun, config_dir, dry_run=True, all_cells=all_cells, json=json
    )
