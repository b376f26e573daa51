"""The rules that give a cell its state, from its job, its record and its attempt; its progress."""

from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from hpml_jobs.core import formulas
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.measurements import Stage
from hpml_jobs.core.record import Record
from hpml_jobs.core.secrets import hide_secrets
from hpml_jobs.core.text import duration_text, percent_text, time_text, unix_time
from hpml_jobs.slurm.jobs import NO_SPACE_CODE, JobState, array_ids, canceller, is_slurm
from hpml_jobs.slurm.pending import why_pending
from hpml_jobs.status.evidence import CellEvidence, is_local_run
from hpml_jobs.study.cell_folder import AttemptEnd, Progress
from hpml_jobs.study.snapshot import CellState, in_job

LAG_S = 30
"""How long a shared file system may take to show the record of a job that has ended."""

_BY_THE_JOB = (Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.PREEMPTED, Outcome.NODE_FAIL)
"""Outcomes of a whole allocation, which include cells that had not started."""

_AFTER = {Stage.TEST: "testing", Stage.PROBING: "microbenchmark"}
"""Activities of a cell after training."""

LONGEST_S = 1e9
"""A longer duration of an epoch (30 years) is not believed."""

LATE, LATE_S = 2, 60
"""An epoch so many times as long as the last one, and so many seconds: its end is not predicted."""


class Pace(NamedTuple):
    """The progress of a cell: as text, as a share of training, and seconds of training left."""

    doing: str
    done: float | None = None
    left_s: float | None = None


def state_of(evidence: CellEvidence) -> CellState:
    """Apply the first rule that holds: an active job, a record, SLURM's state, the exit report."""
    record, fault = evidence.snapshot.record, evidence.snapshot.record_fault
    if job := evidence.active_job:
        return _active(evidence, job)
    if record is not None:
        if record.attempt.job != evidence.job and evidence.end is None:
            return _local(evidence)  # it is measured again
        return _measured(evidence, record)
    if fault:
        return _state(evidence, Outcome.INVALID, fault)
    if not is_slurm(evidence.job):
        return _local(evidence)
    job = evidence.answer.state
    return _ended(evidence, job) if job else _unlisted(evidence)


def _state(
    evidence: CellEvidence, outcome: Outcome, reason: str = "", **changes: object
) -> CellState:
    """Return a state of this cell with what is known of its job's times, and changes to it."""
    done = None
    if outcome is Outcome.TIMEOUT:
        done = pace_of(evidence.progress, evidence.at).done
    state = CellState(
        slug=evidence.snapshot.folder.slug,
        outcome=outcome,
        job=evidence.job,
        reason=hide_secrets(reason),
        restarts=evidence.attempt.folder.restart if evidence.attempt else 0,
        done=done,
    )
    return msgspec.structs.replace(state, **_times(evidence) | changes)


def _times(evidence: CellEvidence) -> dict[str, object]:
    """Return the fields of a state with the times of the job; in a shared one, of the cell."""
    job = evidence.answer.state
    if job is None:
        return _limits(evidence)
    starts = None
    if job.starts is not None:
        starts = datetime.fromtimestamp(job.starts, UTC).isoformat()
    is_waiting = job.outcome is Outcome.PENDING and job.submitted is not None
    return _limits(evidence) | {
        "queued_s": _waited_s(evidence, job) if is_waiting else job.queued_s,
        "starts": starts,
        "elapsed_s": _attempt_s(evidence) if evidence.is_shared else job.elapsed_s,
        "node": job.node,
    }


def _limits(evidence: CellEvidence) -> dict[str, object]:
    """Return the fields of a state with what the job has; in a shared one, what the cell has."""
    job, shape = evidence.answer.state, evidence.shape
    limits: dict[str, object] = {}
    if job:
        limits = {"minutes": job.minutes, "gpus": job.gpus, "mem_gb": job.mem_gb}
    if shape is None or not is_slurm(evidence.job):
        return limits
    limits["gpus"] = shape.nodes * shape.gpus_per_node
    if shape.mem_gb_per_node:
        limits["mem_gb"] = shape.mem_gb_per_node
    if job is None or evidence.is_shared:
        limits["minutes"] = shape.minutes
    return limits


def _waited_s(evidence: CellEvidence, job: JobState) -> float:
    """Return the seconds since the submission of a job; 0 if SLURM does not report it."""
    return max(0.0, evidence.at - (job.submitted or evidence.at))


def _attempt_s(evidence: CellEvidence) -> float | None:
    """Return how long a cell's attempt took, or has taken; None before it."""
    attempt = evidence.attempt
    if attempt is None or attempt.began is None:
        return None
    until = attempt.ended if attempt.end else evidence.at
    return None if until is None else max(0.0, until - attempt.began)


def _active(evidence: CellEvidence, job: JobState) -> CellState:
    """Return the state of a cell whose job is pending or running."""
    if job.outcome is Outcome.PENDING:
        pending = why_pending(job.reason)
        words = f"node {job.node} is being prepared" if job.node else str(pending)
        prefix = "" if job.state == "PENDING" else f"{job.state}: "
        return _state(
            evidence,
            job.outcome,
            in_job(f"{prefix}{words}", job.job),
            who=pending.who,
        )
    return _sharing(evidence, job) if evidence.is_shared else _running(evidence, job)


def _running(evidence: CellEvidence, job: JobState) -> CellState:
    """Return the state of a cell that a running job measures, with its progress."""
    is_going_on = evidence.is_of_this_run and job.state == "RUNNING"
    pace = pace_of(evidence.progress if is_going_on else None, evidence.at)
    prefix = f"{job.state} " * (job.state != "RUNNING")
    return _state(
        evidence,
        job.outcome,
        in_job(f"{prefix}on {job.node or '?'}", job.job),
        **pace._asdict(),
    )


def _sharing(evidence: CellEvidence, job: JobState) -> CellState:
    """Return the state of a cell in a running shared job: ended, running, or not started."""
    end = evidence.end
    if not evidence.is_of_this_run:
        return _state(
            evidence,
            Outcome.PENDING,
            f"waiting inside job {job.job}",
            queued_s=_waited_s(evidence, job),
            node="",
            elapsed_s=None,
        )
    if end is None:
        return _running(evidence, job)
    if end.outcome.finished:
        return _state(
            evidence,
            Outcome.RUNNING,
            in_job("ended, but its record is not visible yet", job.job),
        )
    return _by_end(evidence, end)


def _measured(evidence: CellEvidence, record: Record) -> CellState:
    """Return the state of a cell with a record; warn if SLURM's state of the job differs."""
    job = evidence.answer.state
    return _state(
        evidence,
        record.outcome,
        record.reason or "",
        warning=_job_warning(job, evidence.is_shared) if job else "",
        recorded=True,
        restarts=record.attempt.restart,
        node=",".join(record.attempt.hosts),
    )


def _job_warning(job: JobState, is_shared: bool) -> str:
    """Return what SLURM says of the job of a recorded cell that did not just succeed."""
    warnings = []
    # the state of a shared job may be due to its other cells
    if job.over and not is_shared and job.outcome is not Outcome.MISSING:
        warnings.append(f"SLURM's state is {job.state}")
    if job.suspended_s:
        warnings.append(f"SLURM suspended its job for {duration_text(job.suspended_s)}")
    return "; ".join(warnings)


def _ended(evidence: CellEvidence, job: JobState) -> CellState:
    """Return SLURM's state without a record, with the first failing rank's reason if any."""
    reason = in_job(f"{job.state}{_cause(evidence, job)}", job.job)
    if evidence.end:
        return _ended_with_report(evidence, job, evidence.end, reason)
    if evidence.attempt is None:
        before = _ended_before_start(evidence, job, reason)
        if before:
            return before
    if job.outcome is Outcome.MISSING:
        return _completed_without_record(evidence, job)
    if evidence.failure.is_memory_kill:
        return _out_of_memory(evidence)
    return _state(evidence, job.outcome, reason)


def _cause(evidence: CellEvidence, job: JobState) -> str:
    """Return who cancelled a job, or its exit code; empty if SLURM does not say."""
    if job.outcome is Outcome.CANCELLED:  # its exit code is 0:0
        who = canceller(job.state)
        return f" ({who})" if who else ""
    code = f", exit code {job.exit_code}" if job.exit_code else ""
    if evidence.end is None and job.exit_code.startswith(f"{NO_SPACE_CODE}:"):
        code += f" (no space left on device: {evidence.study.root})"
    return code


def _ended_with_report(
    evidence: CellEvidence, job: JobState, end: AttemptEnd, reason: str
) -> CellState:
    """Return SLURM's state of a job, or what the exit report says more exactly."""
    outcome = job.outcome
    if outcome is Outcome.MISSING and end.outcome.finished:
        return _completed_without_record(evidence, job)
    if outcome is Outcome.FAILED and evidence.failure.is_memory_kill:
        return _out_of_memory(evidence)
    ended_with_job = end.outcome is Outcome.CANCELLED and outcome in _BY_THE_JOB
    if evidence.is_shared and not ended_with_job:
        return _by_end(evidence, end)
    return _with_report(evidence, outcome, end, reason)


def _with_report(
    evidence: CellEvidence, outcome: Outcome, end: AttemptEnd, reason: str
) -> CellState:
    """Return a state with the reason of the first failing rank before SLURM's."""
    rank_reason = end.reason or end.outcome.value
    if outcome is Outcome.TIMEOUT and end.activity:
        rank_reason = end.activity
    if outcome in (Outcome.FAILED, Outcome.MISSING) and not end.outcome.finished:
        outcome = end.outcome  # it says more than the job's exit code
    if outcome is not Outcome.OOM:
        reason = f"{rank_reason}; {reason}"
    return _state(evidence, outcome, reason, **_fault_of_node(end, outcome))


def _ended_before_start(
    evidence: CellEvidence, job: JobState, reason: str
) -> CellState | None:
    """Return the state of a cell whose job ended before it; None if only SLURM knows why."""
    outcome = job.outcome
    if words := evidence.failure.of_script:
        return _state(evidence, outcome, f"{words}; {reason}")
    if limit := _limit_before_start(evidence, job):
        return _state(evidence, Outcome.TIMEOUT, f"{limit}; {reason}")
    if not evidence.is_shared:
        return None
    if outcome in _BY_THE_JOB:
        return _state(evidence, outcome, f"{reason}, before this cell started")
    return _state(
        evidence,
        Outcome.MISSING,
        f"job {job.job} ended before this cell started ({job.state})",
    )


_BEFORE_START = "came before the job's Python was ready: use longer minutes="


def _limit_before_start(evidence: CellEvidence, job: JobState) -> str:
    """Return why the time limit ended a job before its cell had started; empty if it did not."""
    if evidence.is_shared:
        return f"the cell's time limit {_BEFORE_START}" * evidence.failure.is_over_limit
    return f"the time limit {_BEFORE_START}" * (job.state == "TIMEOUT")


def _fault_of_node(end: AttemptEnd, outcome: Outcome) -> dict[str, str]:
    """Return the field of a state with the node at fault where the attempt names it."""
    return {"node": end.node} if outcome is Outcome.NODE_FAIL and end.node else {}


def _completed_without_record(evidence: CellEvidence, job: JobState) -> CellState:
    """Return the state of a completed job; its record may take a moment to become visible."""
    age_s = evidence.at - job.ended if job.ended else LAG_S
    if abs(age_s) < LAG_S:  # clocks may differ by seconds
        words = f"ended {duration_text(max(0.0, age_s))} ago, but its record is not visible yet"
        return _state(evidence, Outcome.RUNNING, in_job(words, job.job))
    return _state(evidence, job.outcome, f"job {job.job} {job.state} without a record")


def _by_end(evidence: CellEvidence, end: AttemptEnd) -> CellState:
    """Return the state by the exit report, which does not say why a process was killed."""
    if end.outcome is Outcome.FAILED and evidence.failure.is_memory_kill:
        return _out_of_memory(evidence)
    at_fault = _fault_of_node(end, end.outcome)
    return _state(evidence, end.outcome, end.reason or "", **at_fault)


def _out_of_memory(evidence: CellEvidence) -> CellState:
    return _state(
        evidence,
        Outcome.OOM,
        f"SLURM ended job {evidence.job}: memory limit exceeded",
    )


def _unlisted(evidence: CellEvidence) -> CellState:
    """Return the state of a cell of whose job SLURM reports no state."""
    end, is_gone = evidence.end, evidence.answer.gone
    if end and (is_gone or end.outcome is not Outcome.CANCELLED):
        return _by_end(evidence, end)  # a stop may end in a requeue
    return _gone(evidence) if is_gone else _silent(evidence)


def _gone(evidence: CellEvidence) -> CellState:
    """Return the state of a job that left squeue without a known end."""
    job, slurm = evidence.job, evidence.slurm
    if job in slurm.foreign:
        return _state(
            evidence,
            Outcome.MISSING,
            f"job {job} is another job here ({slurm.foreign[job]}), not this study's: repeat the "
            "command that submitted the study",
        )
    is_accounted = array_ids([job])[0] in array_ids(slurm.accounts)
    if evidence.attempt is None and is_accounted and not slurm.no_accounts:
        return _state(
            evidence,
            Outcome.CANCELLED,
            f"job {job} left the queue and never started: it was cancelled",
        )
    complaint = slurm.no_accounts or "sacct does not report how it ended"
    reason = f"job {job} ended without a record or an exit report; {complaint}"
    return _state(evidence, Outcome.MISSING, reason)


def _silent(evidence: CellEvidence) -> CellState:
    """Return the last known state and its time, because SLURM does not say how the job is."""
    answered, last = evidence.slurm.cached.answered, evidence.answer.last
    state = "unknown"
    if answered:
        state += f" since {time_text(answered, evidence.at)}"
    if answered and last and last.state:
        state += f" ({last.outcome.value} then)"
    return _state(
        evidence,
        Outcome.UNKNOWN,
        in_job(f"{state}: {evidence.answer.doubt}", evidence.job),
    )


def _local(evidence: CellEvidence) -> CellState:
    """Return the state of a cell of a run on this machine."""
    if end := evidence.end:
        if end.outcome.finished:
            return _state(evidence, Outcome.MISSING, "the local run left no record")
        return _state(evidence, end.outcome, end.reason or "")
    if not is_local_run(evidence.job):
        return _state(evidence, Outcome.CANCELLED, "the local run was stopped")
    reason = "local run"
    if evidence.attempt is None:
        return _state(evidence, Outcome.PENDING, reason)
    pace = pace_of(evidence.progress, evidence.at)
    return _state(evidence, Outcome.RUNNING, reason, **pace._asdict())


def pace_of(progress: Progress | None, now: float) -> Pace:
    """Extrapolate the last report to `now` (seconds since 1970) at the pace of the last epoch.

    >>> start = "1970-01-01T00:00:00Z"
    >>> last = Progress(epoch=2, epochs=3, role=Stage.TIMED, since=start, last_s=300.0)
    >>> pace_of(last, now=120.0).doing
    'epoch 2 of 3 (timed), ~40 % of it, ~8 min of training left'
    """
    if progress is None or not 0 < progress.epoch <= progress.epochs:
        return Pace("starting")
    if progress.role in _AFTER:
        return Pace(_AFTER[progress.role], 1.0, 0.0)
    words = f"epoch {progress.epoch} of {progress.epochs} ({progress.role})"
    since = unix_time(progress.since)
    elapsed_s = 0.0 if since is None else max(0.0, now - since)
    epoch_s = _epoch_s(progress, elapsed_s)
    if epoch_s is None:
        return Pace(words, (progress.epoch - 1) / progress.epochs)
    if elapsed_s > max(LATE * epoch_s, LATE_S):
        times = (
            f"{duration_text(elapsed_s)}, the last one took {duration_text(epoch_s)}"
        )
        return Pace(f"{words}: for {times}", (progress.epoch - 1) / progress.epochs)
    share = formulas.epoch_share(elapsed_s, epoch_s)
    left_s = formulas.training_left_s(
        elapsed_s, epoch_s, progress.epochs - progress.epoch
    )
    return Pace(
        f"{words}, ~{percent_text(share, 0)} of it, ~{duration_text(left_s)} of training left",
        (progress.epoch - 1 + share) / progress.epochs,
        left_s,
    )


def _epoch_s(progress: Progress, elapsed_s: float) -> float | None:
    """Return the duration of the epoch, by its iterations or as the last one; None if unknown."""
    share = progress.iteration / progress.iterations if progress.iterations else 0.0
    epoch_s = elapsed_s / share if share > 0 else progress.last_s
    return epoch_s if epoch_s and 0 < epoch_s <= LONGEST_S else None
