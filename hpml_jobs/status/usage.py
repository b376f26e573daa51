"""What a study asked of the cluster and what it used of it."""

import time
from datetime import datetime
from statistics import median
from typing import NamedTuple

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.cell import Device
from hpml_jobs.core.record import Attempt
from hpml_jobs.core.value import Value
from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.jobs import is_slurm
from hpml_jobs.status.query import SlurmSnapshot
from hpml_jobs.status.states import StudyStatus, sent_jobs, standing
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.study import Study


class Usage(Value, frozen=True, kw_only=True):
    """What a study's jobs that started asked for and used so far; `source` says who tells.

    `runs` are SLURM's jobs, or cells on one's own machine, where nothing is asked for and None is
    what is not known. Of a requeued job the last run counts.
    """

    runs: int
    used_s: float
    asked_s: float | None = None
    used_share: float | None = None
    gpu_hours_used: float | None = None
    gpu_hours_asked: float | None = None
    queue_median_s: float | None = None
    queue_longest_s: float | None = None
    source: str


class _Ran(NamedTuple):
    """One job that started."""

    used_s: float
    asked_s: float | None
    gpus: int | None
    queued_s: float | None


def usage(study: Study, found: StudyStatus) -> Usage | None:
    """The usage of a study whose jobs were all asked for; None where none has started."""
    gpus_of = {state.job: state.gpus for state in found.states}
    slurm = [job for job in sent_jobs(study) if is_slurm(job)]
    told = [ran for job in slurm if (ran := _told(found.seen, job, gpus_of.get(job)))]
    if told:
        whose = "sacct" if not found.seen.no_accounts else "squeue, without accounting"
        return _summed(told, whose)
    own = [ran for state in found.states if (ran := _own(study.cell(state.slug), state))]
    return _summed(own, "the attempts' own times") if own else None


def committed_gpu_hours(study: Study) -> float:
    """GPU-hours that jobs have used, and that those under way may still use, by SLURM's word."""
    found = standing(study, all_jobs=True, judged=False)
    gpus_of = {state.job: state.gpus for state in found.states}
    hours = 0.0
    for job in sent_jobs(study):
        state = found.seen.of(job).state if is_slurm(job) else None
        if state is None:
            continue
        minutes = state.minutes if state.outcome.active else (state.elapsed_s or 0) / 60
        gpus = gpus_of.get(job) if state.gpus is None else state.gpus
        hours += formulas.gpu_hours(gpus or 0, minutes or 0)
    return hours


def _told(seen: SlurmSnapshot, job: str, gpus: int | None) -> _Ran | None:
    """A job as SLURM tells it."""
    state = seen.of(job).state
    if state is None or state.started is None or state.elapsed_s is None:
        return None
    asked_s = None if state.minutes is None else state.minutes * 60
    return _Ran(
        state.elapsed_s, asked_s, gpus if state.gpus is None else state.gpus, state.queued_s
    )


def _own(folder: CellFolder, state: CellState) -> _Ran | None:
    """A cell's last attempt by its own clock, until its end or, while it runs, until now."""
    attempt = folder.latest_attempt()
    if attempt is None:
        return None
    try:
        began = msgspec.json.decode(attempt.about.read_bytes(), type=Attempt).started
        since = datetime.fromisoformat(began).timestamp()
        until = time.time() if state.outcome.active else attempt.end.stat().st_mtime
        cell = folder.read().cell
    except (OSError, ValueError, HpmlError):
        return None
    gpus = cell.gpus if cell.device is Device.CUDA else 0
    return _Ran(max(0.0, until - since), None, gpus, None)


def _summed(ran: list[_Ran], source: str) -> Usage:
    limited = [one for one in ran if one.asked_s]
    asked_s = sum(one.asked_s or 0 for one in limited)
    waits = [one.queued_s for one in ran if one.queued_s is not None]
    with_gpus = [(one.gpus, one) for one in ran if one.gpus is not None]
    hours = formulas.gpu_hours
    used = sum(hours(gpus, one.used_s / 60) for gpus, one in with_gpus)
    asked = sum(hours(gpus, (one.asked_s or 0) / 60) for gpus, one in with_gpus)
    return Usage(
        runs=len(ran),
        used_s=sum(one.used_s for one in ran),
        asked_s=asked_s or None,
        used_share=formulas.used_share(sum(one.used_s for one in limited), asked_s)
        if asked_s
        else None,
        gpu_hours_used=used if with_gpus else None,
        gpu_hours_asked=asked if with_gpus and limited else None,
        queue_median_s=median(waits) if waits else None,
        queue_longest_s=max(waits, default=None),
        source=source,
    )
