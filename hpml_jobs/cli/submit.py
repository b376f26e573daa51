"""Commands that submit or run cells: submit, plan, run, fetch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs.cli.commands import repeated
from hpml_jobs.cli.console import console, print_json, print_note, sent_table, values_table
from hpml_jobs.cli.deliver import DeclinedError, Manner, announce, run_here, submit_jobs
from hpml_jobs.cli.options import AllCells, ConfigDir, DryRun, Json, Multirun, Overrides, Yes
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.text import counted
from hpml_jobs.errors import HpmlError, InterruptError, UsageError

if TYPE_CHECKING:
    from hpml_jobs.plan.plan import Plan, PlannedCell
    from hpml_jobs.study.study import Study
    from hpml_jobs.submit.selection import Selection


def submit(
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    all_cells: AllCells = False,
    json: Json = False,
) -> None:
    """Submit a study, or run it here if there is no SLURM.

    Finished, pending and running cells are skipped. On a terminal it asks before more than
    cluster.confirm_gpu_hours GPU-hours are requested.

    Example: hpml-jobs -m gpus=1,2,4 batch=32,128,512
    """
    from hpml_jobs.study.snapshot import restore_records
    from hpml_jobs.submit.job_requests import prepare
    from hpml_jobs.submit.selection import select

    if dry_run:
        _preview(overrides, multirun, config_dir, all_cells=all_cells, json=json)
        return
    manner = Manner(json=json, yes=yes, all_cells=all_cells)
    _refuse_name_alone(overrides or [])
    plan = _make_plan(overrides, multirun, config_dir)
    if plan.cluster.launcher is Launcher.LOCAL:
        plan.study.create()
        with plan.study.submitting() as lock_note:
            print_note(lock_note)
            selection = select(plan)
            restore_records(selection.status.snapshots)
            if selection.send:
                plan.study.add_command(repeated())
        print_note(*selection.notes)
        run_here(plan, selection, json=json)
        return
    try:
        # a new study that would be refused is refused before its folder exists
        submission = None if plan.study.root.exists() else prepare(plan, select(plan))
        plan.study.create()
        with plan.study.submitting() as lock_note:
            print_note(lock_note)
            if submission is None or plan.study.cells():  # the study has cells to leave out
                submission = prepare(plan, select(plan))
            restore_records(submission.selection.status.snapshots)
            print_note(*submission.selection.notes)
            announce(submission, manner)
            if submission.selection.send:
                plan.study.add_command(repeated())
            submit_jobs(submission, manner)
    except DeclinedError:
        plan.study.remove_empty()
        raise
    except KeyboardInterrupt as fault:
        plan.study.remove_empty()
        raise InterruptError(f"interrupted; nothing was submitted; again: {repeated()}") from fault


def _refuse_name_alone(overrides: list[str]) -> None:
    """Refuse to add the default cell to a study that was probably to be shown."""
    from hpml_jobs.plan.user_config import user_outputs

    name = overrides[0].removeprefix("study=") if len(overrides) == 1 else ""
    if overrides == [f"study={name}"] and (user_outputs() / name / "cells").is_dir():
        raise UsageError(
            f"study {name} exists: hpml-jobs status {name} shows it; to add a cell to it, name the "
            f"cell, e.g. gpus=1 study={name}"
        )


def plan(
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    all_cells: AllCells = False,
    json: Json = False,
) -> None:
    """Show the cells, job scripts, GPU-hours and values of a submission; submit nothing.

    Example: hpml-jobs plan -m gpus=1,2,4 batch=32,128,512 cluster=greene
    """
    _preview(overrides, multirun, config_dir, all_cells=all_cells, json=json)


def _preview(
    overrides: list[str] | None,
    multirun: bool,
    config_dir: Path | None,
    *,
    all_cells: bool,
    json: bool,
) -> None:
    from hpml_jobs.submit.selection import select

    made = _make_plan(overrides, multirun, config_dir, fetch=False)
    selection = select(made)
    print_note(*selection.notes)
    show_preview(made, selection, all_cells=all_cells, json=json)


def show_preview(
    plan: "Plan", selection: "Selection", *, all_cells: bool = False, json: bool = False
) -> None:
    """Print what a submission of the selected cells would be."""
    from hpml_jobs.submit.explain import preview_of

    preview = preview_of(plan, selection)
    if json:
        print_json(preview)
        return
    out = console()
    out.print(sent_table(preview.cells, all_cells=all_cells))
    is_local = plan.cluster.launcher is Launcher.LOCAL
    jobs = counted(len(preview.scripts), "job")
    how = "on this machine, one after another" if is_local else f"as {jobs}"
    print(
        f"nothing was submitted; it would be {counted(len(selection.send), 'cell')} {how} "
        f"({len(selection.left_out)} left out), up to {preview.gpu_hours:.3g} GPU-hours, "
        f"study {preview.study} in {plan.study.root}"
    )
    if preview.overlap:
        print(preview.overlap)
    if preview.refused:
        print(f"it would be refused: {preview.refused}")
    shown = [row for row in preview.values if all_cells or not row.origin.startswith("conf/")]
    if shown:
        print()
        out.print(values_table((row.key, row.value, row.origin) for row in shown))
        if hidden := len(preview.values) - len(shown):
            print(f"{counted(hidden, 'other value')} are defaults: --all shows them")
    for script in preview.scripts:
        print(f"\n---- {script.shape}\n{script.script}", end="")


def run(
    overrides: Overrides = None,
    multirun: Multirun = False,
    config_dir: ConfigDir = None,
    index: Annotated[
        int | None,
        typer.Option(
            "--index", metavar="N", help="with -m: number of the cell in the sweep, from 0"
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="run the cell although a job of it is pending or running"),
    ] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Run one cell here: on a laptop, or inside an allocation (as sbatch/*.sbatch do).

    Example: hpml-jobs run gpus=2 batch=64 cluster=local
    """
    from hpml_jobs.core.processes import ignore_submitit_signal
    from hpml_jobs.job.run import attempt_cell
    from hpml_jobs.submit.send import write_cells

    ignore_submitit_signal()
    plan = _make_plan(overrides, multirun, config_dir, sending=False, fetch=False)
    count = len(plan.cells)
    if index is None and count != 1:
        raise UsageError(f"run is for one cell, these are {count}: choose one with --index")
    if index is not None and not 0 <= index < count:
        raise UsageError(f"--index {index}: this sweep has cells 0 to {count - 1}")
    planned = plan.cells[index or 0]
    if dry_run:
        _preview_here(plan, planned, json=json)
        return
    plan.study.create()
    folder = plan.study.cell(planned.slug)
    if not take_over:
        _check_idle(plan.study, folder.slug)
    write_cells(plan.study, [_superseding_if_rerun(plan, planned)])
    end = attempt_cell(folder)
    if json:
        print_json(end)
    if not end.outcome.finished:
        raise HpmlError(f"{folder.slug} {end.outcome.value}: {end.reason}")


def _preview_here(plan: "Plan", planned: "PlannedCell", *, json: bool) -> None:
    """Show a cell that would run on this machine, whatever cluster its settings are for."""
    from msgspec.structs import replace

    from hpml_jobs.submit.selection import select

    here = replace(plan.cluster, launcher=Launcher.LOCAL)
    alone = plan._replace(cells=[planned], cluster=here)
    show_preview(alone, select(alone), json=json)


def _check_idle(study: "Study", slug: str) -> None:
    """Check that no other job of the cell is pending or running.

    Raises:
        HpmlError: there is one, or SLURM does not say so.
    """
    from hpml_jobs.job.workers import Job
    from hpml_jobs.status.states import study_status

    status = study_status(study)
    state = next((state for state in status.states if state.slug == slug), None)
    if state is None or not state.outcome.may_run or state.job == Job.current().id:
        return
    if status.slurm.no_squeue and not state.outcome.active:
        print_note(f"squeue is not on PATH here: job {state.job} of {slug} may be running")
        return
    raise HpmlError(
        f"{slug} is {state.outcome.value} as job {state.job} ({state.brief}): wait for it, cancel "
        f"it with hpml-jobs cancel {study.name} {slug}, or add --take-over: then this run's record "
        "counts, and the job's does not"
    )


def fetch(
    overrides: Overrides = None, config_dir: ConfigDir = None, dry_run: DryRun = False
) -> None:
    """Download the data set, once, on the login node.

    Example: hpml-jobs fetch data.root=/scratch/me/data
    """
    from hpml_jobs.plan.data import fetch as fetch_data
    from hpml_jobs.plan.sweep import expand

    settings = expand(overrides or [], multirun=False, config_dir=config_dir).settings[0]
    fetch_data(settings, print_note, dry_run=dry_run)


def _make_plan(
    overrides: list[str] | None, multirun: bool, config_dir: Path | None, **options: bool
) -> "Plan":
    from hpml_jobs.plan.resolve import make_plan
    from hpml_jobs.plan.sweep import expand

    sweep = expand(overrides or [], multirun=multirun, config_dir=config_dir)
    return make_plan(sweep, notify=print_note, **options)


def _superseding_if_rerun(plan: "Plan", planned: "PlannedCell") -> "PlannedCell":
    from hpml_jobs.core.validation import InvalidRecordError
    from hpml_jobs.submit.selection import superseding

    folder = plan.study.cell(planned.slug)
    try:
        return superseding(planned, folder.read_record()) if plan.rerun else planned
    except InvalidRecordError:
        return planned  # the file is no record; the attempt replaces it
