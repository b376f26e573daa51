"""Queries to SLURM: one squeue and one sacct for all jobs of a study, and their cached answers."""

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.value import Value, decode_json
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    UNKNOWN_ID,
    JobState,
    after_run,
    array_ids,
    is_slurm,
    is_unknown_job,
    parse_sacct,
    parse_squeue,
)
from hpml_jobs.study.files import encode, read_bytes, write_whole
from hpml_jobs.study.manifest import Sent
from hpml_jobs.study.study import Study

SACCT_IDS = 100
"""Array ids of one sacct call; longer lists slow the accounting database down."""

UNNAMED = "allocation"
"""sacct's name of a job until accounting has the name of the job."""

SAME_SUBMISSION_S = 3600.0
"""SLURM's time of a submission and the manifest's differ by no more, even with other clocks."""

SACCT_S = 20.0
"""No further sacct is called after so many seconds."""

NO_TABLE = "it printed no table, not even a header"
"""What is wrong with an answer of squeue that ends with exit code 0 and says nothing."""

PROOF_S = 10.0
"""The controller is asked about no further job that left the queue after so many seconds."""

_MAY_RETURN = (Outcome.PREEMPTED, Outcome.NODE_FAIL)
"""Ends after which SLURM may have requeued the job in the meantime."""


class CachedAnswers(Value, frozen=True, kw_only=True):
    """seen.json: the last known state of each job, and when SLURM answered (seconds since 1970)."""

    jobs: dict[str, JobState] = {}
    answered: float | None = None


ANSWERED_S = 60.0
"""How old the time of the last answer becomes before the file is written again."""


class SlurmAnswer(NamedTuple):
    """The state of one job; None if SLURM does not answer, or if the job is `gone`.

    A job is gone when the controller says that it does not know it, and no source says how it
    ended. `last` is its last known state. `doubt` says why the state is not known.
    """

    state: JobState | None
    gone: bool = False
    last: JobState | None = None
    doubt: str = ""


class SlurmSnapshot(NamedTuple):
    """SLURM's answers on a study's jobs, the cached ones, and the error of a command that failed.

    `gone`: the jobs that the controller says it does not know. `doubts`: why it is not known
    whether a job is gone, by job. `foreign`: jobs that have another name than the study's job of
    this number, which is gone; with that name. `at` is the time of the query, in seconds since
    1970; `no_squeue`: squeue is not installed.
    """

    queue: dict[str, JobState]
    accounts: dict[str, JobState]
    cached: CachedAnswers = CachedAnswers()
    no_queue: str = ""
    no_accounts: str = ""
    at: float = 0.0
    no_squeue: bool = False
    gone: frozenset[str] = frozenset()
    doubts: Mapping[str, str] = {}
    foreign: Mapping[str, str] = {}

    @property
    def complaint(self) -> str:
        """Why states of jobs are unknown that may be known later; empty if there is no reason."""
        if self.no_squeue:
            return ""
        return self.no_queue or next(iter(self.doubts.values()), "")

    def of(self, job: str) -> SlurmAnswer:
        """Return one job's state: active by squeue, else ended, else active by sacct.

        That squeue does not list a job proves nothing, because its answer may be cut off. A job
        that sacct calls active is, unless the controller does not know it: accounting can lose the
        end of a job.
        """
        queued = self.queue.get(job)
        accounted = self.accounts.get(job)
        last = self.cached.jobs.get(job)
        gone = self.is_gone(job)
        if queued and not _has_its_end(accounted, queued):
            return SlurmAnswer(_completed(queued, accounted), last=last)
        if accounted and (queued or _still_holds(accounted, gone)):
            return SlurmAnswer(_completed(accounted, queued), last=last)
        if last and last.over and _still_holds(last, gone):
            return SlurmAnswer(last, last=last)
        doubt = "" if gone else self.no_queue or self.doubts.get(job, "")
        return SlurmAnswer(None, gone=gone, last=last, doubt=doubt)

    def is_gone(self, job: str) -> bool:
        """Return whether the controller does not know a job, by this answer or an earlier one."""
        last = self.cached.jobs.get(job)
        was_gone = last is not None and last.gone
        return job not in self.queue and (was_gone or job in self.gone)


def _has_its_end(accounted: JobState | None, queued: JobState) -> bool:
    """Return whether sacct, which says more of it, has the end of the run that squeue lists."""
    if accounted is None or not (queued.over and accounted.over):
        return False
    return not _is_later_run(queued, accounted)


def _still_holds(state: JobState, is_gone: bool) -> bool:
    """Return whether a state by sacct, or an earlier one, may be the present one."""
    return not state.outcome.active if is_gone else state.outcome not in _MAY_RETURN


def _completed(state: JobState, other: JobState | None) -> JobState:
    """Return a job's state, completed by what only the other command reports."""
    if other is None:
        return state
    names = ["submitted", "minutes"]
    if _is_later_run(state, other):
        state = after_run(other, state)
        names += ["gpus"] if state.started else []
    else:
        earlier_s = state.earlier_s or other.earlier_s
        state = msgspec.structs.replace(state, earlier_s=earlier_s)
        if state.outcome is not Outcome.PENDING:
            names += ["node", "started", "elapsed_s", "gpus", "suspended_s"]
    missing = {n: getattr(other, n) for n in names if getattr(state, n) in (None, "")}
    return msgspec.structs.replace(state, **missing)


def _is_later_run(state: JobState, other: JobState) -> bool:
    """Return whether `other` is an ended run of the job, before the requeue that `state` is of."""
    if other.ended is None or other.started is None:
        return False
    if state.started is None:
        return not state.over
    return state.started > other.started + _CLOCK_S


_CLOCK_S = 2.0
"""Two starts of a job that differ by more are two runs: the commands round to whole seconds."""


def query_slurm(
    study: Study, jobs: Iterable[str], sent: Mapping[str, Sent] | None = None
) -> SlurmSnapshot:
    """Call squeue once, and sacct once per 100 array ids; cache their answers.

    `sent` says under which names jobs were submitted, and when: another job may have the number of
    the study's, on another cluster or after the numbers began anew.
    The controller is asked about each job that has left squeue without a known end.
    """
    slurm_jobs = sorted({job for job in jobs if is_slurm(job)})
    ids = array_ids(slurm_jobs)
    if not ids:
        return SlurmSnapshot({}, {}, at=time.time())
    cached = read_answers(study)
    is_foreign = _Submissions(study, sent or {}).is_foreign
    snapshot = _squeue(ids)
    accounts, no_accounts = _sacct(ids, is_foreign)
    snapshot = snapshot._replace(accounts=accounts, no_accounts=no_accounts)
    snapshot = snapshot._replace(cached=cached, at=time.time())
    snapshot = _without_foreign(snapshot, is_foreign)
    if not snapshot.no_queue:
        doubtful = [job for job in slurm_jobs if _needs_proof(snapshot, job)]
        snapshot = _with_proofs(snapshot, doubtful)
        cache_answers(study, cached, _states_to_cache(snapshot, slurm_jobs))
    return snapshot


class _Submissions:
    """The jobs that a study submitted, to tell them from others with the same numbers."""

    def __init__(self, study: Study, sent: Mapping[str, Sent]) -> None:
        self._study = study
        self._sent = sent
        self._ask = cache(ask_controller)

    def is_foreign(self, state: JobState) -> bool:
        """Return whether a job has only its number in common with the one that was submitted.

        If its name or its time is another one, the controller's path of its log decides: somebody
        may rename a job, or another study may have the same name.
        """
        sent = self._sent.get(state.job)
        if sent is None:
            return False
        has_other_name = state.name not in ("", UNNAMED, sent.name)
        if has_other_name == _has_other_time(state, sent):
            return has_other_name
        output = output_path(self._ask(*array_ids([state.job])).text)
        return not is_log_of(self._study, output) if output else has_other_name


def _has_other_time(state: JobState, sent: Sent) -> bool:
    """Return whether a job was submitted at another time than one of the manifest."""
    if state.submitted is None or sent.at is None:
        return False
    return abs(state.submitted - sent.at) > SAME_SUBMISSION_S


class ControllerAnswer(NamedTuple):
    """What scontrol prints of a job; `complaint` says why it is not known whether there is one."""

    text: str = ""
    is_unknown: bool = False
    complaint: str = ""


def ask_controller(job: str) -> ControllerAnswer:
    """Ask the controller for a job or an array."""
    answer = ask_slurm("scontrol", "show", "job", job)
    if not answer.code:
        return ControllerAnswer(answer.text)
    if is_unknown_job(job, answer.text, answer.complaint):
        return ControllerAnswer(is_unknown=True)
    complaint = answer.complaint or f"exit code {answer.code}"
    return ControllerAnswer(complaint=f"scontrol: {complaint}")


def output_path(text: str) -> str:
    """Return the path of a job's log in what scontrol shows; empty if it has none."""
    match = _OUTPUT.search(text)
    return match["path"] if match else ""


def is_log_of(study: Study, path: str) -> bool:
    """Return whether the log of a job is in the study's folder."""
    return path.startswith(f"{study.slurm.resolve()}/")


_OUTPUT = re.compile(r"^\s*StdOut=(?P<path>.*)$", re.MULTILINE)


def _without_foreign(
    snapshot: SlurmSnapshot, is_foreign: Callable[[JobState], bool]
) -> SlurmSnapshot:
    """Return the snapshot without the states of jobs that are not what was submitted."""
    of_others = {job for job, state in snapshot.queue.items() if is_foreign(state)}
    queue = {
        job: state for job, state in snapshot.queue.items() if job not in of_others
    }
    accounts = {
        job: state
        for job, state in snapshot.accounts.items()
        if not is_foreign(state) and not (state.name == UNNAMED and job in of_others)
    }
    states = (*snapshot.accounts.values(), *snapshot.queue.values())
    kept = queue.keys() | accounts.keys()
    foreign = {state.job: state.name for state in states if state.job not in kept}
    return snapshot._replace(
        queue=queue,
        accounts=accounts,
        gone=snapshot.gone | foreign.keys(),
        foreign=foreign,
    )


def _squeue(ids: list[str]) -> SlurmSnapshot:
    """Ask for active and just ended jobs; its answer must have its header to be one."""
    selected = ("-o", SQUEUE_FORMAT, "-j", ",".join(ids))
    answer = ask_slurm("squeue", "-r", "-t", "all", *selected)
    if answer.code and len(ids) == 1 and UNKNOWN_ID in answer.complaint:
        return SlurmSnapshot({}, {}, gone=frozenset(ids))
    queue = parse_squeue(answer.text)
    if answer.code:
        complaint = answer.complaint or f"exit code {answer.code}"
    else:
        complaint = NO_TABLE if queue is None else ""
    return SlurmSnapshot(
        queue or {},
        {},
        no_queue=f"squeue: {complaint}" if complaint else "",
        no_squeue=answer.absent,
    )


def _needs_proof(snapshot: SlurmSnapshot, job: str) -> bool:
    """Return whether the controller is to be asked if it still knows a job."""
    answer = snapshot.of(job)
    is_open = answer.state is None or answer.state.outcome.active
    return job not in snapshot.queue and is_open and not answer.gone


def _with_proofs(snapshot: SlurmSnapshot, jobs: list[str]) -> SlurmSnapshot:
    """Return the snapshot with what the controller says of jobs that squeue does not list."""
    proofs, doubts = _Proofs(set(snapshot.gone)), dict[str, str]()
    deadline = time.monotonic() + PROOF_S
    for job in jobs:
        (array,) = array_ids([job])
        if proofs.is_gone(array):
            proofs.gone.add(job)
        elif not proofs.is_gone(job):
            reason = proofs.complaint or "scontrol does"
            doubts[job] = f"squeue does not list the job; {reason}"
        if time.monotonic() > deadline:
            proofs.complaint = f"scontrol: too slow for {len(jobs)} jobs"
    return snapshot._replace(gone=frozenset(proofs.gone), doubts=doubts)


class _Proofs:
    """Questions to the controller, each once, and none after a complaint."""

    def __init__(self, gone: set[str]) -> None:
        self.gone = gone
        self.complaint = ""
        self._listed: set[str] = set()

    def is_gone(self, job: str) -> bool:
        """Return whether the controller has said that it does not know a job or an array."""
        if not (self.complaint or job in self.gone | self._listed):
            answer = ask_controller(job)
            self.complaint = answer.complaint
            (self.gone if answer.is_unknown else self._listed).add(job)
        return job in self.gone


def _states_to_cache(
    snapshot: SlurmSnapshot, jobs: Iterable[str]
) -> Iterator[JobState]:
    """Yield the known states, and of jobs that are gone the last ones."""
    for job in jobs:
        answer = snapshot.of(job)
        gone = snapshot.is_gone(job)
        state = answer.state
        if state is None and gone:
            state = answer.last or JobState(job=job, state="")
        if state is not None:
            yield msgspec.structs.replace(state, gone=gone)


def _sacct(
    ids: list[str], is_foreign: Callable[[JobState], bool]
) -> tuple[dict[str, JobState], str]:
    """Return the jobs in accounting, and the error of sacct; after one it is not called again."""
    states: dict[str, JobState] = {}
    deadline = time.monotonic() + SACCT_S
    for start in range(0, len(ids), SACCT_IDS):
        if time.monotonic() > deadline:
            return states, f"sacct: too slow for {len(ids)} jobs"
        chunk = ",".join(ids[start : start + SACCT_IDS])
        selected = ("-o", SACCT_FIELDS, "-j", chunk)
        answer = ask_slurm("sacct", "-X", "-D", "-P", "-n", *selected)
        states |= parse_sacct(answer.text, is_foreign)
        if answer.code != 0:
            return states, f"sacct: {answer.complaint}"
    return states, ""


def read_answers(study: Study) -> CachedAnswers:
    """Return the cached answers (seen.json); none where the file is not there or cannot be read.

    They are used once jobs have left squeue, which happens minutes after their end, and sacct is
    off. Versions before 0.10 wrote the states only.
    """
    try:
        content = read_bytes(study.slurm_answers)
    except OSError:
        return CachedAnswers()
    with contextlib.suppress(ValueError):
        return decode_json(content, CachedAnswers)
    with contextlib.suppress(ValueError):
        return CachedAnswers(jobs=decode_json(content, dict[str, JobState]))
    return CachedAnswers()


def cache_answers(
    study: Study, cached: CachedAnswers, states: Iterable[JobState]
) -> None:
    """Add the present states to the cache; it is not written where nothing new is known."""
    jobs = cached.jobs | {state.job: _without_times(state) for state in states}
    now = time.time()
    is_recent = cached.answered is not None and 0 <= now - cached.answered < ANSWERED_S
    if jobs == cached.jobs and is_recent:
        return
    # a read-only study, a full disk: works without a cache
    with contextlib.suppress(OSError):
        write_whole(study.slurm_answers, encode(CachedAnswers(jobs=jobs, answered=now)))


def _without_times(state: JobState) -> JobState:
    """Return an active job without what changes from query to query; an ended one as it is."""
    if state.over:
        return state
    return msgspec.structs.replace(state, reason="", starts=None, elapsed_s=None)
