"""The append-only manifest of a study: submissions, their jobs, and refusals by SLURM."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import CellFile, decode_cell_file
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.process_times import Process
from hpml_jobs.core.text import VERSION, unix_time
from hpml_jobs.core.value import Value, decode_json
from hpml_jobs.study.cell_folder import utc_now
from hpml_jobs.study.files import MANIFEST_BYTES, is_name, read_bytes, reading, writing


class ManifestEvent(StrEnum):
    """The kind of a manifest line."""

    SENDING = "sending"  # written before sbatch
    SENT = "sent"  # written after sbatch, with the jobs
    REFUSED = "refused"  # written after sbatch failed, with its message


class ManifestLine(Value, frozen=True, kw_only=True):
    """One line of manifest.jsonl. `batch` connects the line before an sbatch to the line after it.

    `files` has a copy of cell.json of each cell, in the first line of its submission (since 0.6.0).

    `closing` marks the follow-up job, which runs after all cells and measures none; `retry` a
    resubmission by a follow-up job, which avoids the nodes in `excluded`. `sbatch` is the process
    that a line before an sbatch belongs to, `name` that of the jobs; both since 0.9.0.
    """

    happening: ManifestEvent
    batch: str
    cells: tuple[str, ...]
    files: dict[str, msgspec.Raw] = {}
    # for SENT: as many as cells; cells of one allocation share theirs
    jobs: tuple[str, ...] = ()
    shape: str = ""
    words: str = ""  # why there is no job; the task of a follow-up job
    closing: bool = False
    retry: bool = False
    excluded: tuple[str, ...] = ()
    sbatch: Process | None = None
    name: str = ""
    time: str = ""
    hpml_jobs: str = VERSION

    def __post_init__(self) -> None:
        """Refuse a line that is damaged: its names, its time, other jobs than cells."""
        if not all(map(is_name, (*self.cells, *self.jobs))):
            raise ValueError("a cell or a job has no valid name")
        if self.time and unix_time(self.time) is None:
            raise ValueError(f"{self.time!r} is no time of a submission")
        is_sent = self.happening is ManifestEvent.SENT and not self.closing
        if is_sent and len(self.jobs) != len(self.cells):
            raise ValueError(f"{len(self.jobs)} jobs for {len(self.cells)} cells")


class Sent(NamedTuple):
    """The name of a job that was submitted, and when (seconds since 1970; None: not known)."""

    name: str
    at: float | None


Ordered = dict[str, None]
"""Names in the order in which they came, each once."""


@dataclass
class History:
    """The submissions of a study's cells, by slug, from the manifest.

    `jobs`: the latest job of each cell; `refused`: SLURM's message where the last sbatch failed;
    `unanswered`: the line before an sbatch that has no result, `lost_followups` those of follow-up
    jobs; `retries`: how often a follow-up job resubmitted each cell; `excluded`: the nodes that
    resubmissions avoid; `closing`: follow-up jobs, each with its task; `shared`: jobs that were
    submitted for several cells; `sent`: every job that measures, in the order of submission;
    `cells`: every cell that was submitted; `files`: the latest copy of cell.json; `submissions`:
    the name and the time that a job was submitted under.
    """

    jobs: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unanswered: dict[str, ManifestLine] = field(default_factory=dict)
    retries: Counter[str] = field(default_factory=Counter)
    excluded: Ordered = field(default_factory=dict)
    closing: dict[str, str] = field(default_factory=dict)
    lost_followups: list[ManifestLine] = field(default_factory=list)
    shared: frozenset[str] = frozenset()
    sent: Ordered = field(default_factory=dict)
    cells: Ordered = field(default_factory=dict)
    files: dict[str, msgspec.Raw] = field(default_factory=dict)
    submissions: dict[str, Sent] = field(default_factory=dict)

    @property
    def has_jobs(self) -> bool:
        """Whether SLURM has, or may have, jobs of the study."""
        return bool(self.sent or self.unanswered)

    @property
    def lost_lines(self) -> list[ManifestLine]:
        """The lines before an sbatch that have no result, oldest first."""
        lines = {line.batch: line for line in self.unanswered.values()}
        return [*lines.values(), *self.lost_followups]

    def copy_of(self, slug: str) -> CellFile | None:
        """Return the manifest's copy of a cell.json; None without one that can be read."""
        copy = self.files.get(slug)
        if copy is None:
            return None
        try:
            file = decode_cell_file(bytes(copy), f"the manifest's copy of {slug}")
        except HpmlError:
            return None
        return file if file.cell.has_slug(slug) else None


def copies_of(files: Mapping[str, CellFile]) -> dict[str, msgspec.Raw]:
    """Return the copies of cell.json for a manifest's line, by slug."""
    return {
        slug: msgspec.Raw(msgspec.json.encode(file)) for slug, file in files.items()
    }


def append(path: Path, line: ManifestLine) -> None:
    """Append a line to the manifest, with the time; it is on disk when this returns."""
    text = msgspec.json.encode(msgspec.structs.replace(line, time=utc_now())) + b"\n"
    with writing(path), path.open("a+b") as file:
        size = file.tell()
        # a crash has cut off the last line
        if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
            text = b"\n" + text
        file.write(text)  # flushed in one write: lines of two programs do not mix
        file.flush()
        os.fsync(file.fileno())


def lines(path: Path) -> Iterator[ManifestLine]:
    """Yield the manifest's complete lines, oldest first; a line cut off by a crash is skipped.

    Raises:
        HpmlError: the manifest cannot be read.
    """
    with reading(path):
        try:
            content = read_bytes(path, MANIFEST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return
        except IsADirectoryError as fault:
            raise HpmlError(
                f"{path} is a folder: remove it, it must be a file"
            ) from fault
    for text in content.splitlines():
        try:
            yield decode_json(text, ManifestLine)
        except ValueError:
            continue


def last_time(path: Path) -> float | None:
    """Return the time of a manifest's last whole line, in seconds since 1970; None if unknown."""
    try:
        content = read_bytes(path, MANIFEST_BYTES)
    except OSError:
        return None
    for text in reversed(content.splitlines()):
        with contextlib.suppress(ValueError):  # a crash has cut it off
            return unix_time(decode_json(text, _Time).time)
    return None


class _Time(msgspec.Struct):
    time: str = ""


def fold(lines: Iterable[ManifestLine]) -> History:
    """Return the history of a study from its manifest's lines, oldest first."""
    history = History()
    unanswered: dict[str, ManifestLine] = {}  # by batch
    for line in lines:
        history.cells |= dict.fromkeys(line.cells)
        history.files |= line.files
        for slug in line.cells:
            history.refused.pop(slug, None)
        unanswered.pop(line.batch, None)
        if line.happening is ManifestEvent.SENDING:
            unanswered[line.batch] = line
        elif line.happening is ManifestEvent.REFUSED:
            history.refused |= dict.fromkeys(line.cells, line.words)
        else:
            _note_sent(line, history)
    for line in unanswered.values():
        history.unanswered |= dict.fromkeys(line.cells, line)
    history.lost_followups = [line for line in unanswered.values() if line.closing]
    return history


def _note_sent(line: ManifestLine, history: History) -> None:
    if line.closing:
        history.closing |= dict.fromkeys(line.jobs, line.words)
    else:
        history.jobs |= zip(line.cells, line.jobs, strict=True)
        history.sent |= dict.fromkeys(line.jobs)
    if line.name:
        sent_now = Sent(line.name, unix_time(line.time))
        history.submissions |= dict.fromkeys(line.jobs, sent_now)
    history.shared |= {job for job, cells in Counter(line.jobs).items() if cells > 1}
    history.retries.update(line.cells if line.retry else ())
    history.excluded |= dict.fromkeys(line.excluded)
