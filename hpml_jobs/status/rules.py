"""The rules that give a cell its state, from its job, its record and its attempts."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import clock, lasting
from hpml_jobs.slurm.jobs import JobState, array_ids, canceller, is_slurm
from hpml_jobs.slurm.pending import why_pending
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.status.logs import slurm_logs, tail
from hpml_jobs.status.progress import Pace, pace_of
from hpml_jobs.status.query import SlurmAnswer, SlurmSnapshot
from hpml_jobs.study.attempt import AttemptEnd, AttemptFolder
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.cell_state import CellState
from hpml_jobs.study.study import Study, in_job

LAG_S = 30
"""How long a shared file system may take to show the record of a job that has ended."""

REQUEUE_S = 60
"""An attempt that began so long before its job's start belongs to the run before a requeue."""

_MEMORY_KILL = re.compile(r"exceeded (?:job |step )?memory limit|oom[-_ ]kill", re.IGNORECASE)
"""What SLURM's step daemon writes when it, or the kernel, ends a job over its memory."""

_BY_THE_JOB = (Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.NODE_FAIL)
"""What happens to a whole allocation, cells whose turn had not come included."""


class CellEvidence(NamedTuple):
    """All that is known of one cell whose job is `job`; `attempt` and `end` are of that job.

    `shared_jobs` have several cells, one after another; `restart` is the latest that any of them
    began.
    """

    study: Study
    folder: CellFolder
    job: str
    told: SlurmAnswer
    seen: SlurmSnapshot
    file: CellFile | None = None
    record: Record | None = None
    invalid: str = ""
    shared_jobs: frozenset[str] = frozenset()
    restart: int = 0
    attempt: AttemptFolder | None = None
    end: AttemptEnd | None = None

    @property
    def shared(self) -> bool:
        """Whether other cells have the same job."""
        return self.job in self.shared_jobs

    @property
    def own_s(self) -> float | None:
        """How long this cell has had its turn in a shared job; None before it."""
        if self.attempt is None:
            return None
        try:
            began = self.attempt.about.stat().st_mtime
            until = self.attempt.end.stat().st_mtime if self.end else self.seen.at
        except OSError:
            return None
        return max(0.0, until - began)

    def state(self, outcome: Outcome, reason: str = "", **more: Any) -> CellState:
        """A state of this cell, with what is known of its job's times."""
        told, now = self.told.state, self.seen.at
        shape = self.file.shape if self.file else None
        if told is not None:
            waits = told.outcome is Outcome.PENDING and told.submitted is not None
            more = {
                "queued_s": max(0.0, now - (told.submitted or now)) if waits else told.queued_s,
                "starts": _iso(told.starts),
                "elapsed_s": self.own_s if self.shared else told.elapsed_s,
                "minutes": shape.minutes if self.shared and shape else told.minutes,
                "gpus": shape.nodes * shape.gpus_per_node if shape else told.gpus,
                "node": told.node,
            } | more
        more.setdefault("restarts", self.attempt.restart if self.attempt else 0)
        return CellState(
            slug=self.folder.slug, outcome=outcome, job=self.job, reason=reason, **more
        )


def state_of(case: CellEvidence) -> CellState:
    """The rules, first that applies: a job under way, a record, SLURM's word, the attempt's."""
    told, record = case.told.state, case.record
    if told and told.outcome.active and not (record and record.attempt.job == case.job):
        return _in_turn(case, told) if case.shared else _under_way(case, told)
    if record is not None:
        return _measured(case, record)
    if case.invalid:
        return case.state(Outcome.INVALID, case.invalid)
    if not is_slurm(case.job):
        return _local(case)
    if told:
        return _ended(case, told)
    if case.end and (case.told.gone or case.end.outcome is not Outcome.CANCELLED):
        return _by_end(case, case.end)  # a stop may end in a requeue
    return _gone(case) if case.told.gone else _silent(case)


def _under_way(case: CellEvidence, told: JobState) -> CellState:
    if told.outcome is Outcome.PENDING:
        pending = why_pending(told.reason)
        words = f"on {told.node}, being made ready" if told.node else str(pending)
        state = "" if told.state == "PENDING" else f"{told.state}: "
        reason = in_job(f"{state}{words}", told.job)
        return case.state(told.outcome, reason, who=pending.who)
    begun = case.attempt and _of_this_run(case, case.attempt, told)
    pace = pace_of(case.attempt, case.seen.at) if case.attempt and begun else Pace("starting")
    verb = "" if told.state == "RUNNING" else f"{told.state} "
    return case.state(
        told.outcome,
        in_job(f"{verb}on {told.node or '?'}", told.job),
        **pace._asdict(),
    )


def _in_turn(case: CellEvidence, told: JobState) -> CellState:
    """A cell that shares its running job: over by its own end, running, or not yet begun."""
    if told.outcome is Outcome.PENDING:
        return _under_way(case, told)
    if case.attempt is None or not _of_this_run(case, case.attempt, told):
        queued_s = case.seen.at - (told.submitted or case.seen.at)
        reason = f"its turn in job {told.job} has not come"
        return case.state(
            Outcome.PENDING, reason, node="", elapsed_s=None, queued_s=max(0.0, queued_s)
        )
    if case.end is None:
        return _under_way(case, told)
    if case.end.outcome.finished:
        reason = in_job("it has ended, its record is not visible yet", told.job)
        return case.state(Outcome.RUNNING, reason)
    return _by_end(case, case.end)


def _of_this_run(case: CellEvidence, attempt: AttemptFolder, told: JobState) -> bool:
    """Whether an attempt is of the present run of its job, and not of one before a requeue."""
    try:
        began = attempt.about.stat().st_mtime
    except OSError:
        return False
    before = told.started is not None and began < told.started - REQUEUE_S
    return attempt.restart >= case.restart and not before


def _measured(case: CellEvidence, record: Record) -> CellState:
    """A valid record gives the numbers; another SLURM state stands beside it as a warning."""
    job, warning = record.attempt.job, ""
    own = case._replace(job=job, told=case.seen.of(job))
    told = own.told.state
    if told and told.over and told.outcome is not Outcome.MISSING and not own.shared:
        warning = f"SLURM says {told.state}"  # of a shared job it is other cells' matter
    return own.state(
        record.outcome,
        record.reason or "",
        node=",".join(record.attempt.hosts),
        warning=warning,
        recorded=True,
        restarts=record.attempt.restart,
    )


def _ended(case: CellEvidence, told: JobState) -> CellState:
    """SLURM's word without a record, and the first failing rank's reason where there is one."""
    outcome, end = told.outcome, case.end
    who = canceller(told.state)
    ended = told.exit_code and outcome is not Outcome.CANCELLED  # 0:0 then, which says nothing
    code = f", exit code {told.exit_code}" if ended else ""
    reason = in_job(f"{told.state}{f' ({who})' if who else ''}{code}", told.job)
    if case.shared and case.attempt is None:
        if outcome in _BY_THE_JOB:
            return case.state(outcome, f"{reason}, before its turn")
        return case.state(Outcome.MISSING, f"job {told.job} ended before its turn ({told.state})")
    if outcome is Outcome.MISSING and (end is None or end.outcome.finished):
        age_s = case.seen.at - told.ended if told.ended else LAG_S
        if abs(age_s) < LAG_S:  # clocks may differ by seconds
            seconds = lasting(max(0.0, age_s))
            words = f"ended {seconds} ago, its record is not visible yet"
            return case.state(Outcome.RUNNING, in_job(words, told.job))
        return case.state(outcome, f"job {told.job} {told.state} but left no record")
    if outcome is Outcome.FAILED and killed_for_memory(case):
        return _out_of_memory(case)
    if end is None:
        return case.state(outcome, reason)
    if case.shared and not (end.outcome is Outcome.CANCELLED and outcome in _BY_THE_JOB):
        return _by_end(case, end)
    own = end.reason or end.outcome.value
    if outcome in (Outcome.FAILED, Outcome.MISSING) and not end.outcome.finished:
        outcome = end.outcome  # the job's exit code tells less
    return case.state(outcome, f"{own}; {reason}" if outcome is not Outcome.OOM else reason)


def _by_end(case: CellEvidence, end: AttemptEnd) -> CellState:
    """What the wrapper said, who does not know why a process was killed."""
    if end.outcome is Outcome.FAILED and killed_for_memory(case):
        return _out_of_memory(case)
    return case.state(end.outcome, end.reason or "")


def _out_of_memory(case: CellEvidence) -> CellState:
    words = "it was over its memory limit; hpml-jobs resubmit --oom --mem GB asks for more"
    return case.state(Outcome.OOM, f"SLURM ended job {case.job}: {words}")


def killed_for_memory(case: CellEvidence) -> bool:
    """Whether the step daemon's own words in the cell's logs say so."""
    logs = slurm_logs(case.study, case.folder, case.job)
    return any(_MEMORY_KILL.search(tail(log, 20_000)) for log in logs)


def _gone(case: CellEvidence) -> CellState:
    """A job that squeue lists no more, and nobody says how it ended."""
    job, seen, last = case.job, case.seen, case.told.last
    accounts_know = array_ids([job])[0] in array_ids(seen.accounts)
    if case.attempt is None and accounts_know and not seen.no_accounts:
        reason = f"job {job} never started and SLURM lists it no more: cancelled while it waited"
        return case.state(Outcome.CANCELLED, reason)
    silent = seen.no_accounts or "sacct does not know how it ended"
    then = f" ({last.outcome.value} when it was seen last)" if last else ""
    return case.state(
        Outcome.MISSING, f"job {job} is over{then} and left no record or last words; {silent}"
    )


def _silent(case: CellEvidence) -> CellState:
    """SLURM does not answer: what was known last, and since when nothing is."""
    answered, last = case.seen.memory.answered, case.told.last
    since = f" since {clock(answered, case.seen.at)}" if answered else ""
    then = f" ({last.outcome.value} then)" if last and answered else ""
    reason = f"unknown{since}{then}: {case.seen.no_queue}"
    return case.state(Outcome.UNKNOWN, in_job(reason, case.job))


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat()


def _local(case: CellEvidence) -> CellState:
    """A cell of a run on this machine (`local-PID-TIME`, `here-PID-TIME`)."""
    attempt, end = case.attempt, case.end
    if end:
        return case.state(end.outcome, end.reason or "")
    if not _alive(case.job):
        reason = f"the run on this machine was stopped ({case.job})"
        return case.state(Outcome.CANCELLED, reason)
    reason = f"on this machine, {case.job}"
    if attempt is None:
        return case.state(Outcome.PENDING, reason)
    pace = pace_of(attempt, case.seen.at)
    return case.state(Outcome.RUNNING, reason, **pace._asdict())


def _alive(job: str) -> bool:
    """Whether the process that a local job is named after still runs our program."""
    try:
        return b"hpml" in Path(f"/proc/{job.split('-')[1]}/cmdline").read_bytes()
    except (OSError, IndexError):
        return False
