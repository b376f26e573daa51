"""Selection of the cells to submit: those without a record and without an active job."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.record import Record
from hpml_jobs.core.source_files import differing_names
from hpml_jobs.core.text import counted
from hpml_jobs.core.workload import Workload
from hpml_jobs.errors import HpmlError
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.states import StudyStatus, status_for_submission
from hpml_jobs.study.snapshot import CellState


class Selection(NamedTuple):
    """Cells of a plan to submit with the reason, and cells left out with their state, by slug.

    `status` is the study's status that the selection was made from. `notes` tell which cells are
    new because the user's code or data changed.
    """

    plan: Plan
    send: list[PlannedCell]
    reasons: dict[str, str]
    left_out: dict[str, CellState]
    status: StudyStatus
    notes: tuple[str, ...] = ()


def select(plan: Plan) -> Selection:
    """Compare a plan with its study; an oom record counts as finished.

    A cell whose state is unknown is left out, because its job may be running.

    Raises:
        HpmlError: squeue does not say which cells have a job, or a name is another cell's by now.
    """
    has_budget = plan.cluster.gpu_hours_budget is not None  # it counts all jobs of the study
    status = status_for_submission(plan.study, all_jobs=has_budget)
    states = {state.slug: state for state in status.states}
    records = {snapshot.folder.slug: snapshot.record for snapshot in status.snapshots}
    digests = {s.folder.slug: s.file.cell.digest for s in status.snapshots if s.file is not None}
    send: list[PlannedCell] = []
    reasons: dict[str, str] = {}
    left_out: dict[str, CellState] = {}
    for planned in plan.cells:
        slug = planned.slug
        state = states.get(slug)
        if digests.get(slug, planned.cell.digest) != planned.cell.digest:
            raise HpmlError(
                f"another submission has just given the name {slug} to another cell: repeat the "
                "command"
            )
        if state is None:
            reasons[slug] = "new"
            send.append(planned)
        elif state.outcome.may_run or (state.recorded and not plan.rerun):
            left_out[slug] = state
        else:
            reasons[slug] = "again (rerun=true)" if state.recorded else _reason(state)
            send.append(superseding(planned, records[slug]) if state.recorded else planned)
    new = [planned.cell for planned in send if reasons[planned.slug] == "new"]
    return Selection(plan, send, reasons, left_out, status, tuple(_notes_on_code(new, status)))


def _notes_on_code(new: Iterable[Cell], status: StudyStatus) -> Iterator[str]:
    """Yield a sentence on new cells that differ from cells of the study in code or data only."""
    earlier: dict[Cell, Cell] = {}
    for snapshot in status.snapshots:
        if snapshot.file is not None:
            cell = snapshot.file.cell
            if snapshot.record is not None or _without_code(cell) not in earlier:
                earlier[_without_code(cell)] = cell
    slugs: dict[str, list[str]] = {}
    for cell in new:
        old = earlier.get(_without_code(cell))
        if old is not None and (cell.workload.sources or cell.workload.data_sha256):
            slugs.setdefault(_change(old.workload, cell.workload), []).append(old.slug)
    for change, (first, *others) in slugs.items():
        count = 1 + len(others)
        since = f"{first} and {counted(len(others), 'other')} were" if others else f"{first} was"
        yield f"{change} since {since} sent: {counted(count, 'cell')} {_be(count)} new"


def _change(old: Workload, new: Workload) -> str:
    """Return what differs between the code or the data of two workloads."""
    if old.data_sha256 != new.data_sha256:
        return f"the data {'changed' if old.data_sha256 else 'were not recorded'}"
    if not old.sources:
        return "code was not recorded"
    is_known = bool(old.imported) == bool(new.imported)  # else the functions could not be called
    sources = (old.sources, new.sources) if is_known else (old.code, new.code)
    names = differing_names(*sources)
    return f"{', '.join(names) or 'the number of samples or parameters'} changed"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _without_code(cell: Cell) -> Cell:
    """Return the cell without its code and data, and what is counted of them."""
    without = {"code": (), "imported": (), "data_sha256": None, "images": None}
    workload = msgspec.structs.replace(cell.workload, **without, parameters=None)
    return msgspec.structs.replace(cell, workload=workload)


def superseding(planned: PlannedCell, record: Record | None) -> PlannedCell:
    """Return the cell with permission to replace `record`, which it has now."""
    attempt = record.attempt.id if record else None
    return planned._replace(file=msgspec.structs.replace(planned.file, supersedes=attempt))


def _reason(state: CellState) -> str:
    if state.outcome is Outcome.MISSING and state.job is None:
        return "not submitted yet"
    return f"{state.outcome.value} before"
