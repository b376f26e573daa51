"""Jobs whose ids were lost between sbatch and the manifest, found again by their scripts' names."""

import contextlib
import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.slurm.commands import ask_slurm
from hpml_jobs.slurm.jobs import table_lines
from hpml_jobs.status.query import NO_TABLE
from hpml_jobs.study.manifest import History, ManifestEvent, ManifestLine, fold
from hpml_jobs.study.study import Study

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
