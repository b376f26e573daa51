"""A study watched until no cell is pending or running; the log of a running cell as it grows."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic, sleep

from hpml_jobs.core.text import duration_text
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.logs import END_BYTES
from hpml_jobs.status.states import StudyStatus, cell_states, study_status
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.files import read_from
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
        try:
            return latest.about.stat().st_mtime if latest else 0.0
        except OSError:
            return 0.0

    running = (state for state in states if state.outcome is Outcome.RUNNING)
    return max(running, key=began, default=None)


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
    start = max(0, log.stat().st_size - END_BYTES) if log.exists() else 0
    content = read_from(log, start)
    last = b"".join(content.splitlines(keepends=True)[-lines:])
    return last.decode(errors="replace"), start + len(content)
