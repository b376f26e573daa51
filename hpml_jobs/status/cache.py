"""Cache of SLURM's last answers (seen.json), used once jobs have left squeue and sacct is off.

Ended jobs leave squeue after minutes. The file's modification time is when SLURM answered last. If
the study is not writable, nothing is cached.
"""

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from hpml_jobs.slurm.jobs import JobState
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.reader import read_json
from hpml_jobs.study.study import Study


class CachedAnswers(NamedTuple):
    """The last known state of each job, and when SLURM answered last (seconds since 1970)."""

    jobs: dict[str, JobState]
    answered: float | None = None


def read_answers(study: Study) -> CachedAnswers:
    """Return the cached answers; none where there is no file, or where it cannot be read."""
    path = study.slurm_answers
    try:
        answered = path.stat().st_mtime
        jobs = read_json(path, dict[str, JobState])
    except (OSError, ValueError):
        return CachedAnswers({})
    return CachedAnswers(jobs, answered)


def cache_answers(study: Study, cached: CachedAnswers, states: Iterable[JobState]) -> None:
    """Add the present states to the cache; the file is written only if a state has changed."""
    path = study.slurm_answers
    jobs = cached.jobs | {state.job: _without_times(state) for state in states}
    with contextlib.suppress(OSError):  # a read-only study, a full disk: works without a cache
        if jobs != cached.jobs:
            write_whole(path, encode(jobs))
        elif cached.answered is not None:
            os.utime(path)


def _without_times(state: JobState) -> JobState:
    """Return an active job without what changes from query to query; an ended one as it is."""
    if state.over:
        return state
    return msgspec.structs.replace(state, reason="", starts=None, elapsed_s=None)
