"""The state of every cell of a study, from its files and SLURM's answers."""

import contextlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.text import duration_text, unix_time
from hpml_jobs.results.cells import cell_results
from hpml_jobs.results.checks.study import check_study
from hpml_jobs.results.groups import group
from hpml_jobs.slurm.commands import ask_cluster, ask_slurm
from hpml_jobs.slurm.jobs import table_lines
from hpml_jobs.status.evidence import evidence_of, jobs_of_cell, shared_jobs
from hpml_jobs.status.query import NO_TABLE, SlurmSnapshot, query_slurm
from hpml_jobs.status.rules import state_of
from hpml_jobs.study.manifest import History, ManifestEvent, ManifestLine, fold
from hpml_jobs.study.snapshot import CellState, FolderSnapshot, RecordCache, read_study
from hpml_jobs.study.study import LOCK_S, Study

_SCRIPT = re.compile(r"^\s*([0-9]{1,15})(_?)[^|]*\|.*/(\w+)\.sh\b", re.MULTILINE)
"""A job in a table of squeue or sacct, whether it is an array, and the batch that it is of."""

_NO_ACCOUNTING = "accounting storage is disabled"
"""What sacct says at a site without accounting."""


class SubmittedJob(NamedTuple):
    """A job as sbatch printed it: an array by its own id."""

    job: str
    is_array: bool


class SubmittedJobs(NamedTuple):
    """The jobs that SLURM has, by batch, and its complaint; `no_squeue`: it is not installed."""

    jobs: dict[str, SubmittedJob]
    complaint: str = ""
    no_squeue: bool = False


class RecoveredHistory(NamedTuple):
    """The manifest's history with the jobs that were found; SLURM's complaint if it has one.

    `no_squeue`: squeue is not installed, so that a later question would fail too. `fault` is why
    the manifest cannot be read; then the history is empty.
    """

    history: History
    complaint: str = ""
    no_squeue: bool = False
    fault: str = ""


def read_history(study: Study) -> RecoveredHistory:
    """Read the manifest, find lost jobs, and add these to the manifest if it is writable."""
    try:
        lines = list(study.lines())
    except HpmlError as fault:
        return RecoveredHistory(History(), fault=str(fault))
    history = fold(lines)
    lost = history.lost_lines
    if not lost:
        return RecoveredHistory(history)
    submitted = submitted_jobs(line.name or study.job_name for line in lost)
    recovered = [
        _answered(line, submitted.jobs[line.batch])
        for line in lost
        if line.batch in submitted.jobs
    ]
    # somebody else's study: the jobs are used all the same
    with contextlib.suppress(HpmlError):
        for line in recovered:
            study.append(line)
    history = fold([*lines, *recovered])
    complaint = submitted.complaint if history.lost_lines else ""
    return RecoveredHistory(history, complaint, submitted.no_squeue)


def submitted_jobs(names: Iterable[str]) -> SubmittedJobs:
    """Ask SLURM for the jobs of these names; accounting keeps those that have left the queue."""
    name = ",".join(dict.fromkeys(names))
    queue = ask_slurm("squeue", "-t", "all", "-n", name, "-o", "%i|%o")
    if queue.code or table_lines(queue.text) is None:
        complaint = f"squeue: {queue.complaint or NO_TABLE}"
        return SubmittedJobs({}, complaint, queue.absent)
    selected = ("--name", name, "-S", "now-7days", "-o", "JobID,SubmitLine")
    accounts = ask_slurm("sacct", "-X", "-P", "-n", *selected)
    has_none = accounts.absent or _NO_ACCOUNTING in accounts.complaint
    complaint = ""
    if accounts.code and not has_none:
        complaint = f"sacct: {accounts.complaint}"
    rows = _SCRIPT.findall(f"{accounts.text}\n{queue.text}")
    jobs = {batch: SubmittedJob(job, bool(mark)) for job, mark, batch in rows}
    return SubmittedJobs(jobs, complaint)


def _answered(line: ManifestLine, submitted: SubmittedJob) -> ManifestLine:
    """Return the line after an sbatch, with the job or the task of each cell."""
    job, is_array = submitted
    tasks = range(len(line.cells))
    jobs = tuple(f"{job}_{task}" if is_array else job for task in tasks)
    return msgspec.structs.replace(
        line, happening=ManifestEvent.SENT, jobs=jobs or (job,), files={}
    )


LONGEST_SBATCH_S = 3600
"""How long an sbatch on another login node, which cannot be asked, is taken to run."""


class StudyStatus(NamedTuple):
    """The state of every cell, by name, and all it was derived from: nothing is read again.

    `snapshots` are the cells' folders, `slurm` what SLURM answered, `history` the manifest.
    `complaint` says why states are unknown that may be known later, `fault` why the manifest cannot
    be read.
    """

    states: list[CellState]
    snapshots: list[FolderSnapshot]
    slurm: SlurmSnapshot
    history: History
    complaint: str = ""
    fault: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether the job that sends the next step of `auto` is pending or running."""
        job, task = next(reversed(self.history.closing.items()), ("", ""))
        state = self.slurm.of(job).state
        return task.startswith("next step") and bool(state and state.outcome.active)


def study_status(
    study: Study,
    *,
    all_jobs: bool = False,
    with_checks: bool = False,
    cache: RecordCache | None = None,
) -> StudyStatus:
    """Read a study's folder and ask SLURM; return the state of every cell.

    With `all_jobs` SLURM is also queried for a cell's earlier jobs; `with_checks` adds the
    data-quality checks to the states. Records in `cache` are not read again while unchanged.
    """
    cluster = study.last_cluster()
    if cluster is not None:
        ask_cluster(cluster.clusters)
    recovered = read_history(study)
    history = recovered.history
    snapshots = read_study(study, history, cache)
    jobs = {s.folder.slug: jobs_of_cell(s, history) for s in snapshots}
    queried = [*chain.from_iterable(jobs.values()), *history.closing]
    if all_jobs:
        queried += history.sent
    slurm = query_slurm(study, queried, history.submissions)
    states = {}
    shared = shared_jobs(snapshots, jobs, history)
    for snapshot in snapshots:
        slug = snapshot.folder.slug
        evidence = evidence_of(study, snapshot, jobs[slug], slurm, shared)
        state = state_of(evidence) if evidence else _unsubmitted(slug, recovered)
        states[slug] = _with_losses(state, snapshot)
    if with_checks:
        states = _with_checks(states, snapshots)
    complaint = slurm.complaint or ("" if recovered.no_squeue else recovered.complaint)
    listed, fault = [*states.values()], recovered.fault
    return StudyStatus(listed, snapshots, slurm, history, complaint, fault)


def cell_states(study: Study, *, with_checks: bool = False) -> list[CellState]:
    """Return the state of every cell of a study, by name."""
    return study_status(study, with_checks=with_checks).states


def status_for_submission(study: Study, *, all_jobs: bool = False) -> StudyStatus:
    """Return the status from which cells are selected for submission.

    Raises:
        HpmlError: the manifest or squeue does not say which cells have a job.
    """
    status = study_status(study, all_jobs=all_jobs)
    if status.fault:
        raise HpmlError(
            f"{status.fault}: it is unknown which cells have a job; repair or remove it"
        )
    no_answer = status.complaint if status.history.lost_lines else ""
    if complaint := status.slurm.no_queue or no_answer:
        raise HpmlError(
            f"{complaint}: it is unknown which cells have a job; try again later"
        )
    return status


def _with_losses(state: CellState, snapshot: FolderSnapshot) -> CellState:
    """Return the state of a cell whose folder or record is lost, with what is left of it."""
    if snapshot.source is not None and state.recorded:
        lost = (
            f"record.json is lost, the record of attempt {snapshot.source.id} is used"
        )
        warning = "; ".join(filter(None, (state.warning, lost)))
        return msgspec.structs.replace(state, warning=warning)
    if not snapshot.is_gone:
        return state
    if state.outcome.may_run:
        reason = f"{state.reason}; its folder is gone, so the job will fail"
        return msgspec.structs.replace(state, reason=reason)
    reason = "the folder of this cell is gone; "
    if snapshot.file is None:
        reason += "the manifest has no copy of its cell.json: repeat the command that submitted it"
    else:
        reason += "the manifest has a copy of its cell.json, so it can be resubmitted"
    return msgspec.structs.replace(state, outcome=Outcome.MISSING, reason=reason)


def _unsubmitted(slug: str, recovered: RecoveredHistory) -> CellState:
    """Return the state of a cell without a known job."""
    line = recovered.history.unanswered.get(slug)
    if line is not None:
        outcome, reason = unanswered(line, recovered.complaint)
        return CellState(slug=slug, outcome=outcome, reason=reason)
    words = recovered.history.refused.get(slug)
    reason = f"sbatch refused it: {words}" if words else "not submitted yet"
    return CellState(slug=slug, outcome=Outcome.MISSING, reason=reason)


def unanswered(line: ManifestLine, complaint: str = "") -> tuple[Outcome, str]:
    """Return the state of what an sbatch was called for, whose job is not in the manifest."""
    if complaint:
        return (
            Outcome.UNKNOWN,
            f"sbatch was called, but its answer is lost; {complaint}",
        )
    words = "" if line.closing else line.words
    age_s = time.time() - (unix_time(line.time) or 0)
    if age_s < LOCK_S:
        if words:
            return Outcome.UNKNOWN, words
        return Outcome.PENDING, "being submitted"
    process = line.sbatch
    if process and process.runs:
        sbatch, waits = f"sbatch (PID {process.pid})", duration_text(age_s)
        return (
            Outcome.PENDING,
            f"being submitted: {sbatch} has waited for SLURM for {waits}",
        )
    if process and not process.is_here and age_s < LONGEST_SBATCH_S:
        may_run = f"sbatch may still be running (PID {process.pid} on {process.host})"
        return Outcome.UNKNOWN, f"{may_run}: ask for the status there"
    words = words or "sbatch was interrupted, and SLURM has no such job"
    return Outcome.MISSING, f"not submitted: {words}"


def _with_checks(
    states: Mapping[str, CellState], snapshots: Sequence[FolderSnapshot]
) -> dict[str, CellState]:
    """Return the states with the checks of their records, compared with each other."""
    checks = check_study(group(cell_results(snapshots, states)), states)
    checked = dict(states)
    for slug, state in states.items():
        if state.recorded:
            checked[slug] = msgspec.structs.replace(state, checks=checks.get(slug, ()))
    return checked
