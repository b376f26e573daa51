"""Outcomes of cells, and the outcome that each SLURM job state means."""

from enum import StrEnum

NO_SPACE_CODE = 28
"""Exit code of a job that cannot write its exit report, because the disk is full (ENOSPC)."""


class Outcome(StrEnum):
    """The outcome of a cell; until it has one: pending, running, missing or unknown."""

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
        """Whether the cell has a job that is pending or running."""
        return self in (Outcome.PENDING, Outcome.RUNNING)

    @property
    def may_run(self) -> bool:
        """Whether the cell's job is active, or may be: nothing is submitted beside it."""
        return self.active or self is Outcome.UNKNOWN

    @property
    def finished(self) -> bool:
        """Whether the cell has its result: numbers, or that memory does not suffice."""
        return self in (Outcome.OK, Outcome.OOM)


_OUTCOMES = {
    "BOOT_FAIL": Outcome.NODE_FAIL,
    "CANCELLED": Outcome.CANCELLED,
    "COMPLETED": Outcome.MISSING,  # the job succeeded but left no record
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
    """Return the outcome that a SLURM state means for a cell without a record.

    The state decides, never the exit code: OUT_OF_MEMORY can come with exit code 0.

    >>> outcome_of("CANCELLED by 1000"), outcome_of("OUT_OF_MEMORY"), outcome_of("HYPERSPACE")
    (<Outcome.CANCELLED: 'cancelled'>, <Outcome.OOM: 'oom'>, <Outcome.UNKNOWN: 'unknown'>)
    """
    word = state.split(" ", maxsplit=1)[0].rstrip("+").upper()
    return _OUTCOMES.get(word, Outcome.UNKNOWN)
