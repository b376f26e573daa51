"""Ending the jobs of a study, by id and nothing else."""

import os
import signal
from collections.abc import Iterable

from hpml_jobs.errors import HpmlError
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import is_slurm
from hpml_jobs.study.cell_state import CellState

IDS = 100
"""Jobs of one scancel call."""


def cancel_jobs(jobs: Iterable[str]) -> None:
    """End SLURM jobs, and the runs on this machine that local jobs are named after.

    Raises:
        HpmlError: SLURM did not take it; its words.
    """
    asked = list(dict.fromkeys(jobs))
    slurm = [job for job in asked if is_slurm(job)]
    for start in range(0, len(slurm), IDS):
        answer = ask_slurm("scancel", *slurm[start : start + IDS])
        if answer.code:
            raise HpmlError(f"scancel: {answer.complaint}; look with hpml-jobs status")
    for job in asked:
        if not is_slurm(job):
            _end_run(job)


def _end_run(job: str) -> None:
    """Interrupt a run on this machine, as Ctrl-C would: it ends its workers itself."""
    try:
        os.kill(int(job.split("-")[1]), signal.SIGTERM)
    except (ProcessLookupError, PermissionError, ValueError, IndexError) as fault:
        raise HpmlError(f"{job} is not a run of yours on this machine") from fault


def still_there(jobs: Iterable[str]) -> list[str]:
    """Those that squeue still lists, waiting or running."""
    known = list(jobs)
    if not known:
        return []
    answer = ask_slurm("squeue", "-h", "-r", "-o", "%i", "-j", ",".join(known))
    return [job for job in known if job in answer.text.split()]


def jobs_of(states: Iterable[CellState]) -> dict[str, list[str]]:
    """The jobs under way, each with its cells."""
    found: dict[str, list[str]] = {}
    for state in states:
        if state.outcome.active and state.job:
            found.setdefault(state.job, []).append(state.slug)
    return found
