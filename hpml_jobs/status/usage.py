"""GPU-hours and times that a study's jobs requested and used."""

import time
from collections.abc import Container, Iterator
from itertools import chain
from statistics import median
from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.value import Value
from hpml_jobs.slurm.jobs import is_slurm
from hpml_jobs.status.query import SlurmSnapshot
from hpml_jobs.status.states import StudyStatus
from hpml_jobs.study.snapshot import AttemptSnapshot, CellState, FolderSnapshot


class Usage(Value, frozen=True, kw_only=True):
    """Time that the started jobs of a study requested and have used, by `source`.

    `runs` counts those of SLURM's jobs, and the attempts of cells in other jobs, which request
    nothing. None means not known. Every run of a requeued job counts, if there is accounting.
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


class _Run(NamedTuple):
    """One run of a job that started."""

    used_s: float
    requested_s: float | None
    gpus: int | None
    queued_s: float | None

    def gpu_hours(self, seconds: float | None) -> float:
        """Return the GPU-hours of so many seconds; none where these or the GPUs are not known."""
        return formulas.gpu_hours(self.gpus or 0, (seconds or 0) / 60)


def usage_of(status: StudyStatus) -> Usage | None:
    """Return the usage of a study, its status read with `all_jobs`; None if no job has started."""
    gpus_of = {state.job: state.gpus for state in status.states}
    runs_of = {
        job: _slurm_runs(status.slurm, job, gpus_of.get(job))
        for job in filter(is_slurm, status.history.sent)
    }
    runs = list(chain.from_iterable(runs_of.values()))
    sources = []
    if runs:
        is_accounted = not status.slurm.no_accounts
        sources.append("sacct" if is_accounted else "squeue, without accounting")
    reported = {job for job, of_job in runs_of.items() if of_job}
    state_of = {state.slug: state for state in status.states}
    attempts = [
        run
        for snapshot in status.snapshots
        for run in _attempts(snapshot, state_of[snapshot.folder.slug], reported)
    ]
    if attempts:
        sources.append("the attempts' own times")
    runs += attempts
    return _total(runs, " and ".join(sources)) if runs else None


def committed_gpu_hours(status: StudyStatus) -> float:
    """Return the GPU-hours that jobs have used, and that active ones may still use.

    The status is to be read with `all_jobs`; the figures are SLURM's.
    """
    gpus_of = {state.job: state.gpus for state in status.states}
    hours = 0.0
    for job in status.history.sent:
        state = status.slurm.of(job).state if is_slurm(job) else None
        if state:
            is_active, elapsed_min = state.outcome.active, (state.elapsed_s or 0) / 60
            minutes = (state.minutes or 0) if is_active else elapsed_min
            gpus = gpus_of.get(job) if state.gpus is None else state.gpus
            hours += formulas.gpu_hours(gpus or 0, minutes + sum(state.earlier_s) / 60)
    return hours


def _slurm_runs(slurm: SlurmSnapshot, job: str, gpus: int | None) -> list[_Run]:
    """Return the runs of a job as SLURM reports them; none if it has not started."""
    state = slurm.of(job).state
    if state is None:
        return []
    requested_s = None if state.minutes is None else state.minutes * 60
    gpus = gpus if state.gpus is None else state.gpus
    runs = [_Run(used_s, requested_s, gpus, None) for used_s in state.earlier_s]
    if state.started is not None and state.elapsed_s is not None:
        runs.append(_Run(state.elapsed_s, requested_s, gpus, state.queued_s))
    return runs


def _attempts(
    snapshot: FolderSnapshot, state: CellState, reported: Container[str]
) -> Iterator[_Run]:
    """Yield a cell's attempts by their own clocks, but those of jobs that SLURM has reported."""
    latest, file = snapshot.latest, snapshot.file
    if latest is None or file is None:
        return
    gpus = file.cell.gpus if file.cell.device is Device.CUDA else 0
    for folder in snapshot.folder.all_attempts():
        if folder.job in reported:
            continue
        if folder.id == latest.folder.id:
            attempt = latest
        else:
            attempt = AttemptSnapshot(folder, folder.read_end())
        is_active = attempt is latest and state.outcome.active
        until = time.time() if is_active else attempt.ended
        if attempt.began is not None and until is not None:
            yield _Run(max(0.0, until - attempt.began), None, gpus, None)


def _total(runs: list[_Run], source: str) -> Usage:
    """Return the usage of runs; GPU-hours are of those whose number of GPUs is known."""
    limited = [run for run in runs if run.requested_s]
    requested_s = sum(run.requested_s or 0 for run in limited)
    share: float | None = None
    if limited:
        limited_used_s = sum(run.used_s for run in limited)
        share = formulas.used_share(limited_used_s, requested_s)
    used_hours: float | None = None
    requested_hours: float | None = None
    if any(run.gpus is not None for run in runs):
        used_hours = sum(run.gpu_hours(run.used_s) for run in runs)
        if limited:
            requested_hours = sum(run.gpu_hours(run.requested_s) for run in runs)
    waits = [run.queued_s for run in runs if run.queued_s is not None]
    return Usage(
        runs=len(runs),
        used_s=sum(run.used_s for run in runs),
        asked_s=requested_s or None,
        used_share=share,
        gpu_hours_used=used_hours,
        gpu_hours_asked=requested_hours,
        queue_median_s=median(waits) if waits else None,
        queue_longest_s=max(waits, default=None),
        source=source,
    )
