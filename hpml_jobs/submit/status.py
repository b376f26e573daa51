"""Where every cell stands: manifest x squeue x sacct x records, one question to each."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.decoding import InvalidRecordError
from hpml_jobs.errors import HpmlError
from hpml_jobs.record import Record
from hpml_jobs.slurm import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    JobState,
    Outcome,
    array_ids,
    is_slurm,
    parse_sacct,
    parse_squeue,
)
from hpml_jobs.study import CellFolder, CellState, History, Study
from hpml_jobs.submit.machine import ask_slurm
from hpml_jobs.verdicts import of_study

SACCT_IDS = 100
"""Array ids of one sacct call; longer lists slow the accounting database down."""

_MEMORY_KILL = "Exceeded job memory limit"


class Seen(NamedTuple):
    """What SLURM says of a study's jobs now; the complaint of what did not answer."""

    queue: dict[str, JobState]
    accounts: dict[str, JobState]
    no_queue: str = ""
    no_accounts: str = ""


def states(study: Study, *, before_sending: bool = False) -> list[CellState]:
    """The state of every cell of a study, by name.

    Raises:
        HpmlError: with `before_sending`, where squeue does not say which cells are under way.
    """
    history = study.history()
    cells = study.cells()
    asked = {cell.slug: _jobs_of(cell, history) for cell in cells}
    seen = ask(job for found in asked.values() for job in found if is_slurm(job))
    if before_sending and seen.no_queue:
        raise HpmlError(f"{seen.no_queue}: which cells are under way is not known; try again later")
    looks = {cell.slug: _look(cell) for cell in cells}
    judged = of_study([look.record for look in looks.values() if look.record])
    found = []
    for cell in cells:
        job, look = _telling(asked[cell.slug], seen), looks[cell.slug]
        if job is None and look == Look():
            state = _unsent(cell, history)
        else:
            state = _state(study, cell, job or "", seen, look)
        verdicts = judged.get(cell.slug, ()) if state.recorded else ()
        found.append(msgspec.structs.replace(state, verdicts=verdicts))
    return found


class Look(NamedTuple):
    """A cell's record, or why there is one that must not be used; neither where there is none."""

    record: Record | None = None
    invalid: str = ""


def _look(cell: CellFolder) -> Look:
    try:
        return Look(record=cell.read_record())
    except InvalidRecordError as fault:
        return Look(invalid=str(fault))


def _unsent(cell: CellFolder, history: History) -> CellState:
    """A cell that no job is known of."""
    if cell.slug in history.unanswered:
        reason = "sbatch was called, its answer is lost"
        return CellState(slug=cell.slug, outcome=Outcome.UNKNOWN, reason=reason)
    words = history.refused.get(cell.slug)
    reason = f"sbatch refused it: {words}" if words else "not sent yet"
    return CellState(slug=cell.slug, outcome=Outcome.MISSING, reason=reason)


def _jobs_of(cell: CellFolder, history: History) -> list[str]:
    """The cell's job by the manifest, and that of its last attempt: it may be sent by hand."""
    latest = cell.latest_attempt()
    found = [history.jobs.get(cell.slug), latest.id.rpartition(".r")[0] if latest else None]
    return list(dict.fromkeys(job for job in found if job))


def _telling(jobs: list[str], seen: Seen) -> str | None:
    """The job to tell of: one that is under way, else the first."""
    active = (job for job in jobs if job in seen.queue and seen.queue[job].outcome.active)
    return next(active, jobs[0] if jobs else None)


def ask(jobs: Iterable[str]) -> Seen:
    """One squeue, one sacct (one more per 100 array ids), both bounded in time."""
    ids = array_ids(jobs)
    if not ids:
        return Seen({}, {})
    code, queue, complaint = ask_slurm(
        "squeue", "-h", "-r", "-o", SQUEUE_FORMAT, "-j", ",".join(ids)
    )
    # a single id that SLURM has forgotten is an error to squeue, and means: not in the queue
    no_queue = "" if code == 0 or "Invalid job id" in complaint else f"squeue: {complaint}"
    accounts = no_accounts = ""
    for start in range(0, len(ids), SACCT_IDS):
        chunk = ",".join(ids[start : start + SACCT_IDS])
        code, text, complaint = ask_slurm(
            "sacct", "-X", "-P", "-n", "-o", SACCT_FIELDS, "-j", chunk
        )
        accounts += text
        no_accounts = no_accounts or ("" if code == 0 else f"sacct: {complaint}")
    return Seen(parse_squeue(queue), parse_sacct(accounts), no_queue, no_accounts)


def _state(study: Study, cell: CellFolder, job: str, seen: Seen, look: Look) -> CellState:
    """The rules, first that applies: a job under way, a record, SLURM's word, the attempt's."""
    record, invalid = look
    queued = seen.queue.get(job)
    accounted = seen.accounts.get(job)
    if queued and queued.outcome.active and not (record and record.attempt.job == job):
        where = queued.node or queued.reason
        reason = f"{queued.state}{f' ({where})' if where else ''}, job {job}"
        return CellState(
            slug=cell.slug, outcome=queued.outcome, job=job, reason=reason, node=queued.node
        )
    if record is not None:
        return _measured(cell, record, accounted)
    if invalid:
        return CellState(slug=cell.slug, outcome=Outcome.INVALID, job=job, reason=invalid)
    if accounted:
        return _ended(study, cell, accounted)
    if not is_slurm(job):
        return _local(cell, job)
    return _unaccounted(cell, job, seen)


def _measured(cell: CellFolder, record: Record, accounted: JobState | None) -> CellState:
    """A valid record gives the numbers; another SLURM state stands beside it as a warning."""
    warning = ""
    same_job = accounted is not None and accounted.job == record.attempt.job
    if same_job and accounted and not accounted.state.startswith(("COMPLETED", "COMPLETING")):
        warning = f"SLURM says {accounted.state}"
    return CellState(
        slug=cell.slug,
        outcome=record.outcome,
        job=record.attempt.job,
        reason=record.reason or "",
        node=",".join(record.attempt.hosts),
        warning=warning,
        recorded=True,
    )


def _ended(study: Study, cell: CellFolder, accounted: JobState) -> CellState:
    """SLURM's word without a record, and the first failing rank's reason where there is one."""
    outcome = accounted.outcome
    reason = f"{accounted.state}, exit code {accounted.exit_code}, job {accounted.job}"
    if outcome is Outcome.MISSING:
        reason = f"job {accounted.job} {accounted.state} but left no record"
    if outcome is Outcome.FAILED and _killed_for_memory(study, accounted.job):
        outcome = Outcome.OOM
        mend = "ask for more: cluster.mem_gb_per_gpu=N"
        reason = f"SLURM ended job {accounted.job}: {_MEMORY_KILL}; {mend}"
    end = cell.last_end()
    if end and end.reason and end.attempt.job == accounted.job and outcome is not Outcome.OOM:
        reason = f"{end.reason}; {reason}"
    return CellState(
        slug=cell.slug, outcome=outcome, job=accounted.job, reason=reason, node=accounted.node
    )


def _killed_for_memory(study: Study, job: str) -> bool:
    return any(
        _MEMORY_KILL in path.read_text(errors="replace")
        for path in study.slurm.glob(f"{job}_*_log.err")
    )


def _unaccounted(cell: CellFolder, job: str, seen: Seen) -> CellState:
    """A job that SLURM no longer tells of: the attempt's own last words, else unknown."""
    end = cell.last_end()
    if end and end.attempt.job == job:
        return CellState(slug=cell.slug, outcome=end.outcome, job=job, reason=end.reason or "")
    latest = cell.latest_attempt()
    if _vanished(job, seen) and not (latest and latest.id.startswith(f"{job}.r")):
        reason = f"job {job} never started and SLURM lists it no more: cancelled while it waited"
        return CellState(slug=cell.slug, outcome=Outcome.CANCELLED, job=job, reason=reason)
    silent = seen.no_queue or seen.no_accounts or "neither squeue nor sacct knows it"
    reason = f"job {job}: {silent}"
    return CellState(slug=cell.slug, outcome=Outcome.UNKNOWN, job=job, reason=reason)


def _vanished(job: str, seen: Seen) -> bool:
    """Whether SLURM tells of the job's array, but of this task no more."""
    arrays = array_ids(seen.accounts)
    return not (seen.no_queue or seen.no_accounts) and array_ids([job])[0] in arrays


def _local(cell: CellFolder, job: str) -> CellState:
    """A cell of a run on this machine (`local-PID-TIME`, `here-PID-TIME`)."""
    latest = cell.latest_attempt()
    begun = latest is not None and latest.id == f"{job}.r0"
    end = cell.last_end() if begun else None
    if end:
        outcome, reason = end.outcome, end.reason or ""
    elif _alive(job):
        outcome = Outcome.RUNNING if begun else Outcome.WAITING
        reason = f"on this machine, {job}"
    else:
        outcome, reason = Outcome.CANCELLED, f"the run on this machine was stopped ({job})"
    return CellState(slug=cell.slug, outcome=outcome, job=job, reason=reason)


def _alive(job: str) -> bool:
    """Whether the process that a local job is named after still runs our program."""
    try:
        return b"hpml" in Path(f"/proc/{job.split('-')[1]}/cmdline").read_bytes()
    except (OSError, IndexError):
        return False


def log_text(study: Study, state: CellState, lines: int) -> str:
    """Why a cell failed: the first failing rank's traceback, or the end of the job's logs."""
    folder = study.cell(state.slug)
    latest, end = folder.latest_attempt(), folder.last_end()
    if end and end.traceback:
        return f"rank {end.rank} failed first:\n{end.traceback}"
    files = latest.logs() if latest else []
    if state.job and is_slurm(state.job):
        files += sorted(study.slurm.glob(f"{state.job}_*_log.err"))
    parts = [f"---- {file}\n{text}" for file in files if (text := _end_of(file, lines))]
    empty = ", ".join(str(file) for file in files)
    return "\n".join(parts) or (f"nothing was printed ({empty})" if files else "no log was written")


def _end_of(file: Path, lines: int) -> str:
    try:
        text = file.read_bytes()[-200_000:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
