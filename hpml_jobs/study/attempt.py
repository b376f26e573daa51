"""One attempt of a cell: its folder, and what its workers and its wrapper said at the end."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hpml_jobs.core.measurements import Stage
from hpml_jobs.core.record import Attempt
from hpml_jobs.core.value import Value
from hpml_jobs.slurm.states import Outcome

SLURM_VARIABLE = "HPML_JOBS_SLURM"
"""The job's own SLURM_* variables as JSON; the real ones are taken out of the workers' way."""

HOST_VARIABLE = "HPML_JOBS_HOST"
"""The node's name as SLURM has it."""


def utc_now() -> str:
    """This moment, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat()


class AttemptEnd(Value, frozen=True, kw_only=True):
    """What a job's wrapper says at its end; it may never come, so SLURM's own word goes before."""

    attempt: Attempt
    outcome: Outcome
    reason: str | None = None
    rank: int | None = None
    traceback: str | None = None


class Progress(Value, frozen=True, kw_only=True):
    """What rank 0 says between two epochs, and inside the warm-up; zeros before its first words.

    `since` is when the epoch, or what `role` names instead, began (UTC, ISO 8601); `last_s` how
    long the last whole epoch took. `iteration` of `iterations` is told in the warm-up only.
    """

    epoch: int = 0
    epochs: int = 0
    role: Stage = Stage.STARTING
    since: str = ""
    last_s: float | None = None
    iteration: int = 0
    iterations: int = 0


class RankError(Value, frozen=True, kw_only=True):
    """What a worker writes when it raises."""

    rank: int
    oom: bool
    reason: str
    traceback: str
    time_ns: int


class AttemptFolder:
    """Paths of one attempt of a cell."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.id = root.name
        self.about = root / "attempt.json"
        self.record = root / "record.json"
        self.iterations = root / "iterations.npz"
        self.end = root / "end.json"
        self.progress = root / "progress.json"
        self.errors = root / "errors"
        self.ranks = root / "ranks"

    @property
    def job(self) -> str:
        """The job whose attempt it is."""
        return self.id.rpartition(".r")[0]

    @property
    def restart(self) -> int:
        """How often SLURM had started that job before."""
        count = self.id.rpartition(".r")[2]
        return int(count) if count.isdigit() else 0

    def trace_of(self, rank: int) -> Path:
        """The profiler's trace of one rank, where it is kept."""
        return self.root / f"trace-rank{rank}.json.gz"

    def log_of(self, node: int) -> Path:
        """What the workers of one node print."""
        return self.root / ("log.txt" if node == 0 else f"log-node{node}.txt")

    def logs(self) -> list[Path]:
        """The logs of all nodes, the first node's first."""
        return sorted(self.root.glob("log*.txt"), key=lambda path: (len(path.name), path.name))

    def read_about(self) -> Attempt | None:
        """Return what the wrapper noted at the beginning of the attempt, if it got so far."""
        try:
            return msgspec.json.decode(self.about.read_bytes(), type=Attempt)
        except (OSError, ValueError):
            return None

    def read_end(self) -> AttemptEnd | None:
        """What the wrapper said at its end, if it came to that."""
        try:
            return msgspec.json.decode(self.end.read_bytes(), type=AttemptEnd)
        except (OSError, ValueError):
            return None

    def read_progress(self) -> Progress | None:
        """Return the last report of rank 0; None before the first one."""
        try:
            return msgspec.json.decode(self.progress.read_bytes(), type=Progress)
        except (OSError, msgspec.MsgspecError):
            return None

    def rank_errors(self) -> list[RankError]:
        """What workers wrote when they raised, the first failing rank first."""
        found = []
        for path in sorted(self.errors.glob("rank*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=RankError))
            except (OSError, ValueError):
                continue  # a rank that died while writing: its neighbour's words are there
        return sorted(found, key=lambda error: error.time_ns)
