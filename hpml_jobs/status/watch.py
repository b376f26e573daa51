"""A study watched until no cell is pending or running; the logs of its cells, also as they grow."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic, sleep

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import duration_text, unix_time
from hpml_jobs.status.evidence import script_logs, slurm_logs
from hpml_jobs.status.states import StudyStatus, cell_states, study_status
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import read_from, tail
from hpml_jobs.study.snapshot import CellState, RecordCache
from hpml_jobs.study.study import Study

SLOWEST_S = 60.0
"""While SLURM does not respond it is asked ever less often, at least this often."""


def watch_study(
    study: Study,
    every_s: float,
    show: Callable[[list[CellState], str], None],
    choose: Callable[[list[CellState]], list[CellState]] = list,
    cache: RecordCache | None = None,
) -> StudyStatus:
    """Call `show` with the chosen states every `every_s` seconds, and a note on SLURM.

    Return the last status, when no chosen cell is pending or running. A cell may be if its state is
    unknown because SLURM does not answer, or not completely.
    """
    pause_s = every_s
    cache = RecordCache() if cache is None else cache
    while True:
        status = study_status(study, cache=cache)
        states, complaint = choose(status.states), status.complaint
        pause_s = max(every_s, min(2 * pause_s, SLOWEST_S)) if complaint else every_s
        may_change = complaint and any(state.outcome is Outcome.UNKNOWN for state in states)
        note = f"SLURM does not answer ({complaint}); next query in {duration_text(pause_s)}"
        show(states, note if may_change else "")
        if not (may_change or any(state.outcome.active for state in states)):
            return status
        sleep(pause_s)


POLL_S = 0.5
"""Seconds between two reads of the log."""

ASK_S = 15.0
"""Seconds between two questions to SLURM: a job that is killed leaves no exit report."""


def latest_running(study: Study, states: Iterable[CellState]) -> CellState | None:
    """Return the running cell whose attempt began last."""

    def began(state: CellState) -> float:
        latest = study.cell(state.slug).latest_attempt()
        about = latest.read_about() if latest else None
        if about is None:
            return 0.0
        return unix_time(about.started) or 0.0

    running = (state for state in states if state.outcome is Outcome.RUNNING)
    return max(running, key=began, default=None)


END_BYTES = 200_000
"""The last lines of a log are looked for in so many bytes."""


def log_text(study: Study, state: CellState, lines: int) -> str:
    """Return the first failing rank's traceback, or the last lines of the job's logs.

    Ranks that were stopped follow with where they were, and their stacks.
    """
    folder = study.cell(state.slug)
    latest = folder.latest_attempt()
    end = latest.read_end() if latest else None
    stacks = _stacks_text(latest, lines) if latest else ""
    if end and end.traceback:
        return f"rank {end.rank} failed first:\n{end.traceback}{stacks}"
    files = latest.logs() if latest else []
    files += slurm_logs(study, folder.slug, state.job or "", _nodes(folder))
    files = files or script_logs(study, state.job or "")
    if not files and not stacks:
        return "there is no log"
    parts = []
    for file in files:
        if text := last_lines(file, lines):
            parts.append(f"---- {file}\n{text}")
    if stacks:
        parts.append(stacks)
    empty = ", ".join(str(file) for file in files)
    return "\n".join(parts) or f"the logs are empty ({empty})"


def _stacks_text(attempt: AttemptFolder, lines: int) -> str:
    """Return where the processes of an attempt were, then their stacks; empty without stacks."""
    files = attempt.stack_files()
    stacks = [f"---- {file}\n{last_lines(file, lines)}" for file in files]
    return "\n".join([f"---- {attempt.activity()}", *stacks]) if stacks else ""


def _nodes(folder: CellFolder) -> int:
    try:
        return folder.read().cell.nodes
    except HpmlError:
        return 1


def last_lines(log: Path, lines: int) -> str:
    """Return the last lines of a log."""
    return "\n".join(tail(log, END_BYTES).splitlines()[-lines:])


def follow(study: Study, state: CellState, lines: int) -> Iterator[str]:
    """Yield the end of a running cell's log, then additions, until the cell has ended."""
    attempt = _attempt(study, state)
    text, position = _end_of(attempt.log_of(0), lines) if attempt else ("", 0)
    yield text
    queried_at = monotonic()
    while True:
        attempt = attempt or _attempt(study, state)
        has_ended = attempt is not None and attempt.end.exists()  # before the log's last read
        added = read_from(attempt.log_of(0), position) if attempt else b""
        position += len(added)
        yield added.decode(errors="replace")
        if has_ended and not added:  # a long rest is read in parts
            return
        if monotonic() - queried_at > ASK_S:
            queried_at = monotonic()
            if not any(s.slug == state.slug and s.outcome.active for s in cell_states(study)):
                return
        if not added:
            sleep(POLL_S)


def _attempt(study: Study, state: CellState) -> AttemptFolder | None:
    """Return the attempt of the cell's present job, once it has begun."""
    latest = study.cell(state.slug).latest_attempt()
    return latest if latest and latest.job == state.job else None


def _end_of(log: Path, lines: int) -> tuple[str, int]:
    """Return the last lines of a log, and the position after them."""
    size = log.stat().st_size if log.exists() else 0
    start = max(0, size - END_BYTES)
    content = read_from(log, start)
    last = content.splitlines(keepends=True)[-lines:]
    text = b"".join(last).decode(errors="replace")
    return text, start + len(content)
