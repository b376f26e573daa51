"""The folder of one cell: its paths, and the readers of its files."""

from pathlib import Path

from hpml_jobs.core.cell import CellFile, decode_cell_file
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.errors import HpmlError
from hpml_jobs.study.attempt import AttemptEnd, AttemptFolder
from hpml_jobs.study.reader import NAME_BYTES, is_name, read_bytes


class CellFolder:
    """Paths of one cell of a study."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.slug = root.name
        self.cell_json = root / "cell.json"
        self.record_json = root / "record.json"
        self.iterations = root / "iterations.npz"
        self.attempts = root / "attempts"
        self.current = self.attempts / "current"

    def read(self) -> CellFile:
        """Read and check the cell's file.

        Raises:
            HpmlError: it cannot be read, or is not valid.
        """
        try:
            return decode_cell_file(read_bytes(self.cell_json), str(self.cell_json))
        except OSError as fault:
            raise HpmlError(f"{self.cell_json} cannot be read: {fault.strerror}") from fault

    def read_record(self) -> Record | None:
        """Read and check the cell's record; None if it does not exist.

        Raises:
            InvalidRecordError: it must not be used.
        """
        try:
            text = read_bytes(self.record_json)
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise InvalidRecordError(f"{self.record_json}: {fault.strerror}") from fault
        record = decode(text, str(self.record_json))
        if record.slug != self.slug or record.cell.slug != self.slug:
            raise InvalidRecordError(f"{self.record_json} is the record of {record.slug}")
        return record

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
