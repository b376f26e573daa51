"""Queries to SLURM: one squeue and one sacct for all jobs of a study, with time limits."""

import time
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    JobState,
    array_ids,
    is_slurm,
    parse_sacct,
    parse_squeue,
)
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.cache import CachedAnswers, cache_answers, read_answers
from hpml_jobs.study.study import Study

SACCT_IDS = 100
"""Array ids of one sacct call; longer lists slow the accounting database down."""

SACCT_S = 20.0
"""No further sacct is called after so many seconds."""

_UNKNOWN_ID = "Invalid job id"
"""squeue's error about a single id that SLURM does not know any more: it is not in the queue."""

_MAY_RETURN = (Outcome.PREEMPTED, Outcome.NODE_FAIL)
"""Ends after which SLURM may have requeued the job in the meantime."""


class SlurmAnswer(NamedTuple):
    """The state of one job; None if SLURM does not answer, or if the job is `gone`.

    A job is gone when squeue answers without it, and no source says how it ended. `last` is its
    last known state.
    """

    state: JobState | None
    gone: bool = False
    last: JobState | None = None


class SlurmSnapshot(NamedTuple):
    """SLURM's answers on a study's jobs, the cached ones, and the error of a command that failed.

    `at` is the time of the query, in seconds since 1970; `no_squeue`: squeue is not installed.
    """

    queue: dict[str, JobState]
    accounts: dict[str, JobState]
    cached: CachedAnswers = CachedAnswers({})
    no_queue: str = ""
    no_accounts: str = ""
    at: float = 0.0
    no_squeue: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether squeue does not answer now, but may later."""
        return bool(self.no_queue) and not self.no_squeue

    def of(self, job: str) -> SlurmAnswer:
        """Return one job's state: active by squeue, else ended by sacct, by squeue, by the cache.

        A job that only sacct calls running is not: accounting can lose the end of a job.
        """
        queued, accounted = self.queue.get(job), self.accounts.get(job)
        last = self.cached.jobs.get(job)
        if queued and not queued.over:
            return SlurmAnswer(_completed(queued, accounted), last=last)
        ended = next((state for state in (accounted, queued) if state and state.over), None)
        if ended:
            return SlurmAnswer(_completed(ended, queued), last=last)
        if accounted and not accounted.outcome.active:  # a state of a newer SLURM
            return SlurmAnswer(accounted, last=last)
        if last and last.over and not (self.no_queue and last.outcome in _MAY_RETURN):
            return SlurmAnswer(last, last=last)
        return SlurmAnswer(None, gone=not self.no_queue, last=last)


def _completed(state: JobState, other: JobState | None) -> JobState:
    """Return a job's state, completed by what only the other command reports."""
    if other is None:
        return state
    names: tuple[str, ...] = ("submitted", "minutes")
    if state.outcome is not Outcome.PENDING:  # of a requeued job, sacct reports the run before
        names += ("node", "started", "elapsed_s", "gpus")
    missing = {n: getattr(other, n) for n in names if getattr(state, n) in (None, "")}
    return msgspec.structs.replace(state, **missing)


def query_slurm(study: Study, jobs: Iterable[str]) -> SlurmSnapshot:
    """Call squeue once, and sacct once per 100 array ids; cache their answers."""
    slurm_jobs = sorted({job for job in jobs if is_slurm(job)})
    ids = array_ids(slurm_jobs)
    if not ids:
        return SlurmSnapshot({}, {}, at=time.time())
    cached = read_answers(study)
    queue, no_queue, no_squeue = _squeue(ids)
    accounts, no_accounts = _sacct(ids)
    snapshot = SlurmSnapshot(
        queue, accounts, cached, no_queue, no_accounts, at=time.time(), no_squeue=no_squeue
    )
    if not no_queue:
        states = (snapshot.of(job).state for job in slurm_jobs)
        cache_answers(study, cached, (state for state in states if state))
    return snapshot


def _squeue(ids: list[str]) -> tuple[dict[str, JobState], str, bool]:
    """Return active and just ended jobs, the error of squeue, and whether it is not installed."""
    words = ("-h", "-r", "-t", "all", "-o", SQUEUE_FORMAT, "-j", ",".join(ids))
    answer = ask_slurm("squeue", *words)
    has_failed = answer.code != 0 and _UNKNOWN_ID not in answer.complaint
    complaint = f"squeue: {answer.complaint}" if has_failed else ""
    return parse_squeue(answer.text), complaint, answer.absent


def _sacct(ids: list[str]) -> tuple[dict[str, JobState], str]:
    """Return the jobs in accounting, and the error of sacct; after one it is not called again."""
    states: dict[str, JobState] = {}
    deadline = time.monotonic() + SACCT_S
    for start in range(0, len(ids), SACCT_IDS):
        if time.monotonic() > deadline:
            return states, f"sacct: too slow for {len(ids)} jobs"
        chunk = ",".join(ids[start : start + SACCT_IDS])
        answer = ask_slurm("sacct", "-X", "-P", "-n", "-o", SACCT_FIELDS, "-j", chunk)
        states |= parse_sacct(answer.text)
        if answer.code != 0:
            return states, f"sacct: {answer.complaint}"
    return states, ""
