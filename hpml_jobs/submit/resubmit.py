"""Cells of a study to submit once more: by their outcomes, with changes to what they request."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from hpml_jobs.core.cell import CellFile, Outcome
from hpml_jobs.core.cluster import Shape
from hpml_jobs.core.errors import HpmlError, refuse_below
from hpml_jobs.core.source_files import changed_files
from hpml_jobs.core.text import VERSION, few
from hpml_jobs.core.value import Value
from hpml_jobs.plan import machine
from hpml_jobs.plan.capacity import check_shape
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.results.checks.disturbed import is_worth_repeating
from hpml_jobs.results.checks.study import check_record
from hpml_jobs.status.states import StudyStatus
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.manifest import History
from hpml_jobs.study.snapshot import CellState, FolderSnapshot
from hpml_jobs.study.study import Study
from hpml_jobs.submit.selection import Selection, superseding

OUTCOMES: dict[str, tuple[Outcome, ...]] = {
    "failed": (Outcome.FAILED, Outcome.INVALID),
    "oom": (Outcome.OOM,),
    "timeout": (Outcome.TIMEOUT,),
    "missing": (Outcome.MISSING,),
    "cancelled": (Outcome.CANCELLED,),
    "lost": (Outcome.NODE_FAIL, Outcome.PREEMPTED),
}
"""Options of `hpml-jobs resubmit`, and the outcomes that each selects."""


class Changes(Value, frozen=True, kw_only=True):
    """Changes to what cells request from SLURM: the time limit, GB of memory per node."""

    minutes: int | None = None
    mem_gb: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that no cluster accepts."""
        for name, value in (("minutes", self.minutes), ("mem", self.mem_gb)):
            refuse_below(1, f"--{name}", value)

    def applied_to(self, shape: Shape) -> Shape:
        """Return a shape with the changes made."""
        return replace(
            shape,
            minutes=self.minutes or shape.minutes,
            mem_gb_per_node=self.mem_gb or shape.mem_gb_per_node,
        )


def with_outcomes(
    states: Iterable[CellState], options: Iterable[str]
) -> list[CellState]:
    """Return the states whose outcome one of the options selects."""
    outcomes = {outcome for option in options for outcome in OUTCOMES[option]}
    return [state for state in states if state.outcome in outcomes]


def resubmittable(states: Iterable[CellState]) -> list[CellState]:
    """Return the states of cells that are not measured, and whose job is certainly not active."""
    return [s for s in states if not (s.outcome.may_run or s.outcome is Outcome.OK)]


def disturbed(
    states: Iterable[CellState], snapshots: Iterable[FolderSnapshot]
) -> list[CellState]:
    """Return the measured cells with an epoch that was disturbed, or has slow iterations."""
    slugs = {
        snapshot.folder.slug
        for snapshot in snapshots
        if snapshot.record
        and any(map(is_worth_repeating, check_record(snapshot.record)))
    }
    return [s for s in states if s.outcome is Outcome.OK and s.slug in slugs]


def files_of(
    study: Study, states: Iterable[CellState], history: History
) -> tuple[dict[str, CellFile], list[str]]:
    """Return the file of each cell, by slug, and why others have none."""
    files, faults = {}, []
    for state in states:
        try:
            files[state.slug] = _file_of(study.cell(state.slug), history)
        except HpmlError as fault:
            faults.append(str(fault))
    return files, faults


def _file_of(folder: CellFolder, history: History) -> CellFile:
    """Return a cell's file; the manifest's copy where it is lost or damaged.

    Raises:
        HpmlError: the manifest has no copy of it, or it was edited: it is the file of another cell.
    """
    try:
        file = folder.read()
    except HpmlError as fault:
        copy = history.copy_of(folder.slug)
        if copy is None:
            raise HpmlError(
                f"{fault}, and the manifest has no copy of it: repeat the command that submitted it"
            ) from fault
        return copy
    if not file.cell.has_slug(folder.slug):
        raise HpmlError(
            f"{folder.cell_json} describes another cell, {file.cell.slug}: it was edited after the "
            "cell was planned; repeat the command that submitted the study, which restores it, or "
            "submit the other cell to a new study="
        )
    if file.cell.recipe.final_share is not None:
        raise HpmlError(
            f"{file.cell.slug} has a recipe of a version before 1.0, a cosine: repeat the command "
            "that submitted it without recipe="
        )
    return file


def select_again(
    study: Study, files: Mapping[str, CellFile], status: StudyStatus, changes: Changes
) -> Selection:
    """Return the cells that have these files, by slug, with changes to what they request.

    Cells that shared an allocation do so again; a study with a follow-up job gets another one.

    Raises:
        HpmlError: the study does not know what a cell requested, or its code has changed.
        UsageError: the cluster cannot run it.
    """
    cluster, history = study.read_cluster(), status.history
    uses_slurm = not cluster.is_local
    if uses_slurm:
        machine.check_can_submit(cluster)
    states = [state for state in status.states if state.slug in files]
    records = {snapshot.folder.slug: snapshot.record for snapshot in status.snapshots}
    cells, reasons = [], {}
    for state in states:
        slug, file = state.slug, files[state.slug]
        shape = changes.applied_to(_shape_before(study.cell(slug), file))
        if uses_slurm:
            check_shape(shape, file.cell, cluster, minutes_option="--minutes ")
        again = replace(file, shape=shape, hpml_jobs=VERSION, supersedes=None)
        planned = PlannedCell(again, shape, slug)
        cells.append(superseding(planned, records[slug]) if state.recorded else planned)
        was = "disturbed" if state.outcome is Outcome.OK else state.outcome.value
        reasons[slug] = f"{was} before"
    plan = Plan(
        Study(study.root.resolve()),  # jobs start in any folder
        cluster,
        cells,
        pack=any(state.job in history.shared for state in states),
        collect_after=bool(history.closing),
    )
    return Selection(plan, cells, reasons, {}, status)


def _shape_before(folder: CellFolder, file: CellFile) -> Shape:
    """Return what a cell requested, of the same code as now."""
    if file.shape is None:
        raise HpmlError(
            f"{folder.cell_json} does not say what the cell requested: "
            "repeat the command that submitted the study"
        )
    changed = changed_files(file.cell.workload.code, file.import_root)
    if changed:
        raise HpmlError(
            f"your code changed since {file.cell.slug} was submitted: {few(changed)}; "
            "repeat the command that submitted the study, which sends the new code as new "
            "cells, or restore the old code"
        )
    return file.shape
