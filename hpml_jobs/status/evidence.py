"""The facts that decide the state of a cell, collected before a rule is applied."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.process_times import started_at
from hpml_jobs.slurm.jobs import JOB_WORDS, JobState, is_slurm
from hpml_jobs.status.query import SlurmAnswer, SlurmSnapshot
from hpml_jobs.study.attempt import Progress
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


@dataclass(frozen=True, kw_only=True, slots=True)
class CellEvidence:
    """The facts of one cell and its job that the rules need.

    `snapshot` is the cell's folder, `study` the study's; `answer` is SLURM's on that job; `attempt`
    is the cell's latest one if it belongs to that job, and `is_of_this_run` if the job was not
    requeued since. `is_shared`: the job runs several cells.
    `progress` is read for running cells only, `is_alive` for local runs only, and `is_memory_kill`,
    `is_over_limit` (of a step) and `words` (of the job's script, on its end) only where a process
    has failed: the other cells' files need not be opened.
    """

    snapshot: FolderSnapshot
    job: str
    study: Path
    answer: SlurmAnswer
    slurm: SlurmSnapshot
    is_shared: bool = False
    attempt: AttemptSnapshot | None = None
    is_of_this_run: bool = False
    progress: Progress | None = None
    is_memory_kill: bool = False
    is_over_limit: bool = False
    words: str = ""
    is_alive: bool = False

    @property
    def at(self) -> float:
        """When SLURM was queried, in seconds since 1970."""
        return self.slurm.at


def jobs_of_cell(snapshot: FolderSnapshot, history: History) -> list[str]:
    """Return the cell's job by the manifest, then that of its attempt: it may be run by hand."""
    latest = snapshot.latest
    jobs = [history.jobs.get(snapshot.folder.slug), latest.folder.job if latest else None]
    return list(dict.fromkeys(job for job in jobs if job))


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
    if job is None:
        return None
    answer, latest = slurm.of(job), snapshot.latest
    attempt = latest if latest and latest.folder.job == job else None
    is_judged = bool(snapshot.record or snapshot.record_fault)
    is_local = not (is_slurm(job) or is_judged or (attempt and attempt.end))
    is_running = answer.state.outcome is Outcome.RUNNING if answer.state else is_local
    has_failed = not is_judged and _has_failed(answer.state, attempt)
    log = _slurm_text(study, snapshot, job) if has_failed else ""
    return CellEvidence(
        snapshot=snapshot,
        job=job,
        study=study.root,
        answer=answer,
        slurm=slurm,
        is_shared=job in shared.jobs,
        attempt=attempt,
        is_of_this_run=_is_of_this_run(attempt, answer.state, shared.restarts.get(job, 0)),
        progress=attempt.folder.read_progress() if attempt and is_running else None,
        is_memory_kill=_MEMORY_KILL.search(log) is not None,
        is_over_limit=_STEP_LIMIT.search(log) is not None,
        words=words_of_script(study, job) if has_failed else "",
        is_alive=is_local and is_local_run(job),
    )


def _deciding_job(
    snapshot: FolderSnapshot, jobs: list[str], slurm: SlurmSnapshot
) -> str | None:
    """Return the job that is pending or running, else the record's, else the first."""
    for job in jobs:
        state = slurm.of(job).state
        if state is not None and state.outcome.active:
            return job
    if snapshot.record is not None:
        return snapshot.record.attempt.job
    if jobs:
        return jobs[0]
    return "" if snapshot.record_fault else None


def _is_of_this_run(
    attempt: AttemptSnapshot | None, state: JobState | None, restart: int
) -> bool:
    """Return whether an attempt is of the present run of its job, not of one before a requeue."""
    if attempt is None or attempt.began is None:
        return False
    started = state.started if state else None
    is_before = started is not None and attempt.began < started - REQUEUE_S
    return attempt.folder.restart >= restart and not is_before


def _has_failed(state: JobState | None, attempt: AttemptSnapshot | None) -> bool:
    """Return whether a process has failed, so that a log may give the reason."""
    end = attempt.end if attempt else None
    outcomes = (state.outcome if state else None, end.outcome if end else None)
    return Outcome.FAILED in outcomes


def _slurm_text(study: Study, snapshot: FolderSnapshot, job: str) -> str:
    """Return the ends of the cell's logs, in which the step daemon writes."""
    nodes = snapshot.file.cell.nodes if snapshot.file else 1
    logs = slurm_logs(study, snapshot.folder.slug, job, nodes)
    return "\n".join(tail(log, LOG_BYTES) for log in logs)


def words_of_script(study: Study, job: str) -> str:
    """Return what a job's script says last about its end; empty if it says nothing."""
    lines = (
        line
        for log in script_logs(study, job)
        for line in tail(log, LOG_BYTES).splitlines()
    )
    words = [line.removeprefix(JOB_WORDS) for line in lines if line.startswith(JOB_WORDS)]
    return words[-1] if words else ""


def script_logs(study: Study, job: str) -> list[Path]:
    """Return what a job's script prints to stderr: of an array's task, or of another job."""
    paths = [study.slurm_log(job, part) for part in (0, "pack", "ladder", "closing")]
    return [path for path in paths if is_slurm(job) and path.exists()]


def slurm_logs(study: Study, slug: str, job: str, nodes: int) -> list[Path]:
    """Return what SLURM and the wrapper print for a cell: of each node, or of a pack's step.

    Each path is tried by name: listing the folder for every cell would be slow.
    """
    if not is_slurm(job):
        return []
    paths = [study.slurm_log(job, part) for part in [*range(nodes), slug]]
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
