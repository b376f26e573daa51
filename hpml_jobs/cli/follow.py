"""The log of the cell that started last, and what is added to it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic, sleep

from hpml_jobs.core.cell import Outcome
from hpml_jobs.status.states import cell_states
from hpml_jobs.status.watch import END_BYTES
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.files import read_from
from hpml_jobs.study.snapshot import CellState
from hpml_jobs.study.study import Study

POLL_S = 0.5
"""Seconds between two reads of the log."""

ASK_S = 15.0
"""Seconds between two questions to SLURM: a job that is killed leaves no exit report."""


def latest_running(states: Iterable[CellState]) -> CellState | None:
    """Return the running cell that started last."""
    running = (state for state in states if state.outcome is Outcome.RUNNING)
    return min(running, key=lambda state: state.elapsed_s or 0.0, default=None)


def follow(study: Study, state: CellState, lines: int) -> Iterator[str]:
    """Yield the end of a running cell's log, then additions, until the cell has ended."""
    attempt = _attempt(study, state)
    text, position = _end_of(attempt.log_of(0), lines) if attempt else ("", 0)
    yield text
    queried_at = monotonic()
    while True:
        attempt = attempt or _attempt(study, state)
        has_ended, added = False, b""
        if attempt is not None:
            has_ended = attempt.end.exists()  # before the log's last read
            added = read_from(attempt.log_of(0), position)
        position += len(added)
        yield added.decode(errors="replace")
        if has_ended and not added:  # a long rest is read in parts
            return
        if monotonic() - queried_at > ASK_S:
            queried_at = monotonic()
            if not _is_active(study, state.slug):
                return
        if not added:
            sleep(POLL_S)


def _is_active(study: Study, slug: str) -> bool:
    states = (state for state in cell_states(study) if state.slug == slug)
    return any(state.outcome.active for state in states)


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
