"""The end of an attempt: its outcome, by what the workers wrote, and its record, published."""

import re
import signal
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from hpml_jobs.core.cell import CellFile, Outcome
from hpml_jobs.core.gpus import node_fault
from hpml_jobs.core.record import Attempt, Record
from hpml_jobs.core.script import LOCAL_RANK, LOCAL_RANK_REMEDY, ScriptLauncher
from hpml_jobs.core.text import few
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.study.cell_folder import (
    REPORT_BYTES,
    AttemptEnd,
    AttemptFolder,
    CellFolder,
    RankError,
    utc_now,
)
from hpml_jobs.study.files import encode, read_bytes, tail, write_whole

_ENDED = re.compile(
    r"rank\s*:\s*(\d+) \(local_rank: (\d+)\)[^\n]*\n[^\n]*exitcode\s*:\s*(-?\d+)"
)
"""A rank that failed, in torchrun's report."""

_WATCHDOG = re.compile(
    r"\[(?:Rank |TC\]\[rank=)(\d+)\].{0,200}?"
    r"(?:SeqNum=(\d+), OpType=(\w+)(?:, NumelIn=(\d+))?.{0,200}? ran for"
    r"|Operation timed out after) (\d+) (?:milliseconds|ms)\b"
)
"""The line of NCCL's watchdog, which then aborts the process.

In torch: c10d's ProcessGroupNCCL.cpp; of ProcessGroupNCCL2, nccl2/WorkNCCL.cpp, without the kind of
the collective.
"""

_ABORTED = re.compile(r"Aborting process on rank \d+ due to error - (.+)")
"""Why the watchdog of ProcessGroupNCCL2 aborts the process, where no collective timed out."""

_UNSET = re.compile(
    r"KeyError: '(SLURM_\w+|(?:LOCAL_)?RANK|(?:LOCAL_)?WORLD_SIZE)'"
    r"|environment variable (\w+) expected, but not set"
)
"""A variable of a launcher that a script reads, in the words of Python and of torch."""

WATCHDOG_BYTES = 1_000_000
"""Its line is among so many last bytes of a log: long stacks of every rank follow it."""

_GUESSES: dict[int, str] = {
    signal.SIGKILL: " (out of memory?)",
    signal.SIGBUS: " (shared memory, /dev/shm, full?)",
}
"""The likely cause of a signal that nobody explains."""

_KEPT_OUTCOMES = (Outcome.FAILED, Outcome.OOM, Outcome.TIMEOUT)
"""Ends after which epochs that were measured before count."""

_SECONDARY_SIGNALS = (signal.SIGTERM, signal.SIGABRT)
"""Signals that ranks die of because another one failed: torchrun's own, and NCCL's watchdog's."""

_SECONDARY_ERROR = re.compile(
    r"Connection (closed|reset) by peer|Broken pipe|remote process exited|Socket ?Timeout"
    r"|Dist(Backend|Network|Store)Error|killed by signal: Terminated|reached monitoredBarrier"
    r"|NCCL operation (timed out|failed)|aborted after a previous error",
    re.IGNORECASE,
)
"""What torch, NCCL and gloo raise on a rank because another rank is gone.

The clocks of nodes differ, so the times of errors alone do not show which came first.
"""


def judge(
    attempt: Attempt, paths: AttemptFolder, code: int, *, stopped: bool, torchrun: bool
) -> AttemptEnd:
    """Return the outcome of an attempt, with the first failing rank's error or signal.

    `code` is the exit code of torchrun, or of the one worker; `stopped`: the job received SIGTERM.
    """
    if code == 0:
        return AttemptEnd(attempt=attempt, outcome=Outcome.OK)
    errors = _Errors(paths.rank_errors())
    # with a primary error, SLURM stopped the other nodes for it
    if stopped and errors.primary is None:
        return stopped_end(attempt, paths)
    if code < 0 and torchrun and not stopped:
        reason = f"torchrun killed by signal {-code}"
        return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=reason)
    ended = ended_ranks(paths)
    killed = [(0, -code)] if code < 0 and not torchrun else killed_ranks(ended)
    if first_killed := _killed_first(killed, errors):
        return _killed_end(attempt, paths, *first_killed)
    first = next(reversed(ended), None)  # the report ends with the first failure
    if errors.cause is not None or (errors.all and not _is_silent(first, errors)):
        return _raised_end(attempt, paths, errors)
    return _silent_end(attempt, paths, first, code)


class _Errors:
    """The errors that ranks have written, the first one first; `cause`: surely why others ended."""

    def __init__(self, errors: Sequence[RankError]) -> None:
        self.all = errors
        self.lost = next((error for error in errors if error.node_fault), None)
        self.oom = next((error for error in errors if error.oom), None)
        primary = (e for e in errors if not _SECONDARY_ERROR.search(e.reason))
        self.primary = next(primary, None)
        self.cause = self.lost or self.oom or self.primary


def _killed_first(
    killed: list[tuple[int, int]], errors: _Errors
) -> tuple[int, int] | None:
    """Return the rank and the signal that made the others raise; None if none did."""
    if errors.lost is not None:
        return None
    first = [pair for pair in killed if pair[1] not in _SECONDARY_SIGNALS]
    # torchrun ends the other ranks by SIGTERM where one has ended with an exit code
    if not errors.all and any(number != signal.SIGTERM for _, number in killed):
        first = first or killed
    return first[0] if first else None


def _is_silent(first: "EndedRank | None", errors: _Errors) -> bool:
    """Return whether the first rank that failed exited without writing an error."""
    if first is None or first.code <= 0:
        return False
    return first.rank not in {error.rank for error in errors.all}


def _silent_end(
    attempt: Attempt, paths: AttemptFolder, first: "EndedRank | None", code: int
) -> AttemptEnd:
    """Return the end of an attempt of which no error says why, with the end of its log."""
    name, local_rank = "the workers", None
    if first is not None:
        name, local_rank, code = f"rank {first.rank}", first.local_rank, first.code
    reason = f"{name} ended with exit code {code}"
    if words := paths.last_words(local_rank):
        reason += f": {words}"
    return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=reason)


def _killed_end(
    attempt: Attempt, paths: AttemptFolder, rank: int, number: int
) -> AttemptEnd:
    """Return the end of an attempt of which a signal killed a rank."""
    reason = f"rank {rank} killed by signal {number}{_GUESSES.get(number, '')}"
    if number == signal.SIGABRT:
        logs = _log_tails(paths)
        if fault := next(filter(None, map(node_fault, logs)), ""):
            # NCCL's watchdog met the error before the rank's own code
            reason += f": {fault}"
            return AttemptEnd(
                attempt=attempt, outcome=Outcome.NODE_FAIL, reason=reason, rank=rank
            )
        if aborted := _ABORTED.search("".join(logs)):
            reason += f": {aborted[1]}"
        reason = watchdog_text(logs) or reason
        if activity := paths.activity():
            reason += f": {activity}"
    return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=reason, rank=rank)


def _raised_end(attempt: Attempt, paths: AttemptFolder, errors: _Errors) -> AttemptEnd:
    """Return the end of an attempt of which a rank raised an error."""
    first = errors.cause or errors.all[0]
    reason = f"rank {first.rank}: {first.reason}"
    watchdog = watchdog_text(_log_tails(paths)) if errors.cause is None else ""
    if watchdog or first.timed_out:
        words = watchdog or "a collective timed out"
        activity = paths.activity()
        reason = f"{words}: {activity}" if activity else watchdog or reason
    return AttemptEnd(
        attempt=attempt,
        outcome=first.outcome,
        reason=reason,
        rank=first.rank,
        traceback=first.traceback,
        node=first.host or None if first.node_fault else None,
    )


def _log_tails(paths: AttemptFolder) -> list[str]:
    return [tail(log, WATCHDOG_BYTES) for log in paths.logs()]


def watchdog_text(logs: Iterable[str]) -> str:
    """Return which collective NCCL's watchdog gave up, by the logs; empty if it did not."""
    lines = [line for text in logs for line in _WATCHDOG.findall(text)]
    if not lines:
        return ""
    _, number, kind, elements, waited_ms = lines[0]
    ranks = sorted({int(line[0]) for line in lines if line[1] == number})
    where = f" in {kind}" if kind else ""
    if elements:
        where += f" of {int(elements):,} elements"
    word = "rank" if len(ranks) == 1 else "ranks"
    waiting = f"{word} {few(map(str, ranks))} waited {int(waited_ms) / 1e3:.0f} s"
    return f"a collective timed out: {waiting}{where}"


def stopped_end(attempt: Attempt, paths: AttemptFolder) -> AttemptEnd:
    """Return the end of an attempt that received SIGTERM, with where its ranks were."""
    return AttemptEnd(
        attempt=attempt,
        outcome=Outcome.CANCELLED,
        reason="stopped by SIGTERM, as by Ctrl-C or scancel",
        activity=paths.activity(),
    )


class EndedRank(NamedTuple):
    """A rank that failed: its exit code is negative if it died of a signal."""

    rank: int
    local_rank: int
    code: int


def ended_ranks(paths: AttemptFolder) -> list[EndedRank]:
    """Return the ranks that failed, by torchrun's report on their node."""
    reports = (tail(log, REPORT_BYTES) for log in paths.logs())
    return [
        EndedRank(*map(int, numbers))
        for text in reports
        for numbers in _ENDED.findall(text)
    ]


def killed_ranks(ranks: Iterable[EndedRank]) -> list[tuple[int, int]]:
    """Return rank and signal of each rank that died of one."""
    return [(ended.rank, -ended.code) for ended in ranks if ended.code < 0]


def apply_time_limit(end: AttemptEnd, file: CellFile, elapsed_s: float) -> AttemptEnd:
    """Return a timeout for a stopped cell that has used up its minutes, else the same end."""
    minutes = file.shape.minutes if file.shape else None
    if (
        end.outcome is not Outcome.CANCELLED
        or minutes is None
        or elapsed_s < minutes * 60
    ):
        return end
    reason = f"not finished within its {minutes} minutes (minutes=)"
    if end.activity:
        reason = f"{reason}: {end.activity}"
    return replace(end, outcome=Outcome.TIMEOUT, reason=reason)


def with_next_step(end: AttemptEnd, file: CellFile) -> AttemptEnd:
    """Return the end of a script that lacks what its launcher does not give with what does."""
    script, reason = file.cell.script, end.reason or ""
    if end.outcome is not Outcome.FAILED or script is None:
        return end
    variable = _UNSET.search(reason)
    if variable:
        name = variable[1] or variable[2]
        launcher = (
            ScriptLauncher.SRUN
            if name.startswith("SLURM_")
            else ScriptLauncher.TORCHRUN
        )
        remedy = f"use launcher={launcher}, which sets it"
        if script.launcher is launcher:
            return end
    elif LOCAL_RANK.search(reason):
        remedy = LOCAL_RANK_REMEDY
    else:
        return end
    return replace(end, reason=f"{reason}: {remedy}")


def keep_measured(end: AttemptEnd, paths: AttemptFolder) -> AttemptEnd:
    """Return an ok end if the workers failed only after they had written the measured epochs.

    The record names the reason. A cell that was cancelled, and one on a faulty node, is to be
    measured again.
    """
    if end.outcome not in _KEPT_OUTCOMES:
        return end
    try:
        record = decode(read_bytes(paths.record), str(paths.record))
    except (OSError, InvalidRecordError):
        return end
    _note_in_record(paths, record, incomplete=end.reason)
    return replace(end, outcome=Outcome.OK)


def _note_in_record(paths: AttemptFolder, record: Record, **facts: Any) -> None:
    """Write the record of an attempt again, with more facts about the attempt."""
    attempt = replace(record.attempt, **facts)
    content = encode(replace(record, attempt=attempt))
    write_whole(paths.record, content, parents=False)


def close_previous(folder: CellFolder, attempt: Attempt) -> None:
    """Write an exit report for the attempt before this one if it left none (its node may be lost).

    The outcome is unknown: nobody saw how it ended.
    """
    previous = folder.latest_attempt()
    if previous is None or previous.id == attempt.id or previous.read_end() is not None:
        return
    about = previous.read_about() or Attempt(
        id=previous.id, job=previous.job, restart=previous.restart
    )
    reason = f"ended without an exit report, before attempt {attempt.id}"
    end = AttemptEnd(attempt=about, outcome=Outcome.UNKNOWN, reason=reason)
    write_whole(previous.end, encode(end), parents=False)


def publish(
    folder: CellFolder, file: CellFile, paths: AttemptFolder, end: AttemptEnd
) -> AttemptEnd:
    """Make the attempt's record the cell's record, and return the end of the attempt.

    An attempt that ran out of memory gets a record without numbers. Nothing is published if the
    record is invalid, if a later attempt has begun, or if the cell has a valid record already.
    """
    if not end.outcome.finished:
        return end
    if end.outcome is Outcome.OOM:
        write_whole(paths.record, encode(_oom_record(folder, file, end)), parents=False)
    try:
        record = decode(read_bytes(paths.record), str(paths.record))
    except OSError:
        reason = "the workers ended with exit code 0 but wrote no record"
        return replace(end, outcome=Outcome.MISSING, reason=reason)
    except InvalidRecordError as fault:
        return replace(end, outcome=Outcome.INVALID, reason=str(fault))
    current = folder.latest_attempt()
    if current is None or current.id != paths.id:
        latest = current and current.id
        reason = f"superseded by attempt {latest}; its record is not used"
        return replace(end, outcome=Outcome.CANCELLED, reason=reason)
    if finished_record(folder, file) is None:
        if end.attempt.neighbours is not None:
            _note_in_record(paths, record, neighbours=end.attempt.neighbours)
        folder.publish(paths)
    return end


def _oom_record(folder: CellFolder, file: CellFile, end: AttemptEnd) -> Record:
    return Record(
        cell=file.cell,
        slug=folder.slug,
        attempt=replace(end.attempt, ended=utc_now()),
        outcome=Outcome.OOM,
        reason=end.reason,
    )


def finished_record(folder: CellFolder, file: CellFile) -> Record | None:
    """Return the cell's valid record; None if there is none, or if this attempt is to replace it.

    A rerun names the attempt whose record it replaces (`CellFile.supersedes`).
    """
    try:
        record = folder.read_record()
    except InvalidRecordError:
        return None
    return None if record and record.attempt.id == file.supersedes else record
