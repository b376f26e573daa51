"""A snapshot of a cell's folder, each file read and decoded once; the state that is made of it."""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hpml_jobs.core.cell import CellFile, Outcome
from hpml_jobs.core.check_result import CheckResult
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.record import Attempt, Record
from hpml_jobs.core.text import unix_time
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.core.value import Value
from hpml_jobs.study.cell_folder import AttemptEnd, AttemptFolder, CellFolder
from hpml_jobs.study.manifest import History
from hpml_jobs.study.study import Study, natural

T = TypeVar("T")


@dataclass(frozen=True)
class AttemptSnapshot:
    """An attempt, the report of its exit, and what its record says of it."""

    folder: AttemptFolder
    end: AttemptEnd | None = None
    recorded: Attempt | None = None

    @cached_property
    def began(self) -> float | None:
        """When it began by the clock of its node, in seconds since 1970; None if unknown."""
        about = self.recorded or self.folder.read_about()
        return unix_time(about.started) if about else None

    @property
    def ended(self) -> float | None:
        """When it ended, in seconds since 1970; None before, and if unknown.

        Exit reports of versions before 0.10 have no time: then it is that of the record.
        """
        if self.end is None:
            return None
        recorded = self.recorded.ended if self.recorded else ""
        return unix_time(self.end.attempt.ended or recorded)


class FolderSnapshot(NamedTuple):
    """A cell's file and record, or why they cannot be used, and its latest attempt.

    `file_fault` and `record_fault` are empty where the file is valid; a record that does not exist
    is not a fault. `is_gone`: the manifest names the cell, and its folder does not exist; then
    `file` is the manifest's copy. `source` is the attempt that `record` was read from, because
    record.json is lost.
    """

    folder: CellFolder
    file: CellFile | None = None
    file_fault: str = ""
    record: Record | None = None
    record_fault: str = ""
    latest: AttemptSnapshot | None = None
    is_gone: bool = False
    source: AttemptFolder | None = None


class RecordCache:
    """Cell files and records that were decoded before; a file that was replaced is read again."""

    def __init__(self) -> None:
        self._values: dict[Path, tuple[tuple[int, int, int] | None, Any]] = {}

    def read(self, path: Path, decode: Callable[[], T]) -> T:
        """Return the file's value; decode it where the file is new or was replaced.

        A decoding that fails is not remembered: the reason may be the file system.
        """
        identity = None
        with contextlib.suppress(OSError):
            status = path.stat()
            identity = (status.st_mtime_ns, status.st_ino, status.st_size)
        value: T
        cached_identity, value = self._values.get(path, (None, None))
        if identity is None or cached_identity != identity:
            value = decode()
            self._values[path] = (identity, value)
        return value


def read_study(
    study: Study, history: History, cache: RecordCache | None = None
) -> list[FolderSnapshot]:
    """Read every cell of a study, also those that only the manifest names."""
    here = study.cells()
    slugs = {folder.slug for folder in here}
    gone = [
        FolderSnapshot(study.cell(slug), file=history.copy_of(slug), is_gone=True)
        for slug in history.cells
        if slug not in slugs
    ]
    snapshots = [*read_snapshots(here, cache), *gone]
    return sorted(snapshots, key=lambda snapshot: natural(snapshot.folder.slug))


def restore_records(snapshots: Iterable[FolderSnapshot]) -> None:
    """Write lost records back from their attempts; a study that cannot be written is left as it is.

    An attempt that has begun in the meantime, or a record that it has published, is left alone.
    """
    for folder, attempt in (
        (s.folder, s.source) for s in snapshots if s.source is not None
    ):
        current = folder.latest_attempt()
        if current is None or current.id != attempt.id or folder.record_json.exists():
            continue
        with contextlib.suppress(OSError):
            folder.publish(attempt)


def read_snapshots(
    folders: Iterable[CellFolder], cache: RecordCache | None = None
) -> list[FolderSnapshot]:
    """Read the folders of cells; files that the cache holds are not decoded again."""
    cache = RecordCache() if cache is None else cache
    return [_read_snapshot(folder, cache) for folder in folders]


def _read_snapshot(folder: CellFolder, cache: RecordCache) -> FolderSnapshot:
    file, file_fault = _cell_file(folder, cache)
    record, record_fault = None, ""
    try:
        record = cache.read(folder.record_json, folder.read_record)
    except InvalidRecordError as fault:
        record_fault = str(fault)
    attempt, source = folder.latest_attempt(), None
    latest = AttemptSnapshot(attempt, attempt.read_end()) if attempt else None
    if record is None and not record_fault:
        record = _lost_record(folder, latest, cache)
        source = latest.folder if latest and record else None
    if record and latest and record.attempt.id == latest.folder.id:
        latest = replace(latest, recorded=record.attempt)
    return FolderSnapshot(
        folder, file, file_fault, record, record_fault, latest, source=source
    )


def _lost_record(
    folder: CellFolder, latest: AttemptSnapshot | None, cache: RecordCache
) -> Record | None:
    """Return the record that the current attempt has published and that is lost since then."""
    if latest is None or latest.end is None or not latest.end.outcome.finished:
        return None
    attempt = latest.folder
    try:
        return cache.read(attempt.record, lambda: folder.read_record_of(attempt))
    except (OSError, InvalidRecordError):
        return None


def _cell_file(folder: CellFolder, cache: RecordCache) -> tuple[CellFile | None, str]:
    try:
        file = cache.read(folder.cell_json, folder.read)
    except HpmlError as fault:
        return None, str(fault)
    if not folder.is_of(file.cell):
        return None, f"its cell.json is the cell {file.cell.slug}"
    return file, ""


_IN_JOB = ", job {}"


def in_job(reason: str, job: str) -> str:
    """Return a reason that names its job at the end; `CellState.brief` takes the job off again.

    >>> reason = in_job("on gr001", "17_3")
    >>> reason, CellState(slug="a", outcome=Outcome.RUNNING, job="17_3", reason=reason).brief
    ('on gr001, job 17_3', 'on gr001')
    """
    return f"{reason}{_IN_JOB.format(job)}"


class CellState(Value, frozen=True, kw_only=True):
    """The outcome of a cell so far, with a `reason` for people; `recorded`: it has a valid record.

    None is what is not known. `who` must act before a pending cell can start (empty: nobody);
    `starts` is when SLURM expects it to start (UTC, ISO 8601). Of its job: `queued_s` from
    submission to start (or until now), `elapsed_s` since the start, `minutes` is the time limit,
    `gpus` of all nodes, `mem_gb` the memory per node, `restarts` after a preemption or a node
    failure. Of a running cell: `doing` is its step, `done` the finished share of the training
    (also at a time limit), `left_s` the seconds left; both extrapolated. `checks` are the checks of
    its record.
    """

    slug: str
    outcome: Outcome
    job: str | None = None
    reason: str = ""
    who: str = ""
    node: str = ""
    warning: str = ""
    recorded: bool = False
    restarts: int = 0
    queued_s: float | None = None
    starts: str | None = None
    elapsed_s: float | None = None
    minutes: float | None = None
    gpus: int | None = None
    mem_gb: float | None = None
    doing: str = ""
    done: float | None = None
    left_s: float | None = None
    checks: tuple[CheckResult, ...] = ()

    @property
    def brief(self) -> str:
        """The reason without the job, for tables that have a column for it."""
        return self.reason.removesuffix(_IN_JOB.format(self.job))
