"""Questions to SLURM: one squeue and one sacct for all jobs of a study, bounded in time."""

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
from hpml_jobs.status.cache import Memory, recall, remember
from hpml_jobs.study.study import Study

SACCT_IDS = 100
"""Array ids of one sacct call; longer lists slow the accounting database down."""

SACCT_S = 20.0
"""After so many seconds no further sacct is asked."""

_FORGOTTEN = "Invalid job id"
"""What squeue says of a single id that SLURM has forgotten: it is not in the queue."""

_MAY_RETURN = (Outcome.PREEMPTED, Outcome.NODE_FAIL)
"""Ends after which SLURM may have requeued the job meanwhile."""


class SlurmAnswer(NamedTuple):
    """One job: its state as SLURM tells it, or None; then it is `gone`, or SLURM is silent.

    A job is gone when squeue answers and lists it no more, and nobody says how it ended. `last` is
    what SLURM told of it before.
    """

    state: JobState | None
    gone: bool = False
    last: JobState | None = None


class SlurmSnapshot(NamedTuple):
    """What SLURM says of a study's jobs now, and said before; the complaint of what did not answer.

    `at` is the moment of asking, in seconds since 1970; `no_squeue`: the command is not installed.
    """

    queue: dict[str, JobState]
    accounts: dict[str, JobState]
    memory: Memory = Memory({})
    no_queue: str = ""
    no_accounts: str = ""
    at: float = 0.0
    no_squeue: bool = False

    @property
    def silent(self) -> bool:
        """Whether squeue does not answer, but may later."""
        return bool(self.no_queue) and not self.no_squeue

    def of(self, job: str) -> SlurmAnswer:
        """One job: under way by squeue, else ended by sacct, by squeue, or by what was seen before.

        What accounts call running is not believed where squeue knows better: they lose ends.
        """
        queued, accounted = self.queue.get(job), self.accounts.get(job)
        last = self.memory.jobs.get(job)
        if queued and not queued.over:
            return SlurmAnswer(_completed(queued, accounted), last=last)
        ended = next((state for state in (accounted, queued) if state and state.over), None)
        if ended:
            return SlurmAnswer(_completed(ended, queued), last=last)
        if accounted and not accounted.outcome.active:  # a state of a later SLURM
            return SlurmAnswer(accounted, last=last)
        if last and last.over and not (self.no_queue and last.outcome in _MAY_RETURN):
            return SlurmAnswer(last, last=last)
        return SlurmAnswer(None, gone=not self.no_queue, last=last)


def _completed(state: JobState, other: JobState | None) -> JobState:
    """A job's state with what only the other command tells of it."""
    if other is None:
        return state
    lasting = ("submitted", "minutes")  # of a requeued job accounts tell the run before
    waits = state.outcome is Outcome.PENDING
    names = lasting if waits else (*lasting, "node", "started", "elapsed_s", "gpus")
    lacking = {n: getattr(other, n) for n in names if getattr(state, n) in (None, "")}
    return msgspec.structs.replace(state, **lacking)


def ask(study: Study, jobs: Iterable[str]) -> SlurmSnapshot:
    """One squeue, one sacct (one more per 100 array ids); what they tell is remembered."""
    wanted = {job for job in jobs if is_slurm(job)}
    ids = array_ids(sorted(wanted))
    if not ids:
        return SlurmSnapshot({}, {}, at=time.time())
    memory = recall(study)
    queue, no_queue, no_squeue = _squeue(ids)
    accounts, no_accounts = _sacct(ids)
    seen = SlurmSnapshot(
        queue, accounts, memory, no_queue, no_accounts, at=time.time(), no_squeue=no_squeue
    )
    if not no_queue:
        remember(study, memory, (told for job in sorted(wanted) if (told := seen.of(job).state)))
    return seen


def _squeue(ids: list[str]) -> tuple[dict[str, JobState], str, bool]:
    """Jobs under way or just ended; the complaint of a failed squeue, and whether it is absent."""
    words = ("-h", "-r", "-t", "all", "-o", SQUEUE_FORMAT, "-j", ",".join(ids))
    answer = ask_slurm("squeue", *words)
    silent = answer.code != 0 and _FORGOTTEN not in answer.complaint
    complaint = f"squeue: {answer.complaint}" if silent else ""
    return parse_squeue(answer.text), complaint, answer.absent


def _sacct(ids: list[str]) -> tuple[dict[str, JobState], str]:
    """Jobs as they are accounted for; the complaint of a sacct that failed, and was the last."""
    found: dict[str, JobState] = {}
    deadline = time.monotonic() + SACCT_S
    for start in range(0, len(ids), SACCT_IDS):
        if time.monotonic() > deadline:
            return found, f"sacct: too slow for {len(ids)} jobs"
        chunk = ",".join(ids[start : start + SACCT_IDS])
        words = ("-X", "-P", "-n", "-o", SACCT_FIELDS, "-j", chunk)
        answer = ask_slurm("sacct", *words)
        found |= parse_sacct(answer.text)
        if answer.code != 0:
            return found, f"sacct: {answer.complaint}"
    return found, ""
