"""Progress of a running cell, extrapolated from its last report."""

from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.measurements import Stage
from hpml_jobs.core.text import duration_text, unix_time
from hpml_jobs.study.attempt import Progress

_AFTER = {Stage.TEST: "testing", Stage.PROBING: "microbenchmark and profiler"}
"""Activities of a cell after training."""

LONGEST_S = 1e9
"""A longer duration of an epoch (30 years) is not believed."""


LATE, LATE_S = 2, 60
"""An epoch so many times as long as the last one, and so many seconds: its end is not predicted."""


class Pace(NamedTuple):
    """The progress of a cell: as text, as a share of training, and seconds of training left."""

    doing: str
    done: float | None = None
    left_s: float | None = None


def pace_of(progress: Progress | None, now: float) -> Pace:
    """Extrapolate the last report to `now` (seconds since 1970) at the pace of the last epoch.

    >>> start = "1970-01-01T00:00:00Z"
    >>> last = Progress(epoch=2, epochs=3, role=Stage.TIMED, since=start, last_s=300.0)
    >>> pace_of(last, now=120.0).doing
    'epoch 2 of 3 (timed), ~40 %, ~8 min of training left'
    """
    if progress is None or not 0 < progress.epoch <= progress.epochs:
        return Pace("starting")
    if progress.role in _AFTER:
        return Pace(_AFTER[progress.role], 1.0, 0.0)
    words = f"epoch {progress.epoch} of {progress.epochs} ({progress.role})"
    since = unix_time(progress.since)
    elapsed_s = 0.0 if since is None else max(0.0, now - since)
    share = progress.iteration / progress.iterations if progress.iterations else 0.0
    epoch_s = elapsed_s / share if share > 0 else progress.last_s
    if not epoch_s or not 0 < epoch_s <= LONGEST_S:
        return Pace(words, (progress.epoch - 1) / progress.epochs)
    if elapsed_s > LATE * epoch_s and elapsed_s > LATE_S:
        times = f"{duration_text(elapsed_s)}, the last one took {duration_text(epoch_s)}"
        return Pace(f"{words}: for {times}", (progress.epoch - 1) / progress.epochs)
    share = formulas.epoch_share(elapsed_s, epoch_s)
    left_s = formulas.training_left_s(elapsed_s, epoch_s, progress.epochs - progress.epoch)
    done = (progress.epoch - 1 + share) / progress.epochs
    return Pace(
        f"{words}, ~{100 * share:.0f} %, ~{duration_text(left_s)} of training left", done, left_s
    )
