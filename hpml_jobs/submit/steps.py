"""The next step of a study with `gpus=auto`, `batch=auto` or `repeats=auto`, from its records."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.formulas import MOST_LAUNCHES, gpu_hours
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted, hours_text, percent_text, unix_time
from hpml_jobs.plan.auto import (
    LEAST_ITERATIONS,
    Chosen,
    Goal,
    Known,
    Measured,
    Setting,
    next_cells,
    spent,
    why_no_larger,
)
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.results.cells import cell_results
from hpml_jobs.results.disturbance import withheld_share
from hpml_jobs.results.groups import make_rows
from hpml_jobs.results.rows import Row
from hpml_jobs.status.states import StudyStatus
from hpml_jobs.study.manifest import History
from hpml_jobs.study.snapshot import CellState

RETRIES = 2
"""Times that a cell is submitted again that the cluster lost, or that was disturbed."""


def next_step(
    plan: Plan, goal: Goal, status: StudyStatus, *, by_job: bool
) -> tuple[Plan, str]:
    """Return the plan of the cells that come next, none at the end, and a sentence on them.

    `by_job`: nobody typed it. Then a cell that failed is not submitted again, but one that the
    cluster lost is, on other nodes.
    """
    states = {state.slug: state for state in status.states}
    # that a batch does not fit on a GPU is a record, too
    ended = {state.slug for state in status.states if state.recorded}
    sent = [planned for planned in plan.cells if planned.slug in states]
    running = [p for p in sent if states[p.slug].outcome.may_run]
    if running:
        return plan._replace(cells=running), ""
    if by_job:
        lost, nodes = _lost((states[p.slug] for p in sent), status.history)
        if lost:
            cells = [planned for planned in sent if planned.slug in lost]
            plan = plan._replace(cells=cells, is_retry=True, exclude=nodes)
            return plan, f"{counted(len(lost), 'cell')} again that the cluster lost"
    known = _known(sent, states, status)
    sizes = sorted({planned.cell.gpus for planned in plan.cells})
    batches = {planned.cell.batch for planned in plan.cells}
    step = next_cells(goal, sizes, sorted(batches), known)
    if isinstance(step, Chosen):
        return plan._replace(cells=[]), _ended(plan, goal, known, max(batches))
    launches = [_launch(plan, setting, ended) for setting in step]
    failed = [states[p.slug] for p in launches if by_job and p.slug in states]
    if failed:
        return plan._replace(cells=[]), (
            f"{failed[0].slug} {failed[0].outcome.value}: {failed[0].reason}; the same command "
            "goes on"
        )
    # none without GPUs
    most = sum(p.gpu_hours for p in plan.cells if p.slug not in ended)
    if goal.gpu_hours is not None:
        _refuse_small_budget(goal.gpu_hours, launches, known)
        most = min(most, goal.gpu_hours - spent(known.values()))
    name = _name(step, sizes, known)
    step_plan = plan._replace(
        cells=launches,
        pack=plan.pack or len(launches) > 1,
        most_gpu_hours=most,
        step=name,
    )
    return step_plan, f"auto: {name}" if known else _rule(plan, goal, most)


def _launch(plan: Plan, setting: Setting, ended: set[str]) -> PlannedCell:
    """Return the next launch of a setting; the last one again if all have ended."""
    cells = [p for p in plan.cells if (p.cell.gpus, p.cell.batch) == setting]
    return next((p for p in cells if p.slug not in ended), cells[-1])


def _name(step: Sequence[Setting], sizes: Sequence[int], known: Known) -> str:
    """Return what a step measures, and so why."""
    first, *_ = step
    if first in known:
        return (
            f"run {known[first].launches + 1} of at most {MOST_LAUNCHES} of gpus={first.gpus} "
            f"batch={first.batch}, to be more certain"
        )
    if first.gpus == sizes[0]:
        return f"the batches of gpus={first.gpus}"
    return f"gpus={first.gpus} batch={first.batch}"


def _refuse_small_budget(
    budget: float, launches: Iterable[PlannedCell], known: Known
) -> None:
    """Refuse a budget below the first step, of which only the time limits are known."""
    first = sum(gpu_hours(p.cell.gpus, p.shape.minutes) for p in launches)
    if not known and first > budget:
        raise UsageError(
            f"gpu_hours={budget:g}: the first step may use {hours_text(first)} by its time limits; "
            "give more, or lower minutes="
        )


def _lost(
    states: Iterable[CellState], history: History
) -> tuple[list[str], tuple[str, ...]]:
    """Return the lost cells with retries left, and the nodes that have failed so far."""
    nodes = dict.fromkeys(history.excluded)
    again = []
    for state in states:
        if state.outcome not in (Outcome.NODE_FAIL, Outcome.PREEMPTED):
            continue
        if state.outcome is Outcome.NODE_FAIL and state.node:
            nodes[state.node] = None
        if history.retries.get(state.slug, 0) < RETRIES:
            again.append(state.slug)
    return again, tuple(nodes)


def _known(
    sent: Iterable[PlannedCell], states: Mapping[str, CellState], status: StudyStatus
) -> Known:
    """Return what is known of each setting that was launched."""
    slugs = {planned.slug for planned in sent}
    results = [r for r in cell_results(status.snapshots, states) if r.slug in slugs]
    records = {result.slug: result.record for result in results}
    known = {}
    for row in make_rows(results):
        of_row = [record for slug in row.cells if (record := records[slug])]
        if of_row:
            known[Setting(row.gpus, row.batch_per_gpu)] = _measured(row, of_row)
    return known


def _measured(row: Row, records: list[Record]) -> Measured:
    samples = (row.timing and row.timing.units) or 1
    return Measured(
        gpu_s=tuple(row.gpus * run.epoch_s / samples for run in row.runs),
        launches=len(records),
        noise=_noise(row, records),
        gpu_hours=max(map(_gpu_hours, records)),
        samples=(row.timing and row.timing.samples) or inf,
    )


def _noise(row: Row, records: list[Record]) -> float:
    """Return the error of a launch; disturbed ones decide nothing while others may follow."""
    if all(map(withheld_share, records)) and len(records) <= RETRIES:
        return inf
    return max((run.noise or 0 for run in row.runs), default=0)


def _gpu_hours(record: Record) -> float:
    """Return the GPU-hours of a cell, of which an import knows nothing."""
    began = unix_time(record.attempt.started)
    ended = unix_time(record.attempt.ended)
    if began is None or ended is None:
        return 0.0
    return gpu_hours(record.cell.gpus, (ended - began) / 60)


def _rule(plan: Plan, goal: Goal, most: float) -> str:
    """Return what is measured in which order, and what it may use."""
    has_batches = len({planned.cell.batch for planned in plan.cells}) > 1
    first = "batches of the smallest gpus=, then " * has_batches
    limits = f"; their time limits: {hours_text(most)} GPU-hours"
    return (
        f"auto: {first}the largest gpus=, then those between, for the largest with\n"
        f"  at least {percent_text(goal.min_efficiency, 0)} efficiency; at most {_of(plan)}"
        f"{limits * bool(most)}"
    )


def _of(plan: Plan) -> str:
    return counted(
        len({(p.cell.gpus, p.cell.batch) for p in plan.cells}), "combination"
    )


def _ended(plan: Plan, goal: Goal, known: Known, most: int) -> str:
    """Return what was measured, what it used, and why there was no larger batch, to `most`."""
    tried = {s.batch: known[s] for s in sorted(known) if s.gpus == min(known).gpus}
    few = f"the next has under {LEAST_ITERATIONS} iterations an epoch"
    why = why_no_larger(goal, [*tried.values()], known) or few
    ends = f"; batches end at {max(tried)}: {why}" * (max(tried) < most)
    launches = counted(sum(measured.launches for measured in known.values()), "run")
    used = f"; {spent(known.values()):.2g} GPU-hours used"
    return (
        f"auto: ended; {len(known)} of {_of(plan)} of gpus and batch measured in {launches}"
        f"{used * bool(plan.cells[0].gpu_hours)}{ends}"
    )
