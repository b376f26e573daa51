"""Suggested next commands for a study, from the states of its cells."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from math import ceil
from pathlib import Path

from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import PROGRAM, counted, with_command
from hpml_jobs.core.workload import SourceFile
from hpml_jobs.results.checks.disturbed import DISTURBED, is_worth_repeating
from hpml_jobs.study.selection import OfCell
from hpml_jobs.study.snapshot import CellState, FolderSnapshot

REPLACED = "of older code, submitted again with the current code"
"""What replaced cells are."""


def hints_for(
    cells: list[CellState], study: str, changed: Mapping[str, bool]
) -> list[str]:
    """Return a line per thing to do; `changed` are cells whose code is not that of now.

    `study` is the study's name with the option that commands need to find it.
    """
    current = [state for state in cells if state.slug not in changed]
    hints = [
        *_blocked(cells, study),
        *_unknown(cells, study),
        *_of_older_code(cells, changed),
        *_unfinished(current, study),
        *_disturbed(current, study),
    ]
    is_active = any(state.outcome.active for state in cells)
    if is_active or any(state.recorded for state in cells):
        hints.append(next_commands(study, watch=is_active))
    return hints


def _blocked(cells: list[CellState], study: str) -> Iterator[str]:
    """Yield a hint on pending cells that cannot start until someone acts."""
    blocked = [state for state in cells if state.who]
    if blocked:
        who = " or ".join(dict.fromkeys(state.who for state in blocked))
        yield with_command(
            f"{counted(len(blocked), 'pending cell')} cannot start without action from {who}; to "
            "remove pending cells from the queue",
            f"{PROGRAM} cancel {study}",
        )


def _unknown(cells: list[CellState], study: str) -> Iterator[str]:
    """Yield a hint on cells of which it is unknown whether they have a job."""
    unknown = (state for state in cells if state.outcome is Outcome.UNKNOWN)
    if unconfirmed := sum(not state.job for state in unknown):
        yield with_command(
            f"for {counted(unconfirmed, 'cell')} it is unknown whether SLURM accepted the job "
            "(squeue --me); to submit what was not accepted, once SLURM answers",
            f"{PROGRAM} resubmit {study} --missing",
        )


def changed_code(snapshots: Iterable[FolderSnapshot]) -> dict[str, bool]:
    """Return the cells whose user's code is not what they were submitted with.

    Each with whether it is replaced: the study has the same cell with the current code.
    """
    from hpml_jobs.core.source_files import changed_files

    @cache
    def has_changed(code: tuple[SourceFile, ...], root: Path) -> bool:
        try:
            return bool(changed_files(code, root))
        except (OSError, HpmlError):  # a colleague's study, whose code may be private
            return False

    changed: dict[str, Cell] = {}
    current = set()
    for snapshot in snapshots:
        file = snapshot.file
        if file is None or not file.cell.workload.code:
            continue
        if has_changed(file.cell.workload.code, file.import_root):
            changed[snapshot.folder.slug] = file.cell.without_code
        else:
            current.add(file.cell.without_code)
    return {slug: cell in current for slug, cell in changed.items()}


def not_replaced(cells: Iterable[OfCell], changed: Mapping[str, bool]) -> list[OfCell]:
    """Return the cells that are not replaced, by `changed_code`."""
    return [cell for cell in cells if not changed.get(cell.slug)]


def _of_older_code(
    cells: list[CellState], changed: Mapping[str, bool]
) -> Iterator[str]:
    old = [
        state
        for state in cells
        if not (state.recorded or state.outcome.may_run)
        if not changed.get(state.slug, True)
    ]
    if old:
        yield (
            f"{counted(len(old), 'cell')} of older code without a record: repeat the command that "
            "submitted the study; it submits the current code"
        )
    replaced = sum(changed.get(state.slug, False) for state in cells)
    if replaced:
        yield f"{counted(replaced, 'cell')} {REPLACED}"


def _unfinished(cells: list[CellState], study: str) -> Iterator[str]:
    """Yield a hint for each way in which cells ended without a result."""
    for outcomes, words, command in _ends(cells, study):
        ended = sum(s.outcome in outcomes and not s.recorded for s in cells)
        if ended:
            yield with_command(f"{counted(ended, 'cell')} {words}", command)


def _ends(
    cells: list[CellState], study: str
) -> tuple[tuple[tuple[Outcome, ...], str, str], ...]:
    """Return outcomes, what they say of cells, and the commands to go on."""
    logs = f"{PROGRAM} logs {study}"
    resubmit = f"{PROGRAM} resubmit {study}"
    # a quarter more than at this pace; twice the time where the progress is not known
    minutes = [
        (s.minutes or 0) * (1.25 / s.done if s.done else 2)
        for s in cells
        if s.outcome is Outcome.TIMEOUT
    ]
    memory_gb = [s.mem_gb or 0 for s in cells if s.outcome is Outcome.OOM]
    # an example where the limits of the job are not known
    longer = ceil(max(minutes, default=0)) or 60
    more_gb = ceil(2 * max(memory_gb, default=0)) or 64
    return (
        (
            (Outcome.FAILED, Outcome.INVALID),
            "failed; to see why, and to submit again (with changed code: your first command)",
            f"{logs}\n{resubmit} --failed",
        ),
        (
            (Outcome.TIMEOUT,),
            "reached the time limit; to see where each rank was, and if none was stuck (the "
            "partition's limit is the most)",
            f"{logs}\n{resubmit} --timeout --minutes {longer}",
        ),
        (
            (Outcome.OOM,),
            "ran out of the memory of a node (new cells: cluster.mem_gb_per_gpu=GB)",
            f"{resubmit} --oom --mem {more_gb}",
        ),
        (
            (Outcome.NODE_FAIL, Outcome.PREEMPTED),
            "lost to a node failure or preemption",
            f"{resubmit} --lost",
        ),
        ((Outcome.CANCELLED,), "cancelled", f"{resubmit} --cancelled"),
        ((Outcome.MISSING,), "never ran, or left no trace", f"{resubmit} --missing"),
    )


def _disturbed(cells: list[CellState], study: str) -> Iterator[str]:
    """Yield a hint on measured cells that were disturbed."""
    hit = sum(
        any(c.check == DISTURBED and is_worth_repeating(c) for c in state.checks)
        for state in cells
    )
    if hit:
        yield with_command(
            f"{counted(hit, 'cell')} disturbed: marked, or left out; once the machine is quiet",
            f"{PROGRAM} resubmit {study} --disturbed",
        )


def next_commands(study: str, *, watch: bool) -> str:
    """Return the next commands for a study, by its `study_words`."""
    first = f"{PROGRAM} status {study} --watch\n" if watch else ""
    return with_command("next", f"{first}{PROGRAM} collect {study}")
