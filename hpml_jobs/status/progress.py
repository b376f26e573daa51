"""How far a running cell is: what its rank 0 said between two epochs, carried on to now."""

import time
from datetime import datetime
from typing import NamedTuple

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.text import lasting
from hpml_jobs.study.attempt import AttemptFolder, Progress

_AFTER = {"test": "testing", "probing": "microbenchmark and profiler"}
"""What a cell does when it has trained."""


class Pace(NamedTuple):
    """How far a cell is, for people; as a share of its training, and seconds of it to go."""

    doing: str
    done: float | None = None
    left_s: float | None = None


def pace_of(attempt: AttemptFolder, now: float | None = None) -> Pace:
    """The pace of an attempt that is under way."""
    try:
        progress = msgspec.json.decode(attempt.progress.read_bytes(), type=Progress)
    except (OSError, msgspec.MsgspecError):
        return Pace("starting")
    return pace(progress, time.time() if now is None else now)


def pace(progress: Progress, now: float) -> Pace:
    """What rank 0 said, carried on to `now` (seconds since 1970) as the last epoch went.

    >>> said = Progress(epoch=2, epochs=3, role="timed", since="1970-01-01T00:00:00Z", last_s=300.0)
    >>> pace(said, now=120.0).doing
    'epoch 2 of 3 (timed), ~40 %, ~8 min of training left'
    """
    if progress.role in _AFTER:
        return Pace(_AFTER[progress.role], 1.0, 0.0)
    words = f"epoch {progress.epoch} of {progress.epochs} ({progress.role})"
    elapsed_s = max(0.0, now - _moment(progress.since, now))
    share = progress.iteration / progress.iterations if progress.iterations else 0.0
    epoch_s = elapsed_s / share if share else progress.last_s
    if not epoch_s:
        return Pace(words, (progress.epoch - 1) / progress.epochs)
    share = formulas.epoch_share(elapsed_s, epoch_s)
    left_s = formulas.training_left_s(elapsed_s, epoch_s, progress.epochs - progress.epoch)
    done = (progress.epoch - 1 + share) / progress.epochs
    return Pace(f"{words}, ~{100 * share:.0f} %, ~{lasting(left_s)} of training left", done, left_s)


def _moment(text: str, otherwise: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return otherwise
