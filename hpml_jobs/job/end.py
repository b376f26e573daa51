"""How an attempt ended: judged by what its workers left, and its record published."""

import re
import shutil
import signal

import msgspec

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.record import Attempt, Record
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.attempt import AttemptEnd, AttemptFolder, utc_now
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, tail, write_whole

_SIGNALLED = re.compile(r"rank\s*:\s*(\d+)[^\n]*\n[^\n]*exitcode\s*:\s*-(\d+)")
"""A rank that died of a signal, in torchrun's report."""

REPORT_BYTES = 20_000
"""torchrun's report is among so many last bytes of a log."""

_SECONDARY = (signal.SIGTERM, signal.SIGABRT)
"""Signals that ranks die of because another one failed: torchrun's own, and NCCL's watchdog's."""

_ECHO = re.compile(
    r"Connection (closed|reset) by peer|Broken pipe|remote process exited|Socket ?Timeout"
    r"|Dist(Backend|Network|Store)Error|killed by signal: Terminated",
    re.IGNORECASE,
)
"""What torch, NCCL and gloo raise on a rank because another rank is gone.

The clocks of nodes differ, so the time of an error alone does not tell which came first.
"""


def judge(
    attempt: Attempt, paths: AttemptFolder, code: int, *, stopped: bool, torchrun: bool = False
) -> AttemptEnd:
    """What became of the attempt; the first failing rank's words, or the signal that killed it.

    `code` is the exit code of torchrun, or of the one worker.
    """
    if code == 0:
        return AttemptEnd(attempt=attempt, outcome=Outcome.OK)
    errors = paths.rank_errors()
    own = next((error for error in errors if not _ECHO.search(error.reason)), None)
    if stopped and own is None:  # with an error of its own: SLURM ended the other nodes for it
        reason = "the job was told to stop (SIGTERM)"
        return AttemptEnd(attempt=attempt, outcome=Outcome.CANCELLED, reason=reason)
    if code < 0 and torchrun and not stopped:
        reason = f"torchrun killed by signal {-code}"
        return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=reason)
    killed = [(0, -code)] if code < 0 else killed_ranks(paths)
    primary = [(rank, number) for rank, number in killed if number not in _SECONDARY]
    if primary or (killed and not errors):  # a rank that was killed makes the others raise
        rank, number = (primary or killed)[0]
        guess = " (out of memory?)" if number == signal.SIGKILL else ""
        reason = f"rank {rank} killed by signal {number}{guess}"
        return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=reason, rank=rank)
    if errors:
        first = next((error for error in errors if error.oom), None) or own or errors[0]
        return AttemptEnd(
            attempt=attempt,
            outcome=Outcome.OOM if first.oom else Outcome.FAILED,
            reason=f"rank {first.rank}: {first.reason}",
            rank=first.rank,
            traceback=first.traceback,
        )
    reason = f"the workers ended with exit code {code}; the log says why"
    return AttemptEnd(attempt=attempt, outcome=Outcome.FAILED, reason=reason)


def close_before(folder: CellFolder, attempt: Attempt) -> None:
    """Give an end to the attempt before this one if it left none: killed with its node, perhaps."""
    before = folder.latest_attempt()
    if before is None or before.id == attempt.id or before.read_end() is not None:
        return
    about = before.read_about()
    if about is None:
        about = Attempt(id=before.id, job=before.job, restart=before.restart)
    reason = f"no last words; attempt {attempt.id} came after it"
    end = AttemptEnd(attempt=about, outcome=Outcome.UNKNOWN, reason=reason)
    write_whole(before.end, encode(end))


def over_its_limit(end: AttemptEnd, file: CellFile, elapsed_s: float) -> AttemptEnd:
    """A stopped cell that had its minutes was ended by its time limit."""
    minutes = file.shape.minutes if file.shape else None
    if end.outcome is not Outcome.CANCELLED or minutes is None or elapsed_s < minutes * 60:
        return end
    reason = f"not done within its {minutes} minutes (minutes=)"
    return msgspec.structs.replace(end, outcome=Outcome.TIMEOUT, reason=reason)


def killed_ranks(paths: AttemptFolder) -> list[tuple[int, int]]:
    """Rank and signal of every rank that died of one, by torchrun's report on its own node."""
    found = [pair for log in paths.logs() for pair in _SIGNALLED.findall(tail(log, REPORT_BYTES))]
    return [(int(rank), int(number)) for rank, number in found]


def publish(
    folder: CellFolder, file: CellFile, paths: AttemptFolder, end: AttemptEnd
) -> AttemptEnd:
    """Make the attempt's record the cell's, unless another attempt has taken over meanwhile."""
    if end.outcome is Outcome.OOM:
        record = Record(
            cell=file.cell,
            slug=folder.slug,
            attempt=msgspec.structs.replace(end.attempt, ended=utc_now()),
            outcome=Outcome.OOM,
            reason=end.reason,
        )
        write_whole(paths.record, encode(record))
    elif end.outcome is not Outcome.OK:
        return end
    try:
        content = paths.record.read_bytes()
        decode(content, str(paths.record))
    except OSError:
        reason = "the workers ended well but left no record"
        return msgspec.structs.replace(end, outcome=Outcome.MISSING, reason=reason)
    except InvalidRecordError as fault:
        return msgspec.structs.replace(end, outcome=Outcome.INVALID, reason=str(fault))
    current = folder.latest_attempt()
    if current is None or current.id != paths.id:
        reason = f"attempt {current.id if current else '?'} has taken over; this one's is not used"
        return msgspec.structs.replace(end, outcome=Outcome.CANCELLED, reason=reason)
    if finished(folder, file) is None:
        if paths.iterations.exists():
            fresh = folder.iterations.with_suffix(".new")
            shutil.copyfile(paths.iterations, fresh)
            fresh.replace(folder.iterations)
        write_whole(folder.record_json, content)
    return end


def finished(folder: CellFolder, file: CellFile) -> Record | None:
    """The valid record that this attempt must leave alone, if there is one."""
    try:
        record = folder.read_record()
    except InvalidRecordError:
        return None
    superseded = record is not None and record.attempt.id == file.supersedes
    return None if superseded else record
