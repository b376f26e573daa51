"""Selection of the cells of a plan to submit: those without a result, and why."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.record import Record
from hpml_jobs.core.source_files import changed_files, differing_names
from hpml_jobs.core.text import counted, few
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.results.conditions import KEYS, Conditions, requested_conditions
from hpml_jobs.results.groups import differing
from hpml_jobs.status.states import StudyStatus, status_for_submission
from hpml_jobs.study.snapshot import CellState
from hpml_jobs.submit.steps import next_step


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


def select(plan: Plan, *, by_job: bool = False) -> Selection:
    """Compare a plan with its study; an oom record counts as finished.

    With a goal only the cells that come next are compared; `by_job`: nobody typed it.

    A cell whose state is unknown is left out, because its job may be running.

    Raises:
        HpmlError: squeue does not say which cells have a job, or a name is another cell's by now.
    """
    # the budget counts all jobs of the study
    has_budget = plan.cluster.gpu_hours_budget is not None
    status = status_for_submission(plan.study, all_jobs=has_budget)
    notes = []
    if plan.goal is not None:
        plan, sentence = next_step(plan, plan.goal, status, by_job=by_job)
        notes.append(sentence)
    states = {state.slug: state for state in status.states}
    records = {snapshot.folder.slug: snapshot.record for snapshot in status.snapshots}
    cells = {s.folder.slug: s.file.cell for s in status.snapshots if s.file is not None}
    send = []
    reasons = {}
    left_out = {}
    for planned in plan.cells:
        slug = planned.slug
        if cells.get(slug, planned.cell).digest != planned.cell.digest:
            raise HpmlError(
                f"another submission gave the name {slug} to another cell: repeat the command"
            )
        state, record = states.get(slug), records.get(slug)
        reason = _reason(planned, state, record, rerun=plan.rerun)
        if state is not None and not reason:
            left_out[slug] = state
            continue
        reasons[slug] = reason
        is_again = state is not None and state.recorded
        send.append(superseding(planned, record) if is_again else planned)
    selection = Selection(plan, send, reasons, left_out, status, tuple(notes))
    if not cells:
        return selection
    new = [planned.cell for planned in send if reasons[planned.slug] == _NEW]
    return selection._replace(
        notes=(*notes, *_notes_on_code(new, cells, records)),
        unlike=_unlike(new, cells.values()),
    )


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
        is_first = state.outcome is Outcome.MISSING and state.job is None
        return "not submitted yet" if is_first else f"{state.outcome.value} before"
    helpers = record.facts.helpers if record and record.facts else ()
    changed = changed_files(helpers, planned.file.import_root)
    if changed:
        return f"again ({few(changed)} changed)"
    return "again (rerun=true)" if rerun else ""


def _notes_on_code(
    new: Iterable[Cell], cells: Mapping[str, Cell], records: Mapping[str, Record | None]
) -> Iterator[str]:
    """Yield a sentence on new cells that differ from cells of the study in code or data only."""
    earlier = {cell.without_code: cell for cell in reversed([*cells.values()])}
    for slug, cell in cells.items():
        if records[slug] is not None:
            earlier[cell.without_code] = cell
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


def _unlike(new: Iterable[Cell], cells: Collection[Cell]) -> str:
    """Return a sentence on new cells that share no table with a cell of the study; else nothing."""
    there = set(map(_table_conditions, cells))
    alone = [asked for asked in map(_table_conditions, new) if asked not in there]
    if not alone:
        return ""
    wanted = alone[0]
    nearest = max(sorted(there), key=lambda had: len({*had} & {*wanted}))
    differences = [
        f"{KEYS.get(name, f'{name} ')}{value}, there {value_there}"
        for name, (value, value_there) in differing(
            [dict(wanted), dict(nearest)]
        ).items()
    ]
    return (
        f"{counted(len(alone), 'new cell')} would not be compared with the study's "
        f"{len(cells)}: {'; '.join(differences)}. Give the same values, or another study="
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
