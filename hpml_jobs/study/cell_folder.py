"""The folder of one cell: its paths, and the readers of its files."""

import contextlib
import os
import re
import shutil
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell, CellFile, Outcome, decode_cell_file
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import Stage
from hpml_jobs.core.record import Attempt, Record
from hpml_jobs.core.stack_files import HOST_VARIABLE
from hpml_jobs.core.stacks import (
    Position,
    positions_text,
    rank_position,
    traceback_position,
)
from hpml_jobs.core.text import last_error, natural_key, whole_number
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.core.value import Value
from hpml_jobs.study.files import (
    LOG_BYTES,
    NAME_BYTES,
    PathInFolder,
    encode,
    is_name,
    read_bytes,
    read_valid,
    reading,
    tail,
    write_whole,
)

SLURM_VARIABLE = "HPML_JOBS_SLURM"
"""Environment variable with the job's SLURM_* variables as JSON; workers do not get these."""

OBSERVE_VARIABLE = "HPML_JOBS_OBSERVE"
"""Environment variable with the folder of the attempt, in which a script is measured."""

JOB_STARTED_VARIABLE = "HPML_JOBS_JOB_STARTED"
"""Environment variable with the start of the job's wrapper, in seconds since boot."""


def host_name() -> str:
    """Return SLURM's name of this node, which the job's wrapper passes on; else the system's."""
    return os.environ.get(HOST_VARIABLE) or socket.gethostname()


def utc_now() -> str:
    """Return the present time: UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat()


REPORT_BYTES = 20_000
"""torchrun's report is among so many last bytes of a log."""

_PROCESS = re.compile(r"process(\d{1,9})-(\d{1,9})-(.*)")

LAST_WORDS = 200
"""Characters of the end of a log in a reason."""


class AttemptEnd(Value, frozen=True, kw_only=True):
    """The exit report of the wrapper. It may be missing, and SLURM's state has priority over it.

    `activity` says where the ranks were when the job was stopped. `node` is the node at fault.
    """

    attempt: Attempt
    outcome: Outcome
    reason: str | None = None
    rank: int | None = None
    traceback: str | None = None
    activity: str | None = None
    node: str | None = None


class Progress(Value, frozen=True, kw_only=True):
    """The progress that rank 0 writes between epochs and in the warm-up; zeros before the first.

    `since` is when the epoch, or the step that `role` names, began (UTC, ISO 8601); `last_s` is the
    duration of the last whole epoch. `iteration` of `iterations` is written in the warm-up only.
    """

    epoch: int = 0
    epochs: int = 0
    role: Stage = Stage.STARTING
    since: str = ""
    last_s: float | None = None
    iteration: int = 0
    iterations: int = 0


class RankError(Value, frozen=True, kw_only=True):
    """The error that a worker writes when it raises.

    `timed_out`: a collective waited in vain for another rank. `node_fault`: the node `host` is the
    cause, not the cell.
    """

    rank: int
    oom: bool
    timed_out: bool = False
    node_fault: bool = False
    host: str = ""
    reason: str
    traceback: str
    time_ns: int

    @property
    def outcome(self) -> Outcome:
        """The outcome of an attempt that ended by it."""
        if self.node_fault:
            return Outcome.NODE_FAIL
        return Outcome.OOM if self.oom else Outcome.FAILED


class AttemptFolder:
    """Paths of one attempt of a cell."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.id = root.name

    about = PathInFolder("attempt.json")
    record = PathInFolder("record.json")
    iterations = PathInFolder("iterations.npz")
    end = PathInFolder("end.json")
    reserve = PathInFolder("reserve")  # room on the disk for end.json
    progress = PathInFolder("progress.json")
    errors = PathInFolder("errors")
    ranks = PathInFolder("ranks")
    stacks = PathInFolder("stacks")
    observed = PathInFolder("observed")  # what the processes of a script measured
    files = PathInFolder("files")  # {folder} in the arguments of a script

    @property
    def cell_folder(self) -> Path:
        """The folder of its cell."""
        return self.root.parent.parent

    @property
    def job(self) -> str:
        """The job that the attempt belongs to."""
        return self.id.rpartition(".r")[0]

    @property
    def restart(self) -> int:
        """Return how often SLURM had restarted that job."""
        return whole_number(self.id.rpartition(".r")[2]) or 0

    def stacks_of(self, rank: int) -> Path:
        """Return the path of the Python stacks of one rank and its DataLoader workers."""
        return self.stacks / f"rank{rank}.txt"

    def trace_of(self, rank: int) -> Path:
        """Return the path of one rank's profiler trace."""
        return self.root / f"trace-rank{rank}.json.gz"

    def log_of(self, node: int) -> Path:
        """Return the path of the log of one node's workers."""
        return self.root / ("log.txt" if node == 0 else f"log-node{node}.txt")

    def samples_of(self, node: int) -> Path:
        """Return the path of the readings of one node's GPUs, for the first node."""
        return self.root / f"card-samples-node{node}.json"

    def logs(self) -> list[Path]:
        """Return the existing logs, the first node's first."""
        return sorted(
            self.root.glob("log*.txt"), key=lambda path: (len(path.name), path.name)
        )

    def read_about(self) -> Attempt | None:
        """Return the attempt as the wrapper noted it at the beginning; None if it did not."""
        return read_valid(self.about, Attempt)

    def read_end(self) -> AttemptEnd | None:
        """Return the exit report; None if the attempt has none, or none that can be read."""
        return read_valid(self.end, AttemptEnd)

    def write_end(self, end: AttemptEnd) -> AttemptEnd:
        """Write the exit report with the time of now, and return it."""
        attempt = msgspec.structs.replace(end.attempt, ended=utc_now())
        end = msgspec.structs.replace(end, attempt=attempt)
        write_whole(self.end, encode(end), parents=False)
        return end

    def read_progress(self) -> Progress | None:
        """Return the last report of rank 0; None before the first one."""
        return read_valid(self.progress, Progress)

    def rank_errors(self) -> list[RankError]:
        """Return the errors of workers that raised, the first failing rank first."""
        paths = sorted(self.errors.glob("rank*.json"))
        errors = [read_valid(path, RankError) for path in paths]
        # of a rank that died while writing there is none; another rank has the reason
        return sorted(filter(None, errors), key=lambda error: error.time_ns)

    def stack_files(self) -> list[Path]:
        """Return the files with stacks, those of ranks in order first."""
        paths = (path for path in self.stacks.glob("*.txt") if path.stat().st_size)
        return sorted(
            paths, key=lambda path: (path.name[:1] != "r", natural_key(path.name))
        )

    def remove_empty_stacks(self) -> None:
        """Remove the files of processes that were not asked for their stacks."""
        for path in self.stacks.glob("*.txt"):
            if not path.stat().st_size:
                path.unlink()
        with contextlib.suppress(OSError):  # not empty, or never made
            self.stacks.rmdir()

    def remove_copies(self) -> None:
        """Remove what each rank printed: the log of its node has the same lines."""
        shutil.rmtree(self.ranks, ignore_errors=True)

    def last_words(self, local_rank: int | None = None) -> str:
        """Return what a rank, or else the worker, wrote last before it ended; cut if long."""
        number = "*" if local_rank is None else local_rank
        logs = (
            sorted(self.ranks.glob(f"*/attempt_*/{number}/stderr.log")) or self.logs()
        )
        for log in logs:
            if words := last_error(tail(log, REPORT_BYTES)):
                return words if len(words) <= LAST_WORDS else f"{words[:LAST_WORDS]}…"
        return ""

    def activity(self) -> str | None:
        """Return where each rank was, by the stacks that it wrote or its error; None if unknown.

        Of processes that have no rank, those are left out that others were started by.
        """
        positions = {
            error.rank: traceback_position(error.traceback)
            for error in self.rank_errors()
        }
        without_rank: dict[ScriptProcess, Position] = {}
        for path in self.stack_files():
            position = rank_position(tail(path, LOG_BYTES))
            rank = whole_number(path.stem.removeprefix("rank"))
            if rank is not None:
                positions.setdefault(rank, position)
            elif position and (process := ScriptProcess.of(path)):
                without_rank[process] = position
        ranks = positions_text(
            {rank: place for rank, place in positions.items() if place}
        )
        texts = _texts_of_processes(without_rank, has_ranks=bool(ranks))
        return "; ".join(filter(None, (ranks, *texts))) or None


def _texts_of_processes(
    places: Mapping["ScriptProcess", Position], *, has_ranks: bool
) -> list[str]:
    """Return where processes without a rank were, the most suspicious first."""
    pids = {(process.host, process.pid) for process in places}
    started = [process for process in places if (process.host, process.parent) in pids]
    processes = started if started or has_ranks else [*places]
    by_suspicion = sorted(processes, key=lambda process: places[process])
    return [f"{process} was {places[process].text}" for process in by_suspicion]


class ScriptProcess(NamedTuple):
    """A process of a script that has no rank, or none yet, by the name of its file of stacks."""

    host: str
    pid: int
    parent: int

    @classmethod
    def of(cls, path: Path) -> "ScriptProcess | None":
        """Return the process of `process<PID>-<PARENT>-<HOST>.txt`; None of another file."""
        match = _PROCESS.fullmatch(path.stem)
        return cls(match[3], int(match[1]), int(match[2])) if match else None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class CellFolder:
    """Paths of one cell of a study."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.slug = root.name
        self._own_cell: Cell | None = None

    cell_json = PathInFolder("cell.json")
    record_json = PathInFolder("record.json")
    iterations = PathInFolder("iterations.npz")
    attempts = PathInFolder("attempts")
    current = PathInFolder("attempts/current")

    def read(self) -> CellFile:
        """Read and check the cell's file.

        Raises:
            HpmlError: it cannot be read, or is not valid.
        """
        with reading(self.cell_json):
            return decode_cell_file(read_bytes(self.cell_json), str(self.cell_json))

    def is_of(self, cell: Cell) -> bool:
        """Return whether the folder is this cell's, by its name.

        The cell's file and its record have the same cell, whose hash is computed once.
        """
        if cell != self._own_cell and cell.has_slug(self.slug):
            self._own_cell = cell
        return cell == self._own_cell

    def digest(self) -> str | None:
        """Return the identity of the cell that has this name; None if the file does not say it.

        A file that describes another cell than its folder's name was edited.
        """
        try:
            cell = self.read().cell
        except HpmlError:
            return None
        return cell.digest if self.is_of(cell) else None

    def read_record(self) -> Record | None:
        """Read and check the cell's record; None if it does not exist.

        Raises:
            InvalidRecordError: it must not be used, or is not what its attempt has measured.
        """
        try:
            text = read_bytes(self.record_json)
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise InvalidRecordError(f"{self.record_json}: {fault.strerror}") from fault
        record = self._decode(text, self.record_json)
        self._compare_with_attempt(text, record)
        return record

    def read_record_of(self, attempt: AttemptFolder) -> Record:
        """Read and check the record that an attempt has measured.

        Raises:
            InvalidRecordError: it must not be used, or is another attempt's.
            OSError: there is none that can be read.
        """
        record = self._decode(read_bytes(attempt.record), attempt.record)
        if record.attempt.id != attempt.id:
            raise InvalidRecordError(
                f"{attempt.record} is of attempt {record.attempt.id}"
            )
        return record

    def _decode(self, text: bytes, path: Path) -> Record:
        record = decode(text, str(path))
        if record.slug != self.slug or not self.is_of(record.cell):
            raise InvalidRecordError(f"{path} is the record of {record.slug}")
        return record

    def _compare_with_attempt(self, text: bytes, record: Record) -> None:
        """Refuse a record that no attempt of the cell wrote, or that was changed afterwards."""
        if record.imported is not None:
            return
        attempt = self.attempt(record.attempt.id)
        if not is_name(record.attempt.id) or not attempt.root.is_dir():
            raise InvalidRecordError(
                f"{self.record_json} is of attempt {record.attempt.id}, which this cell does not "
                f"have: restore {attempt.root}, or measure the cell again"
            )
        try:
            if read_bytes(attempt.record) == text:
                return
            change = "" if record == self.read_record_of(attempt) else "it was changed"
            remedy = f"copy {attempt.record} over it, or "
        # the attempt has no copy
        except (OSError, InvalidRecordError):
            about, started = attempt.read_about(), record.attempt.started
            is_other = about is not None and about.started and about.started != started
            change, remedy = f"it started at {started}" if is_other else "", ""
        if change:
            raise InvalidRecordError(
                f"{self.record_json} is not what attempt {attempt.id} measured: {change}; {remedy}"
                "measure the cell again"
            )

    def publish(self, attempt: AttemptFolder) -> None:
        """Copy an attempt's arrays and record into the cell's folder.

        Raises:
            OSError: a file cannot be read or written.
        """
        content = read_bytes(attempt.record)
        if attempt.iterations.exists():
            copy = self.iterations.with_suffix(".new")
            shutil.copyfile(attempt.iterations, copy)
            copy.replace(self.iterations)
        # last: a record has its arrays beside it
        write_whole(self.record_json, content, parents=False)

    def attempt(self, attempt_id: str) -> AttemptFolder:
        """Return the folder of one attempt."""
        return AttemptFolder(self.attempts / attempt_id)

    def latest_attempt(self) -> AttemptFolder | None:
        """Return the attempt that began last; None before the first, or if `current` names none."""
        try:
            attempt_id = read_bytes(self.current, NAME_BYTES).decode().strip()
        except (OSError, ValueError):
            return None
        return self.attempt(attempt_id) if is_name(attempt_id) else None

    def last_end(self) -> AttemptEnd | None:
        """Return the exit report of the latest attempt; None if there is none."""
        latest = self.latest_attempt()
        return latest.read_end() if latest else None
