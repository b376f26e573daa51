"""GPU-hours and times that the jobs of a study requested and used, as SLURM reports them."""

from collections.abc import Iterator
from statistics import median

from hpml_jobs.core.formulas import gpu_hours
from hpml_jobs.core.value import Value
from hpml_jobs.slurm.jobs import JobState, is_slurm
from hpml_jobs.status.states import StudyStatus


class Usage(Value, frozen=True, kw_only=True):
    """What the runs of a study's jobs used, and requested for as many runs; the median wait.

    Every run of a requeued job counts, if there is accounting.
    """

    runs: int
    used_s: float
    gpu_hours_used: float
    gpu_hours_asked: float
    queue_median_s: float | None


def usage_of(status: StudyStatus) -> Usage | None:
    """Return the usage of a study, its status read with `all_jobs`; None if no job has started."""
    runs = 0
    used_s = used_hours = requested_hours = 0.0
    waits_s = []
    for state, gpus in _jobs(status):
        times_s = [*state.earlier_s]
        if state.started is not None and state.elapsed_s is not None:
            times_s.append(state.elapsed_s)
            waits_s.append(state.queued_s)
        runs += len(times_s)
        used_s += sum(times_s)
        used_hours += gpu_hours(gpus, sum(times_s) / 60)
        requested_hours += gpu_hours(gpus, (state.minutes or 0) * len(times_s))
    if not runs:
        return None
    known_s = [wait_s for wait_s in waits_s if wait_s is not None]
    return Usage(
        runs=runs,
        used_s=used_s,
        gpu_hours_used=used_hours,
        gpu_hours_asked=requested_hours,
        queue_median_s=median(known_s) if known_s else None,
    )


def committed_gpu_hours(status: StudyStatus) -> float:
    """Return the GPU-hours that jobs have used, and that active ones may still use.

    The status is to be read with `all_jobs`.
    """
    hours = 0.0
    for state, gpus in _jobs(status):
        minutes = (state.elapsed_s or 0) / 60
        if state.outcome.active:
            minutes = state.minutes or 0
        hours += gpu_hours(gpus, minutes + sum(state.earlier_s) / 60)
    return hours


def _jobs(status: StudyStatus) -> Iterator[tuple[JobState, int]]:
    """Yield the state of each job that SLURM reports, and its GPUs."""
    gpus_of = {state.job: state.gpus for state in status.states}
    for job in filter(is_slurm, status.history.sent):
        state = status.slurm.of(job).state
        if state is not None:
            gpus = gpus_of.get(job) if state.gpus is None else state.gpus
            yield state, gpus or 0
