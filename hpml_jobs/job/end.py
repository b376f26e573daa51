"""The end of an attempt: its outcome, by what the workers wrote, and its record, published."""

import re
import signal

import msgspec

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.record import Attempt, Record
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.attempt import AttemptEnd, AttemptFolder, utc_now
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.reader import read_bytes, tail

_DIED_OF_SIGNAL = re.compile(r"rank\s*:\s*(\d+)[^\n]*\n[^\n]*exitcode\s*:\s*-(\d+)")
"""A rank that died of a signal, in torchrun's report."""

REPORT_BYTES = 20_000
"""torchrun's report is among so many last bytes of a log."""

_SECONDARY_SIGNALS = (signal.SIGTERM, signal.SIGABRT)
"""Signals that ranks die of because another one failed: torchrun's own, and NCCL's watchdog's."""

_SECONDARY_ERROR = re.compile(
    r"Connection (closed|reset) by peer|Broken pipe|remote process exited|Socket ?Timeout"
    r"|Dist(Backend|Network|Store)Error|killed by signal: Terminated",
    re.IGNORECASE,
)
"""What torch, NCCL and gloo raise on a rank because another rank is gone.

The clocks of nodes differ, so the times of errors alone do not show which came first.
"""


def judge(
    attempt: Attempt, paths: AttemptFolder, code: int, *, stopped: bool, torchrun: bool = False
) -> AttemptEnd:
    """Return the outcome of an attempt, with the first failing rank's error or signal.

    `code` is the exit code of torchrun, or of the one worker; `stopped`: the job received SIGTERM.
    """
    if code == 0:
        return AttemptEnd(attempt=attempt, outcome=Outcome.OK)
    errors = paths.rank_errors()
    primary = next((error for error in errors if not _SECONDARY_ERROR.search(error.reason)), None)
    if stopped and primary is None:  # with a primary error, SLURM stopped the other nodes for it
        return stopped_end(attempt, paths)
    if code < 0 and torchrun and not stopped:
        reason = f"torchrun killed by signal {-code}"
        return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=reason)
    killed = [(0, -code)] if code < 0 else killed_ranks(paths)
    killed_first = [(rank, number) for rank, number in killed if number not in _SECONDARY_SIGNALS]
    if killed_first or (killed and not errors):  # a rank that is killed makes the others raise
        rank, number = (killed_first or killed)[0]
        guess = " (out of memory?)" if number == signal.SIGKILL else ""
        reason = f"rank {rank} killed by signal {number}{guess}"
        if number == signal.SIGABRT and (activity := paths.activity()):  # NCCL's watchdog
            reason = f"{reason}: {activity}"
        return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=reason, rank=rank)
    if errors:
        first = next((error for error in errors if error.oom), None) or primary or errors[0]
        reason = f"rank {first.rank}: {first.reason}"
        if first.timed_out and (activity := paths.activity()):
            reason = f"a collective timed out: {activity}"
        return AttemptEnd(
            attempt=attempt,
            outcome=Outcome.OOM if first.oom else Outcome.FAILED,
            reason=reason,
            rank=first.rank,
            traceback=first.traceback,
        )
    reason = f"the workers ended with exit code {code}; see the log"
    return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=reason)


def stopped_end(attempt: Attempt, paths: AttemptFolder) -> AttemptEnd:
    """Return the end of an attempt that received SIGTERM, with where its ranks were."""
    return AttemptEnd(
        attempt=attempt,
        outcome=Outcome.CANCELLED,
        reason="received SIGTERM",
        activity=paths.activity(),
    )


def killed_ranks(paths: AttemptFolder) -> list[tuple[int, int]]:
    """Return rank and signal of each rank that died of one, by torchrun's report on its node."""
    reports = (tail(log, REPORT_BYTES) for log in paths.logs())
    matches = [match for report in reports for match in _DIED_OF_SIGNAL.findall(report)]
    return [(int(rank), int(number)) for rank, number in matches]


def apply_time_limit(end: AttemptEnd, file: CellFile, elapsed_s: float) -> AttemptEnd:
    """Return a timeout for a stopped cell that has used up its minutes, else the same end."""
    minutes = file.shape.minutes if file.shape else None
    if end.outcome is not Outcome.CANCELLED or minutes is None or elapsed_s < minutes * 60:
        return end
    reason = f"not finished within its {minutes} minutes (minutes=)"
    if end.activity:
        reason = f"{reason}: {end.activity}"
    return msgspec.structs.replace(end, outcome=Outcome.TIMEOUT, reason=reason)


def close_previous(folder: CellFolder, attempt: Attempt) -> None:
    """Write an exit report for the attempt before this one if it left none (its node may be lost).

    The outcome is unknown: nobody saw how it ended.
    """
    previous = folder.latest_attempt()
    if previous is None or previous.id == attempt.id or previous.read_end() is not None:
        return
    about = previous.read_about()
    if about is None:
        about = Attempt(id=previous.id, job=previous.job, restart=previous.restart)
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
        return msgspec.structs.replace(end, outcome=Outcome.MISSING, reason=reason)
    except InvalidRecordError as fault:
        return msgspec.structs.replace(end, outcome=Outcome.INVALID, reason=str(fault))
    current = folder.latest_attempt()
    if current is None or current.id != paths.id:
        reason = f"superseded by attempt {current.id if current else '?'}; its record is not used"
        return msgspec.structs.replace(end, outcome=Outcome.CANCELLED, reason=reason)
    if finished_record(folder, file) is None:
        if end.attempt.neighbours is not None:
            about = msgspec.structs.replace(record.attempt, neighbours=end.attempt.neighbours)
            content = encode(msgspec.structs.replace(record, attempt=about))
            write_whole(paths.record, content, parents=False)
        folder.publish(paths)
    return end


def _oom_record(folder: CellFolder, file: CellFile, end: AttemptEnd) -> Record:
    return Record(
        cell=file.cell,
        slug=folder.slug,
        attempt=msgspec.structs.replace(end.attempt, ended=utc_now()),
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
    is_superseded = record is not None and record.attempt.id == file.supersedes
    return None if is_superseded else record
