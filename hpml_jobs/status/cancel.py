"""Cancel the jobs of a study, by job id and nothing else."""

import os
import signal
from collections.abc import Iterable

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.value import by_key
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import is_slurm
from hpml_jobs.status.evidence import is_local_run
from hpml_jobs.study.snapshot import CellState

IDS_PER_CALL = 100
"""Jobs of one scancel call."""


def cancel_jobs(jobs: Iterable[str]) -> None:
    """Cancel SLURM jobs, and stop the runs on this machine that local jobs are named after.

    Raises:
        HpmlError: scancel failed, with its message; or a local job is not a run of this user.
    """
    unique = list(dict.fromkeys(jobs))
    slurm_jobs = [job for job in unique if is_slurm(job)]
    for start in range(0, len(slurm_jobs), IDS_PER_CALL):
        answer = ask_slurm("scancel", *slurm_jobs[start : start + IDS_PER_CALL])
        if answer.code:
            raise HpmlError(f"scancel: {answer.complaint}; look at its status")
    for job in unique:
        if not is_slurm(job):
            _stop_local_run(job)


def _stop_local_run(job: str) -> None:
    """Send SIGTERM to a run on this machine; it ends its workers itself."""
    try:
        if not is_local_run(job):
            raise ProcessLookupError
        os.kill(int(job.split("-")[1]), signal.SIGTERM)
    except (ProcessLookupError, PermissionError, ValueError, IndexError) as fault:
        raise HpmlError(f"{job} is not one of your runs on this machine") from fault


def queued_jobs(jobs: Iterable[str], name: str) -> list[str]:
    """Return the jobs of this name that squeue still lists, pending or running."""
    candidates = list(jobs)
    if not candidates:
        return []
    selected = ("-n", name, "-j", ",".join(candidates))
    listed = ask_slurm("squeue", "-h", "-r", "-o", "%i", *selected).text.split()
    return [job for job in candidates if job in listed]


def active_jobs(states: Iterable[CellState]) -> dict[str, list[str]]:
    """Return the jobs that are or may be active, each with the slugs of its cells."""
    may_run = [state for state in states if state.outcome.may_run]
    return by_key((state.job, state.slug) for state in may_run if state.job)
