"""Suggested next commands for a study, from the states of its cells."""

from collections.abc import Iterator, Mapping
from functools import cache
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from hpml_jobs.checks.disturbance import is_worth_repeating
from hpml_jobs.cli.options import StudySelection, study_words
from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.source_files import changed_files
from hpml_jobs.core.text import PROGRAM, counted, with_command
from hpml_jobs.core.workload import SourceFile
from hpml_jobs.study.snapshot import CellState

if TYPE_CHECKING:
    from hpml_jobs.status.states import StudyStatus


EXAMPLE_MINUTES, EXAMPLE_GB = 60, 64
"""Limits in suggested commands where those of the job are not known."""


def hints_of(selection: StudySelection, status: "StudyStatus") -> list[str]:
    """Return a line per thing to do for the selected cells, with complete commands."""
    cells, study = selection.chosen(status.states), study_words(selection.study)
    if selection.study.is_unpacked:  # it gets no new cells
        return _next(cells, study)
    return hints_for(cells, study, _with_changed_code(status))


def hints_for(
    cells: list[CellState],
    study: str,
    changed: Mapping[str, bool] = MappingProxyType({}),
) -> list[str]:
    """Return a line per thing to do; `changed` are cells whose code is not that of now.

    `study` is the study's name with the option that commands need to find it.
    """
    lines = [*_blocked(cells, study), *_unknown(cells, study)]
    lines += [*_of_older_code(cells, changed), *_unfinished(cells, study, changed)]
    return [*lines, *_disturbed(cells, study), *_next(cells, study)]


def _next(cells: list[CellState], study: str) -> list[str]:
    if any(state.outcome.active for state in cells):
        return [next_commands(study, watch=True)]
    if any(state.recorded for state in cells):
        return [next_commands(study, watch=False)]
    return []


def _blocked(cells: list[CellState], study: str) -> Iterator[str]:
    """Yield a hint on pending cells that cannot start until someone acts."""
    blocked = [state for state in cells if state.who]
    if blocked:
        who = " or ".join(dict.fromkeys(state.who for state in blocked))
        need = "needs" if len(blocked) == 1 else "need"
        yield with_command(
            f"{counted(len(blocked), 'pending cell')} {need} action from {who}; to remove pending "
            "cells from the queue",
            f"{PROGRAM} cancel {study}",
        )


def _unknown(cells: list[CellState], study: str) -> Iterator[str]:
    """Yield hints on cells of which SLURM gives no state."""
    unknown = [state for state in cells if state.outcome is Outcome.UNKNOWN]
    unconfirmed = sum(not state.job for state in unknown)
    if unconfirmed:
        yield with_command(
            f"for {counted(unconfirmed, 'cell')} it is unknown whether SLURM accepted the job "
            "(squeue --me); to submit what was not accepted, once SLURM answers",
            f"{PROGRAM} resubmit {study} --missing",
        )
    if any(state.job for state in unknown):
        yield "SLURM does not say how the unknown cells are: try again later; no data is lost"


def _with_changed_code(status: "StudyStatus") -> dict[str, bool]:
    """Return the cells without a record whose user's code is not what they were submitted with.

    Each with whether the study has the same cell with the current code.
    """

    @cache
    def has_changed(code: tuple[SourceFile, ...], root: Path) -> bool:
        try:
            return bool(changed_files(code, root))
        except (OSError, HpmlError):  # a colleague's study, whose code may be private
            return False

    changed: dict[str, Cell] = {}
    current = []
    for snapshot in status.snapshots:
        if file := snapshot.file:
            code = file.cell.workload.code
            is_old = has_changed(code, file.import_root)
            if is_old and snapshot.record is None:
                changed[snapshot.folder.slug] = _without_code(file.cell)
            elif code and not is_old:
                current.append(_without_code(file.cell))
    return {slug: cell in current for slug, cell in changed.items()}


def _without_code(cell: Cell) -> Cell:
    workload = msgspec.structs.replace(cell.workload, code=())
    return msgspec.structs.replace(cell, workload=workload)


def _of_older_code(
    cells: list[CellState], changed: Mapping[str, bool]
) -> Iterator[str]:
    ended = (state for state in cells if not (state.recorded or state.outcome.may_run))
    old = [state for state in ended if not changed.get(state.slug, True)]
    if old:
        yield (
            f"{counted(len(old), 'cell')} of older code without a record: repeat the command that "
            "submitted the study; it submits the current code"
        )


def _unfinished(
    cells: list[CellState], study: str, changed: Mapping[str, bool]
) -> Iterator[str]:
    """Yield a hint for each way in which cells of the current code ended without a result."""
    current = [state for state in cells if state.slug not in changed]
    # an untried batch of a ladder is a result, too
    unfinished = [state for state in current if not (state.recorded or state.untried)]
    for outcomes, words, command in _ends(cells, study):
        ended = [state for state in unfinished if state.outcome in outcomes]
        if ended:
            yield with_command(f"{counted(len(ended), 'cell')} {words}", command)


def _ends(
    cells: list[CellState], study: str
) -> tuple[tuple[tuple[Outcome, ...], str, str], ...]:
    """Return outcomes, what they say of cells, and the commands to go on."""
    logs = f"{PROGRAM} logs {study}"
    resubmit = f"{PROGRAM} resubmit {study}"
    timeouts = [state for state in cells if state.outcome is Outcome.TIMEOUT]
    minutes = max((state.minutes or 0 for state in timeouts), default=0)
    longer = ceil(2 * minutes) or EXAMPLE_MINUTES
    oom = [state for state in cells if state.outcome is Outcome.OOM]
    memory_gb = max((state.mem_gb or 0 for state in oom), default=0)
    more_gb = ceil(2 * memory_gb) or EXAMPLE_GB
    return (
        (
            (Outcome.FAILED, Outcome.INVALID),
            "failed; to see why, and to submit again",
            f"{logs}\n{resubmit} --failed",
        ),
        (
            (Outcome.TIMEOUT,),
            "reached the time limit; to see where each rank was, and if none was stuck",
            f"{logs}\n{resubmit} --timeout --minutes {longer}",
        ),
        ((Outcome.OOM,), "ran out of memory", f"{resubmit} --oom --mem {more_gb}"),
        (
            (Outcome.NODE_FAIL, Outcome.PREEMPTED),
            "lost to a node failure or preemption",
            f"{resubmit} --lost",
        ),
        ((Outcome.CANCELLED,), "cancelled", f"{resubmit} --cancelled"),
        ((Outcome.MISSING,), "missing", f"{resubmit} --missing"),
    )


def _disturbed(cells: list[CellState], study: str) -> Iterator[str]:
    """Yield a hint on measured cells that were disturbed, or whose timed epoch has outliers."""
    names = {"disturbed", "outliers"}
    hit = 0
    for state in cells:
        checks = [check for check in state.checks if check.check in names]
        hit += any(map(is_worth_repeating, checks))
    if hit:
        epochs = "a disturbed epoch or microbenchmark, or slow iterations"
        has = "has" if hit == 1 else "have"
        words = f"{counted(hit, 'cell')} {has} {epochs}"
        yield with_command(words, f"{PROGRAM} resubmit {study} --disturbed")


def next_commands(study: str, *, watch: bool) -> str:
    """Return the next commands for a study, by its `study_words`."""
    first = f"{PROGRAM} status {study} --watch\n" if watch else ""
    return with_command("next", f"{first}{PROGRAM} collect {study}")
