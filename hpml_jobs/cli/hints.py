"""Suggested next commands for a study, from the states of its cells."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import ceil
from pathlib import Path

from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import PROGRAM, counted, with_command
from hpml_jobs.core.workload import SourceFile
from hpml_jobs.results.checks.disturbance import DISTURBED, is_worth_repeating
from hpml_jobs.study.selection import OfCell
from hpml_jobs.study.snapshot import CellState, FolderSnapshot

EXAMPLE_MINUTES, EXAMPLE_GB = 60, 64
"""Limits in suggested commands where those of the job are not known."""

REPLACED = "of older code, submitted again with the current code"
"""What replaced cells are."""


def hints_for(
    cells: list[CellState], study: str, changed: Mapping[str, bool] = {}
) -> list[str]:
    """Return a line per thing to do; `changed` are cells whose code is not that of now.

    `study` is the study's name with the option that commands need to find it.
    """
    current = [state for state in cells if state.slug not in changed]
    return [
        *_blocked(cells, study),
        *_unknown(cells, study),
        *_of_older_code(cells, changed),
        *_unfinished(current, study),
        *_disturbed(current, study),
        *_next(cells, study),
    ]


def _next(cells: list[CellState], study: str) -> list[str]:
    is_active = any(state.outcome.active for state in cells)
    if is_active or any(state.recorded for state in cells):
        return [next_commands(study, watch=is_active)]
    return []


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


def current_and_replaced(
    cells: Sequence[OfCell], changed: Mapping[str, bool]
) -> tuple[list[OfCell], list[OfCell]]:
    """Return the cells that are not replaced, and those that are, by `changed_code`."""
    replaced = [cell for cell in cells if changed.get(cell.slug)]
    return [cell for cell in cells if not changed.get(cell.slug)], replaced


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
    replaced = sum(changed.get(state.slug, False) for state in cells)
    if replaced:
        yield f"{counted(replaced, 'cell')} {REPLACED}"


def _unfinished(cells: list[CellState], study: str) -> Iterator[str]:
    """Yield a hint for each way in which cells ended without a result."""
    unfinished = [state for state in cells if not state.recorded]
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
    """Yield a hint on measured cells that were disturbed."""
    hit = 0
    for state in cells:
        checks = [check for check in state.checks if check.check == DISTURBED]
        hit += any(map(is_worth_repeating, checks))
    if hit:
        words = f"{counted(hit, 'cell')} with a disturbed epoch or microbenchmark"
        yield with_command(words, f"{PROGRAM} resubmit {study} --disturbed")


def next_commands(study: str, *, watch: bool) -> str:
    """Return the next commands for a study, by its `study_words`."""
    first = f"{PROGRAM} status {study} --watch\n" if watch else ""
    return with_command("next", f"{first}{PROGRAM} collect {study}")
