"""Jobs as SLURM reports them: the output of squeue and sacct as values, and who cancelled one."""

import os
import pwd
import re
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.sbatch import parse_duration_s
from hpml_jobs.core.text import whole_number

JOB_WORDS = "hpml-jobs: "
"""The beginning of what a job's script says in its log about its end."""

NO_SPACE_CODE = 28
"""Exit code of a job that cannot write its exit report, because the disk is full (ENOSPC)."""

_STATES = {
    Outcome.PENDING: (
        *("CONFIGURING", "EXPEDITING", "PENDING", "POWER_UP_NODE", "RESV_DEL_HOLD"),
        # requeued, and often held
        *("LAUNCH_FAILED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
        "SPECIAL_EXIT",
    ),
    Outcome.RUNNING: (
        *("COMPLETING", "RESIZING", "RUNNING", "SIGNALING", "STAGE_OUT", "STOPPED"),
        "SUSPENDED",
    ),
    Outcome.MISSING: ("COMPLETED",),  # the job succeeded but left no record
    Outcome.CANCELLED: ("CANCELLED", "REVOKED"),
    Outcome.FAILED: ("FAILED",),
    Outcome.NODE_FAIL: ("BOOT_FAIL", "NODE_FAIL"),
    Outcome.OOM: ("OUT_OF_MEMORY",),
    Outcome.PREEMPTED: ("PREEMPTED",),
    Outcome.TIMEOUT: ("DEADLINE", "TIMEOUT"),
}
_OUTCOMES = {state: outcome for outcome, states in _STATES.items() for state in states}


def outcome_of(state: str) -> Outcome:
    """Return the outcome that a SLURM state means for a cell without a record.

    The state decides, never the exit code: OUT_OF_MEMORY can come with exit code 0.

    >>> outcome_of("CANCELLED by 1000"), outcome_of("OUT_OF_MEMORY"), outcome_of("HYPERSPACE")
    (<Outcome.CANCELLED: 'cancelled'>, <Outcome.OOM: 'oom'>, <Outcome.UNKNOWN: 'unknown'>)
    """
    word = state.split(" ", maxsplit=1)[0].rstrip("+").upper()
    return _OUTCOMES.get(word, Outcome.UNKNOWN)


class JobState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job (or array task) as SLURM reports it; `state` is SLURM's own word.

    Times are seconds since 1970; None is what SLURM did not report. `starts` is when it expects a
    pending job to start; `minutes` is the time limit; `gpus` counts those of all nodes; `mem_gb` is
    the memory of each. `earlier_s` is the duration of each earlier run of a requeued job. `gone`:
    the controller has said that it does not know the job any more; `state` is then the last known
    one, or empty. `suspended_s` is how long its last run was suspended. `name` is the job's own.
    """

    job: str
    state: str
    reason: str = ""
    node: str = ""
    exit_code: str = ""
    submitted: float | None = None
    starts: float | None = None
    started: float | None = None
    ended: float | None = None
    elapsed_s: float | None = None
    minutes: float | None = None
    gpus: int | None = None
    mem_gb: float | None = None
    suspended_s: float | None = None
    earlier_s: tuple[float, ...] = ()
    gone: bool = False
    name: str = ""

    @property
    def outcome(self) -> Outcome:
        """The outcome that the state means for a cell without a record."""
        return outcome_of(self.state)

    @property
    def over(self) -> bool:
        """Whether the job has ended; an unknown state of a later SLURM does not count as an end."""
        return not (self.outcome.active or self.outcome is Outcome.UNKNOWN)

    @property
    def queued_s(self) -> float | None:
        """Seconds from submission to start; None before the start."""
        if self.submitted is None or self.started is None:
            return None
        return max(0.0, self.started - self.submitted)


SQUEUE_FORMAT = "%i|%T|%V|%S|%M|%l|%N|%r|%j"

_HEADER = "JOBID"
"""The header of squeue's `%i`, which it prints also if no job matches."""


def table_lines(text: str) -> list[str] | None:
    """Return the whole lines after the header of squeue's table; None if there is no header.

    Without its header an answer is not squeue's: an empty one does not mean that there are no jobs.
    A last line without its end is left out.

    >>> table_lines("JOBID\\n17_0\\n17_"), table_lines("JOBID\\n"), table_lines("")
    (['17_0'], [], None)
    """
    *whole, _ = text.split("\n")
    lines = [line.strip() for line in whole]
    for number, line in enumerate(lines):
        if line.partition("|")[0] == _HEADER:
            return lines[number + 1 :]
    return None


def parse_squeue(text: str) -> dict[str, JobState] | None:
    """Parse `squeue -r -t all -o SQUEUE_FORMAT` into jobs by id, ended ones too.

    None if the text is not squeue's table. A job that is not in it may have been cut off.

    >>> text = "JOBID|STATE|…\\n17_0|PENDING|1795279247|N/A|0:00|30:00||Resources\\n"
    >>> job = (parse_squeue(text) or {})["17_0"]
    >>> job.outcome, job.reason, job.minutes, job.starts
    (<Outcome.PENDING: 'pending'>, 'Resources', 30.0, None)
    """
    lines = table_lines(text)
    if lines is None:
        return None
    rows = (line.split("|", 8) for line in lines if line.count("|") >= 7)
    return {row[0]: _from_squeue(*row) for row in rows}


def is_unknown_job(job: str, text: str, complaint: str) -> bool:
    """Return whether scontrol, asked for a job and failing, says that there is no such job.

    Of an array it says so on stdout, from 26.05 on on stderr.

    >>> is_unknown_job("17_0", "Job 17_0 not found\\n", "")
    True
    >>> is_unknown_job("17_0", "", "slurm_load_jobs error: Unable to contact slurm controller")
    False
    """
    return UNKNOWN_ID in complaint or f"Job {job} not found" in text + complaint


UNKNOWN_ID = "Invalid job id"
"""The controller's error about an id that it does not know, or does not know any more."""


def _from_squeue(*row: str) -> JobState:
    job, state, submitted, start, elapsed, limit, node, reason, *name = row
    started = parse_time(start)
    elapsed_s, limit_s = parse_duration_s(elapsed), parse_duration_s(limit)
    in_queue = JobState(
        job=job,
        state=state,
        submitted=parse_time(submitted),
        node=node,
        reason=reason,
        name="".join(name),
        minutes=None if limit_s is None else limit_s / 60,
    )
    if in_queue.outcome is Outcome.PENDING:
        return replace(in_queue, starts=started)
    if not node:  # cancelled while it was pending
        return in_queue
    ended = None
    if in_queue.over and started is not None and elapsed_s is not None:
        ended = started + elapsed_s
    return replace(in_queue, started=started, ended=ended, elapsed_s=elapsed_s)


SACCT_FIELDS = (
    "JobID,State,ExitCode,NodeList,Submit,Start,End,ElapsedRaw,TimelimitRaw,AllocTRES,Suspended"
    ",JobName"
)


def parse_sacct(
    text: str, is_foreign: Callable[[JobState], bool] = lambda _: False
) -> dict[str, JobState]:
    """Parse `sacct -X -D -P -n -o SACCT_FIELDS` into jobs by id; the last line of an id counts.

    A requeued job has a line per run, of which the earlier ones only give `earlier_s`. The tasks of
    an array that never started are one row, `17_[2,4-6%1]`, which may still have tasks that have a
    row of their own. Lines of another job with the same id count only where there is no other.

    >>> row = "PENDING|0:0|None assigned|1795279247|Unknown|Unknown|0|30|"
    >>> parse_sacct(f"17_[2,4-5%1]|{row}\\n").keys()
    dict_keys(['17_2', '17_4', '17_5'])
    """
    rows = (
        line.strip().split("|") for line in text.splitlines() if line.count("|") >= 9
    )
    jobs: dict[str, JobState] = {}
    for row in rows:
        for job in _tasks(row[0]):
            state = _from_sacct(job, *row[1:10])
            if len(row) > 10:
                suspended_s = parse_duration_s(row[10])
                name = "|".join(row[11:])
                state = replace(state, suspended_s=suspended_s, name=name)
            run = jobs.get(job)
            if run is None or is_foreign(run):
                jobs[job] = state
            elif job == row[0] and not is_foreign(state):
                jobs[job] = after_run(run, state)
    return jobs


def after_run(run: JobState, later: JobState) -> JobState:
    """Return the later run of a requeued job, with the durations of the runs before it."""
    duration_s = () if run.elapsed_s is None else (run.elapsed_s,)
    return replace(later, earlier_s=(*run.earlier_s, *duration_s))


def _from_sacct(job: str, *row: str) -> JobState:
    state, exit_code, node, submitted, start, end, elapsed, limit, tres = row
    has_run = node != _NO_NODE  # else it is pending, or was cancelled while it was
    return JobState(
        job=job,
        state=state,
        exit_code=exit_code,
        node=node if has_run else "",
        submitted=parse_time(submitted),
        started=parse_time(start) if has_run else None,
        ended=parse_time(end),
        elapsed_s=whole_number(elapsed) if has_run else None,
        minutes=whole_number(limit),
        gpus=_gpus(tres),
        mem_gb=_memory_gb(tres),
    )


_NO_NODE = "None assigned"
"""sacct's NodeList of a job that never started."""

_CANCELLER = re.compile(r"CANCELLED by (\d+)")
"""sacct's State of a job that somebody cancelled."""

_MOST_TASKS = 4_000_001
"""SLURM's own limit of MaxArraySize."""

_PENDING_TASKS = re.compile(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]")


def _tasks(job: str) -> list[str]:
    """Return the tasks of `17_[2,4-6%1]`; any other id by itself."""
    match = _PENDING_TASKS.fullmatch(job)
    if not match:
        return [job]
    tasks: list[int] = []
    for first, _, last in (part.partition("-") for part in match[2].split(",")):
        start, end = whole_number(first), whole_number(last or first)
        if start is None or end is None or end - start > _MOST_TASKS:
            return [job]
        tasks += range(start, end + 1)
    return [f"{match[1]}_{task}" for task in tasks]


def parse_time(text: str) -> float | None:
    """Parse a time: seconds where SLURM respects SLURM_TIME_FORMAT=%s, else local time."""
    seconds = whole_number(text)
    if seconds is not None:
        return seconds if seconds < _YEAR_3000 else None
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):  # N/A, Unknown
        return None


_YEAR_3000 = 32_503_680_000
"""A time that no clock shows, in seconds since 1970."""


def _gpus(tres: str) -> int | None:
    """Return the number of GPUs in an AllocTRES; None if nothing is allocated.

    >>> _gpus("billing=2,cpu=2,gres/gpu:rtx8000=8,gres/gpu=8,mem=800M"), _gpus("cpu=1"), _gpus("")
    (8, 0, None)
    """
    if not tres:
        return None
    typed = 0
    for part in tres.split(","):
        name, _, amount = part.partition("=")
        if name == "gres/gpu":
            return whole_number(amount)
        if name.startswith("gres/gpu:"):
            typed += whole_number(amount) or 0
    return typed


_MEMORY = re.compile(r"\bmem=(\d{1,9}(?:\.\d+)?)([MGT])")
_NODES = re.compile(r"\bnode=(\d{1,6})")
_GB = {"M": 1 / 1024, "G": 1.0, "T": 1024.0}
"""GB of SLURM's units of memory."""


def _memory_gb(tres: str) -> float | None:
    """Return the memory per node in an AllocTRES, in GB; None if it has none.

    >>> _memory_gb("cpu=2,mem=96G,node=2"), _memory_gb("mem=512M"), _memory_gb("cpu=1")
    (48.0, 0.5, None)
    """
    memory, nodes = _MEMORY.search(tres), _NODES.search(tres)
    if memory is None:
        return None
    total_gb = float(memory[1]) * _GB[memory[2]]
    return total_gb / max(1, int(nodes[1])) if nodes else total_gb


def canceller(state: str) -> str:
    """Return who cancelled a job, by `CANCELLED by UID`; empty if SLURM does not say.

    >>> canceller("CANCELLED by 4294967294"), canceller("CANCELLED"), canceller("TIMEOUT")
    ('user 4294967294', '', '')
    """
    match = _CANCELLER.fullmatch(state)
    if not match:
        return ""
    uid = int(match[1])
    if uid == os.getuid():
        return "you"
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"user {uid}"


def is_slurm(job: str) -> bool:
    """Return whether a job is SLURM's; jobs on this machine are `local-…` and `here-…`.

    >>> is_slurm("17_0"), is_slurm("local-812-1700000000"), is_slurm("")
    (True, False, False)
    """
    return job[:1].isdigit()


def array_ids(jobs: Iterable[str]) -> list[str]:
    """Return the array ids of jobs, each once, in order: the arguments of squeue and sacct.

    >>> array_ids(["17_0", "17_1", "20"])
    ['17', '20']
    """
    return list(dict.fromkeys(job.split("_", maxsplit=1)[0] for job in jobs))
