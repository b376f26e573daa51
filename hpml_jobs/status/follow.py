"""The log of a running cell, as it grows, until the cell ends."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.states import standing
from hpml_jobs.study.attempt import AttemptFolder
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.study import Study

END_BYTES = 200_000
"""The last lines are looked for in so much of a log."""

POLL_S = 0.5
"""Seconds between two looks into the log."""

ASK_S = 15.0
"""Seconds between two questions to SLURM: a job that is killed leaves no last words."""


def running_last(study: Study, chosen: Iterable[CellState]) -> CellState | None:
    """Of the running cells the one whose attempt began last."""

    def began(state: CellState) -> float:
        latest = study.cell(state.slug).latest_attempt()
        try:
            return latest.about.stat().st_mtime if latest else 0.0
        except OSError:
            return 0.0

    return max((s for s in chosen if s.outcome is Outcome.RUNNING), key=began, default=None)


def follow(study: Study, state: CellState, lines: int) -> Iterator[str]:
    """The end of a running cell's log, then what is added to it, until the cell runs no more."""
    attempt = _attempt(study, state)
    before, position = _end_of(attempt.log_of(0), lines) if attempt else ("", 0)
    yield before
    asked = time.monotonic()
    while True:
        attempt = attempt or _attempt(study, state)
        ended = attempt is not None and attempt.end.exists()  # before the last look at the log
        added = _from(attempt.log_of(0), position) if attempt else b""
        position += len(added)
        yield added.decode(errors="replace")
        if ended:
            return
        if time.monotonic() - asked > ASK_S:
            asked = time.monotonic()
            now = standing(study, judged=False).states
            if not any(one.slug == state.slug and one.outcome.active for one in now):
                return
        if not added:
            time.sleep(POLL_S)


def _attempt(study: Study, state: CellState) -> AttemptFolder | None:
    """The attempt of the cell's present job, once it has begun."""
    latest = study.cell(state.slug).latest_attempt()
    return latest if latest and latest.job == state.job else None


def _end_of(log: Path, lines: int) -> tuple[str, int]:
    """The last lines of a log, and how many bytes of it have been read with them."""
    start = max(0, log.stat().st_size - END_BYTES) if log.exists() else 0
    read = _from(log, start)
    last = b"".join(read.splitlines(keepends=True)[-lines:])
    return last.decode(errors="replace"), start + len(read)


def _from(log: Path, position: int) -> bytes:
    try:
        with log.open("rb") as opened:
            opened.seek(position)
            return opened.read()
    except OSError:
        return b""
