"""SLURM job states, and the outcome of a cell that each means."""

from enum import StrEnum


class Outcome(StrEnum):
    """What became of a cell; before there is an outcome: waiting, running, missing, unknown."""

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_FAIL = "node_fail"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INVALID = "invalid"
    PENDING = "pending"
    RUNNING = "running"
    MISSING = "missing"
    UNKNOWN = "unknown"

    @property
    def active(self) -> bool:
        """Whether a job for the cell is still under way."""
        return self in (Outcome.PENDING, Outcome.RUNNING)

    @property
    def finished(self) -> bool:
        """Whether the cell has its answer: numbers, or that memory does not suffice."""
        return self in (Outcome.OK, Outcome.OOM)


_MEANING = {
    "BOOT_FAIL": Outcome.NODE_FAIL,
    "CANCELLED": Outcome.CANCELLED,
    "COMPLETED": Outcome.MISSING,  # the job ended well and yet left no record
    "COMPLETING": Outcome.RUNNING,
    "CONFIGURING": Outcome.PENDING,
    "DEADLINE": Outcome.TIMEOUT,
    "FAILED": Outcome.FAILED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "OUT_OF_MEMORY": Outcome.OOM,
    "PENDING": Outcome.PENDING,
    "PREEMPTED": Outcome.PREEMPTED,
    "REQUEUED": Outcome.PENDING,
    "REQUEUE_HOLD": Outcome.PENDING,
    "RESIZING": Outcome.RUNNING,
    "REVOKED": Outcome.CANCELLED,
    "RUNNING": Outcome.RUNNING,
    "SIGNALING": Outcome.RUNNING,
    "SPECIAL_EXIT": Outcome.PENDING,
    "STAGE_OUT": Outcome.RUNNING,
    "STOPPED": Outcome.RUNNING,
    "SUSPENDED": Outcome.RUNNING,
    "TIMEOUT": Outcome.TIMEOUT,
}


def outcome_of(state: str) -> Outcome:
    """What a SLURM state means for a cell without a record.

    The state is judged, never the exit code: OUT_OF_MEMORY can come with exit code 0.

    >>> outcome_of("CANCELLED by 1000"), outcome_of("OUT_OF_MEMORY"), outcome_of("HYPERSPACE")
    (<Outcome.CANCELLED: 'cancelled'>, <Outcome.OOM: 'oom'>, <Outcome.UNKNOWN: 'unknown'>)
    """
    word = state.split(" ", maxsplit=1)[0].rstrip("+").upper()
    return _MEANING.get(word, Outcome.UNKNOWN)
