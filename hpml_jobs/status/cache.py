"""What SLURM told of a study's jobs last: seen.json, for the time when it tells nothing more.

Ended jobs leave squeue after minutes, and without accounting nobody else knows what became of them.
The file's own time is when SLURM answered last. A study that cannot be written has no memory.
"""

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from hpml_jobs.slurm.jobs import JobState
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.study import Study


class Memory(NamedTuple):
    """Jobs by id as they were told last; when SLURM answered last, in seconds since 1970."""

    jobs: dict[str, JobState]
    answered: float | None = None


def recall(study: Study) -> Memory:
    """What was kept; nothing where there is no file, or none that can be read."""
    path = study.slurm_answers
    try:
        answered = path.stat().st_mtime
        return Memory(msgspec.json.decode(path.read_bytes(), type=dict[str, JobState]), answered)
    except (OSError, ValueError):
        return Memory({})


def remember(study: Study, before: Memory, told: Iterable[JobState]) -> None:
    """Keep what SLURM tells now; written only where it differs from what is there."""
    path = study.slurm_answers
    jobs = before.jobs | {state.job: _lasting(state) for state in told}
    with contextlib.suppress(OSError):  # a read-only study, a full disk: it is only a help
        if jobs != before.jobs:
            write_whole(path, encode(jobs))
        elif before.answered is not None:
            os.utime(path)


def _lasting(state: JobState) -> JobState:
    """A job without what changes from look to look while it is under way."""
    if state.over:
        return state
    return msgspec.structs.replace(state, reason="", starts=None, elapsed_s=None)
