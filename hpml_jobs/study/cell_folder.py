"""The folder of one cell: its paths, and the readers of its files."""

import shutil
from pathlib import Path

from hpml_jobs.core.cell import Cell, CellFile, decode_cell_file
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import InvalidRecordError, decode, difference
from hpml_jobs.study.attempt import AttemptEnd, AttemptFolder
from hpml_jobs.study.files import (
    NAME_BYTES,
    Inside,
    is_name,
    read_bytes,
    reading,
    write_whole,
)


class CellFolder:
    """Paths of one cell of a study."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.slug = root.name
        self._own_cell: Cell | None = None

    cell_json = Inside("cell.json")
    record_json = Inside("record.json")
    iterations = Inside("iterations.npz")
    attempts = Inside("attempts")
    current = Inside("attempts/current")

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
            change = difference(record, self.read_record_of(attempt))
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
