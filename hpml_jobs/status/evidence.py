"""The facts that decide the state of a cell, collected before a rule is applied."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.cluster import Shape
from hpml_jobs.core.process_times import started_at
from hpml_jobs.slurm.jobs import JOB_WORDS, JobState, is_slurm
from hpml_jobs.status.query import SlurmAnswer, SlurmSnapshot
from hpml_jobs.study.cell_folder import AttemptEnd, Progress
from hpml_jobs.study.files import tail
from hpml_jobs.study.manifest import History
from hpml_jobs.study.snapshot import AttemptSnapshot, FolderSnapshot
from hpml_jobs.study.study import Study

REQUEUE_S = 60
"""An attempt that began so long before its job's start belongs to the run before a requeue."""

CLOCK_S = 5
"""The start of a process by /proc and the time in the name of its run may differ by so much."""

LOG_BYTES = 20_000
"""SLURM's message on a job over its memory limit is among so many last bytes of a log."""

_MEMORY_KILL = re.compile(
    r"exceeded (?:job |step )?memory limit|oom[-_ ]kill", re.IGNORECASE
)
"""What SLURM's step daemon writes when it, or the kernel, ends a job over its memory."""

_STEP_LIMIT = re.compile(r"STEP .*DUE TO TIME LIMIT")
"""What SLURM's step daemon writes when it ends a cell of a shared job at its time limit."""


class SharedJobs(NamedTuple):
    """Jobs that run several cells one after another; the latest restart seen of every job."""

    jobs: frozenset[str]
    restarts: Mapping[str, int]


class FailureWords(NamedTuple):
    """What the logs of a failed job say of the reason: SLURM's daemon, and its own script."""

    is_memory_kill: bool = False
    is_over_limit: bool = False
    of_script: str = ""


@dataclass(frozen=True)
class CellEvidence:
    """The facts of one cell and its job that the rules need; `snapshot` is the cell's folder.

    Logs and progress are read when a rule asks for them: most cells' need not be opened.
    """

    study: Study
    snapshot: FolderSnapshot
    job: str
    slurm: SlurmSnapshot
    shared: SharedJobs

    @cached_property
    def answer(self) -> SlurmAnswer:
        """SLURM's answer on the job."""
        return self.slurm.of(self.job)

    @property
    def is_shared(self) -> bool:
        """Whether the job runs several cells."""
        return self.job in self.shared.jobs

    @property
    def attempt(self) -> AttemptSnapshot | None:
        """The cell's latest attempt if it belongs to the job."""
        latest = self.snapshot.latest
        return latest if latest and latest.folder.job == self.job else None

    @property
    def is_of_this_run(self) -> bool:
        """Whether the attempt is of the present run of the job, not of one before a requeue."""
        attempt, state = self.attempt, self.answer.state
        if attempt is None or attempt.began is None:
            return False
        if attempt.folder.restart < self.shared.restarts.get(self.job, 0):
            return False
        started = state.started if state else None
        return started is None or attempt.began >= started - REQUEUE_S

    @property
    def at(self) -> float:
        """When SLURM was queried, in seconds since 1970."""
        return self.slurm.at

    @property
    def end(self) -> AttemptEnd | None:
        """The exit report of the attempt; None without one."""
        return self.attempt.end if self.attempt else None

    @property
    def shape(self) -> Shape | None:
        """What the cell requests of SLURM; None where its file does not say."""
        file = self.snapshot.file
        return file.shape if file else None

    @property
    def active_job(self) -> JobState | None:
        """The job while it is pending or running and has not published the cell's record."""
        state, record = self.answer.state, self.snapshot.record
        if state is None or not state.outcome.active:
            return None
        return None if record and record.attempt.job == self.job else state

    @property
    def progress(self) -> Progress | None:
        """The last report of rank 0; None before it."""
        return self.attempt.folder.read_progress() if self.attempt else None

    @cached_property
    def failure(self) -> FailureWords:
        """What the logs say of a process that failed without a record."""
        if self.snapshot.record or self.snapshot.record_fault:
            return FailureWords()
        reports = (self.answer.state, self.end)
        if Outcome.FAILED not in [report.outcome for report in reports if report]:
            return FailureWords()
        nodes = self.snapshot.file.cell.nodes if self.snapshot.file else 1
        logs = slurm_logs(self.study, self.snapshot.folder.slug, self.job, nodes)
        text = "\n".join(tail(log, LOG_BYTES) for log in logs)
        return FailureWords(
            is_memory_kill=_MEMORY_KILL.search(text) is not None,
            is_over_limit=_STEP_LIMIT.search(text) is not None,
            of_script=words_of_script(self.study, self.job),
        )


def jobs_of_cell(snapshot: FolderSnapshot, history: History) -> list[str]:
    """Return the cell's job by the manifest, then that of its attempt: it may be run by hand."""
    latest = snapshot.latest
    jobs = [
        history.jobs.get(snapshot.folder.slug),
        latest.folder.job if latest else None,
    ]
    return list(dict.fromkeys(filter(None, jobs)))


def shared_jobs(
    snapshots: Iterable[FolderSnapshot], jobs: Mapping[str, list[str]], history: History
) -> SharedJobs:
    """Return which jobs have several cells; `jobs` are those of each cell, by slug."""
    cells_of = Counter(job for cell_jobs in jobs.values() for job in cell_jobs)
    restarts: dict[str, int] = {}
    for snapshot in snapshots:
        if snapshot.latest:
            latest = snapshot.latest.folder
            restarts[latest.job] = max(latest.restart, restarts.get(latest.job, 0))
    shared = history.shared | {job for job, cells in cells_of.items() if cells > 1}
    return SharedJobs(shared, restarts)


def evidence_of(
    study: Study,
    snapshot: FolderSnapshot,
    jobs: list[str],
    slurm: SlurmSnapshot,
    shared: SharedJobs,
) -> CellEvidence | None:
    """Gather the facts on a cell; None where it has neither a job nor a record."""
    job = _deciding_job(snapshot, jobs, slurm)
    return None if job is None else CellEvidence(study, snapshot, job, slurm, shared)


def _deciding_job(
    snapshot: FolderSnapshot, jobs: list[str], slurm: SlurmSnapshot
) -> str | None:
    """Return the job that is pending or running, here too, else the record's, else the first."""
    for job in jobs:
        state = slurm.of(job).state
        if (state is not None and state.outcome.active) or is_local_run(job):
            return job
    if snapshot.record is not None:
        return snapshot.record.attempt.job
    if jobs:
        return jobs[0]
    return "" if snapshot.record_fault else None


def words_of_script(study: Study, job: str) -> str:
    """Return what a job's script says last about its end, or of auto; empty if it says nothing."""
    lines = (
        line
        for log in script_logs(study, job)
        for line in tail(log, LOG_BYTES).splitlines()
    )
    words = [
        line.removeprefix(JOB_WORDS)
        for line in lines
        if line.startswith((JOB_WORDS, "auto: "))
    ]
    return words[-1] if words else ""


def script_logs(study: Study, job: str) -> list[Path]:
    """Return what a job's script prints to stderr: of an array's task, or of another job."""
    paths = [study.slurm_log(job, part) for part in (0, "pack", "closing")]
    return [path for path in paths if is_slurm(job) and path.exists()]


def slurm_logs(study: Study, slug: str, job: str, nodes: int) -> list[Path]:
    """Return what SLURM and the wrapper print for a cell: of each node, or of a pack's step.

    Each path is tried by name: listing the folder for every cell would be slow.
    """
    if not is_slurm(job):
        return []
    parts = [*range(nodes), slug]
    paths = [study.slurm_log(job, part) for part in parts]
    return [path for path in paths if path.exists()]


def is_local_run(job: str) -> bool:
    """Return whether the process that a local job is named after, by PID and time, still runs.

    The run is named after it has begun: a process that began later only has its PID.
    """
    try:
        _, pid, named_at = job.split("-")
        started = started_at(int(pid))
        if started is None or started > int(named_at) + CLOCK_S:
            return False
        return b"hpml" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return False
