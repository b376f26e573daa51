"""Selection of the cells to submit: those of a plan, and those of a study once more."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from hpml_jobs.core.cell import Cell, CellFile, Outcome
from hpml_jobs.core.cluster import Shape
from hpml_jobs.core.conditions import Conditions, requested_conditions
from hpml_jobs.core.errors import HpmlError, refuse_below
from hpml_jobs.core.record import Record
from hpml_jobs.core.source_files import changed_files, differing_names
from hpml_jobs.core.text import VERSION, counted, few
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan import machine
from hpml_jobs.plan.capacity import check_shape
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.results.checks.disturbance import is_worth_repeating
from hpml_jobs.results.checks.study import check_record
from hpml_jobs.results.groups import differing
from hpml_jobs.status.states import StudyStatus, status_for_submission
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.manifest import History
from hpml_jobs.study.snapshot import CellState, FolderSnapshot
from hpml_jobs.study.study import Study


class Selection(NamedTuple):
    """Cells of a plan to submit with the reason, and cells left out with their state, by slug.

    `status` is the study's status that the selection was made from. `notes` tell which cells are
    new because the user's code or data changed, `unlike` which share no table with the study's.
    """

    plan: Plan
    send: list[PlannedCell]
    reasons: dict[str, str]
    left_out: dict[str, CellState]
    status: StudyStatus
    notes: tuple[str, ...] = ()
    unlike: str = ""


def select(plan: Plan) -> Selection:
    """Compare a plan with its study; an oom record counts as finished.

    A cell whose state is unknown is left out, because its job may be running.

    Raises:
        HpmlError: squeue does not say which cells have a job, or a name is another cell's by now.
    """
    # the budget counts all jobs of the study
    has_budget = plan.cluster.gpu_hours_budget is not None
    status = status_for_submission(plan.study, all_jobs=has_budget)
    states = {state.slug: state for state in status.states}
    records = {snapshot.folder.slug: snapshot.record for snapshot in status.snapshots}
    digests = {
        s.folder.slug: s.file.cell.digest
        for s in status.snapshots
        if s.file is not None
    }
    send: list[PlannedCell] = []
    reasons: dict[str, str] = {}
    left_out: dict[str, CellState] = {}
    for planned in plan.cells:
        slug = planned.slug
        if digests.get(slug, planned.cell.digest) != planned.cell.digest:
            raise HpmlError(
                f"another submission has just given the name {slug} to another cell: repeat the "
                "command"
            )
        state, record = states.get(slug), records.get(slug)
        reason = _reason(planned, state, record, rerun=plan.rerun)
        if state is not None and not reason:
            left_out[slug] = state
            continue
        reasons[slug] = reason
        is_again = state is not None and state.recorded
        send.append(superseding(planned, record) if is_again else planned)
    new = [planned.cell for planned in send if reasons[planned.slug] == _NEW]
    notes, unlike = tuple(_notes_on_code(new, status)), _unlike(new, status)
    return Selection(plan, send, reasons, left_out, status, notes, unlike)


_NEW = "new"


def _reason(
    planned: PlannedCell, state: CellState | None, record: Record | None, *, rerun: bool
) -> str:
    """Return why a cell is submitted; empty if it may be running, or has its result."""
    if state is None:
        return _NEW
    if state.outcome.may_run:
        return ""
    if not state.recorded:
        return _first_reason(state)
    helpers = record.facts.helpers if record and record.facts else ()
    changed = changed_files(helpers, planned.file.import_root)
    if changed:
        return f"again ({few(changed)} changed)"
    return "again (rerun=true)" if rerun else ""


def _notes_on_code(new: Iterable[Cell], status: StudyStatus) -> Iterator[str]:
    """Yield a sentence on new cells that differ from cells of the study in code or data only."""
    cells = [(s.file.cell, s.record) for s in status.snapshots if s.file is not None]
    earlier = {cell.without_code: cell for cell, _ in reversed(cells)}
    earlier |= {cell.without_code: cell for cell, record in cells if record is not None}
    slugs: dict[str, list[str]] = {}
    for cell in new:
        old = earlier.get(cell.without_code)
        if old is not None and (cell.workload.sources or cell.workload.data_sha256):
            slugs.setdefault(_change(old.workload, cell.workload), []).append(old.slug)
    for change, (first, *following) in slugs.items():
        since, be = f"{first} was", "is"
        if following:
            since, be = f"{first} and {counted(len(following), 'other')} were", "are"
        yield f"{change} since {since} sent: {counted(1 + len(following), 'cell')} {be} new"


def _unlike(new: Sequence[Cell], status: StudyStatus) -> str:
    """Return a sentence on new cells that share no table with a cell of the study; else nothing."""
    cells = [s.file.cell for s in status.snapshots if s.file is not None]
    there = set(map(_table_conditions, cells))
    alone = [asked for asked in map(_table_conditions, new) if asked not in there]
    if not there or not alone:
        return ""
    wanted = alone[0]
    nearest = max(sorted(there), key=lambda had: len({*had} & {*wanted}))
    differences = [
        f"{name} {value}, there {value_there}"
        for name, (value, value_there) in differing(
            [dict(wanted), dict(nearest)]
        ).items()
    ]
    return (
        f"{counted(len(alone), 'new cell')} cannot be compared with the "
        f"{counted(len(cells), 'cell')} of the study: {'; '.join(differences)}. "
        "Give the same values, or study=NAME for a study of their own"
    )


def _table_conditions(cell: Cell) -> Conditions:
    """Return what cells of a table share, but for code and data, which have their own sentence."""
    return requested_conditions(cell.without_code)


def _change(old: Workload, new: Workload) -> str:
    """Return what differs between the code or the data of two workloads."""
    if old.data_sha256 != new.data_sha256:
        return "the data changed" if old.data_sha256 else "the data were not recorded"
    if not old.sources:
        return "code was not recorded"
    # else the functions could not be called
    is_known = bool(old.imported) == bool(new.imported)
    sources = (old.sources, new.sources) if is_known else (old.code, new.code)
    names = differing_names(*sources)
    return f"{few(names) or 'the number of samples or parameters'} changed"


def superseding(planned: PlannedCell, record: Record | None) -> PlannedCell:
    """Return the cell with permission to replace `record`, which it has now."""
    attempt = record.attempt.id if record else None
    return planned._replace(file=replace(planned.file, supersedes=attempt))


def _first_reason(state: CellState) -> str:
    if state.outcome is Outcome.MISSING and state.job is None:
        return "not submitted yet"
    return f"{state.outcome.value} before"


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
    return [
        state
        for state in states
        if not (state.outcome.may_run or state.outcome is Outcome.OK)
    ]


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


def within_retries(
    states: Iterable[CellState], history: History, retries: int
) -> tuple[list[CellState], tuple[str, ...]]:
    """Return the lost cells with retries left, and the nodes that have failed so far."""
    nodes = dict.fromkeys(history.excluded)
    again = []
    for state in with_outcomes(states, ("lost",)):
        if state.outcome is Outcome.NODE_FAIL and state.node:
            nodes[state.node] = None
        if history.retries.get(state.slug, 0) < retries:
            again.append(state)
    return again, tuple(nodes)


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
