"""The log of a running cell, as it grows, until the cell ends."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpml_jobs.attempt import AttemptFolder
from hpml_jobs.slurm import Outcome
from hpml_jobs.study import CellState, Study
from hpml_jobs.submit.logs import end_of
from hpml_jobs.submit.status import states

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
    log = attempt.log_of(0) if attempt else None
    yield end_of(log, lines) if log else ""
    position = log.stat().st_size if log and log.exists() else 0
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
            if not any(s.slug == state.slug and s.outcome.active for s in states(study)):
                return
        if not added:
            time.sleep(POLL_S)


def _attempt(study: Study, state: CellState) -> AttemptFolder | None:
    """The attempt of the cell's present job, once it has begun."""
    latest = study.cell(state.slug).latest_attempt()
    return latest if latest and latest.job == state.job else None


def _from(log: Path, position: int) -> bytes:
    try:
        with log.open("rb") as opened:
            opened.seek(position)
            return opened.read()
    except OSError:
        return b""
