"""Jobs as SLURM tells them: squeue's and sacct's texts as values, and who cancelled one."""

import os
import pwd
import re
from collections.abc import Iterable
from datetime import datetime

import msgspec

from hpml_jobs.slurm.states import Outcome, outcome_of


class JobState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job (an array task) as SLURM tells it; `state` in SLURM's own words.

    Moments are seconds since 1970; None is what SLURM did not tell. `starts` is when it expects a
    waiting job to start; `minutes` is the time limit; `gpus` are those of all nodes together.
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

    @property
    def outcome(self) -> Outcome:
        """What the state means for a cell without a record."""
        return outcome_of(self.state)

    @property
    def over(self) -> bool:
        """Whether the job has ended; a state of a later SLURM is not known to be an end."""
        return not (self.outcome.active or self.outcome is Outcome.UNKNOWN)

    @property
    def queued_s(self) -> float | None:
        """Seconds from submission to start; None before the start."""
        if self.submitted is None or self.started is None:
            return None
        return max(0.0, self.started - self.submitted)


SQUEUE_FORMAT = "%i|%T|%V|%S|%M|%l|%N|%r"


def parse_squeue(text: str) -> dict[str, JobState]:
    """Jobs by id from `squeue -h -r -t all -o '%i|%T|%V|%S|%M|%l|%N|%r'`, ended ones too.

    >>> job = parse_squeue("17_0|PENDING|1795279247|N/A|0:00|30:00||Resources\\n")["17_0"]
    >>> job.outcome, job.reason, job.minutes, job.starts
    (<Outcome.PENDING: 'waiting'>, 'Resources', 30.0, None)
    """
    rows = (line.strip().split("|", 7) for line in text.splitlines() if line.count("|") >= 7)
    return {row[0]: _queued(*row) for row in rows}


def _queued(*row: str) -> JobState:
    job, state, submitted, start, elapsed, limit, node, reason = row
    waits = outcome_of(state) is Outcome.PENDING
    started, elapsed_s, limit_s = _moment(start), span_s(elapsed), span_s(limit)
    told = JobState(job=job, state=state, submitted=_moment(submitted), node=node, reason=reason)
    minutes = None if limit_s is None else limit_s / 60
    if waits:
        return msgspec.structs.replace(told, starts=started, minutes=minutes)
    if not node:  # cancelled while it waited
        return msgspec.structs.replace(told, minutes=minutes)
    known = started is not None and elapsed_s is not None and told.over
    ended = (started or 0) + (elapsed_s or 0) if known else None
    return msgspec.structs.replace(
        told, started=started, ended=ended, elapsed_s=elapsed_s, minutes=minutes
    )


SACCT_FIELDS = "JobID,State,ExitCode,NodeList,Submit,Start,End,ElapsedRaw,TimelimitRaw,AllocTRES"


def parse_sacct(text: str) -> dict[str, JobState]:
    """Jobs by id from `sacct -X -P -n -o` and SACCT_FIELDS; an id's last line counts.

    Tasks of an array that never started are one row, `17_[2,4-6%1]`.

    >>> row = "PENDING|0:0|None assigned|1795279247|Unknown|Unknown|0|30|"
    >>> parse_sacct(f"17_[2,4-5%1]|{row}\\n").keys()
    dict_keys(['17_2', '17_4', '17_5'])
    """
    rows = (line.strip().split("|") for line in text.splitlines() if line.count("|") >= 9)
    return {job: _accounted(job, *row[1:10]) for row in rows for job in _tasks(row[0])}


def _accounted(job: str, *row: str) -> JobState:
    state, exit_code, node, submitted, start, end, elapsed, limit, tres = row
    ran = node != _NO_NODE  # else it waits, or was cancelled while it did
    return JobState(
        job=job,
        state=state,
        exit_code=exit_code,
        node=node if ran else "",
        submitted=_moment(submitted),
        started=_moment(start) if ran else None,
        ended=_moment(end),
        elapsed_s=float(elapsed) if ran and elapsed.isdigit() else None,
        minutes=float(limit) if limit.isdigit() else None,
        gpus=_gpus(tres),
    )


_NO_NODE = "None assigned"
"""sacct's NodeList of a job that never started."""

_CANCELLER = re.compile(r"CANCELLED by (\d+)")
"""sacct's State of a job that somebody cancelled."""

_WAITING_TASKS = re.compile(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]")


def _tasks(job: str) -> list[str]:
    """The single tasks of `17_[2,4-6%1]`; any other id is itself."""
    found = _WAITING_TASKS.fullmatch(job)
    if not found:
        return [job]
    spans = [part.partition("-") for part in found[2].split(",")]
    numbers = [n for a, _, b in spans for n in range(int(a), int(b or a) + 1)]
    return [f"{found[1]}_{number}" for number in numbers]


def _moment(text: str) -> float | None:
    """A time as SLURM prints it: seconds where it heeds SLURM_TIME_FORMAT=%s, else local time."""
    if text.isdigit():
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:  # N/A, Unknown
        return None


def span_s(text: str) -> float | None:
    """Seconds of `1-02:03:04`, `1:02:03` or `2:03`; None for UNLIMITED and the like.

    >>> span_s("1-02:03:04"), span_s("2:03"), span_s("UNLIMITED")
    (93784.0, 123.0, None)
    """
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in [*parts, days or "0"]):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(int(days or 0) * 86_400 + seconds)


def _gpus(tres: str) -> int | None:
    """GPUs in an AllocTRES; None where nothing is allocated.

    >>> _gpus("billing=2,cpu=2,gres/gpu:rtx8000=8,gres/gpu=8,mem=800M"), _gpus("cpu=1"), _gpus("")
    (8, 0, None)
    """
    if not tres:
        return None
    amounts = dict(part.partition("=")[::2] for part in tres.split(","))
    kinds = sum(int(amount) for name, amount in amounts.items() if name.startswith("gres/gpu:"))
    return int(amounts.get("gres/gpu", kinds))


def canceller(state: str) -> str:
    """Who cancelled a job, by `CANCELLED by UID`; empty where SLURM does not tell.

    >>> canceller("CANCELLED by 4294967294"), canceller("CANCELLED"), canceller("TIMEOUT")
    ('user 4294967294', '', '')
    """
    found = _CANCELLER.fullmatch(state)
    if not found:
        return ""
    uid = int(found[1])
    if uid == os.getuid():
        return "you"
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"user {uid}"


def is_slurm(job: str) -> bool:
    """Whether a job is SLURM's; jobs on one's own machine are `local-…` and `here-…`.

    >>> is_slurm("17_0"), is_slurm("local-812-1700000000"), is_slurm("")
    (True, False, False)
    """
    return job[:1].isdigit()


def array_ids(jobs: Iterable[str]) -> list[str]:
    """The array ids of jobs, each once, in order: what squeue and sacct are asked for.

    >>> array_ids(["17_0", "17_1", "20"])
    ['17', '20']
    """
    return list(dict.fromkeys(job.split("_", maxsplit=1)[0] for job in jobs))
