"""A study of imported timings: it is one file, and holds no measured cell."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.core.cell import CellFile, Protocol
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.errors import HpmlError
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.study import Study


class Change(NamedTuple):
    """What an import did to a study, by slug."""

    new: list[str]
    replaced: list[str]
    unchanged: list[str]
    removed: list[str]


def settle(study: Study, records: Sequence[Record], file: str) -> Change:
    """Make the study hold these records of `file`, and no others.

    The same records again change nothing; others of the same file are replaced, and those whose
    rows are gone are removed.

    Raises:
        HpmlError: the study holds measured cells, or another file; nothing was changed.
    """
    study.check_schema()
    before = {folder.slug: _held(folder, study, file) for folder in study.cells()}
    study.create()
    change = Change([], [], [], [])
    for record in records:
        text = encode(record)
        kept = change.new if record.slug not in before else change.replaced
        kept = change.unchanged if before.get(record.slug) == text else kept
        kept.append(record.slug)
        _write(study.cell(record.slug), record, text)
    for slug in before.keys() - {record.slug for record in records}:
        _remove(study.cell(slug))
        change.removed.append(slug)
    return change


def _held(folder: CellFolder, study: Study, file: str) -> bytes | None:
    """The record that an earlier import of the same file left in a cell; None if it broke off."""
    if folder.read().cell.protocol is not Protocol.IMPORTED:
        raise HpmlError(
            f"study {study.name} holds measured cells ({folder.slug}): timings from elsewhere are "
            "never put beside them; take another study="
        )
    try:
        record = folder.read_record()
    except InvalidRecordError:
        return None
    if record is None or record.imported is None:
        return None
    if record.imported.file != file:
        raise HpmlError(
            f"study {study.name} holds {record.imported.file}, and a study is one file: take "
            f"another study=, or remove {study.root} first"
        )
    return folder.record_json.read_bytes()


def _write(folder: CellFolder, record: Record, text: bytes) -> None:
    file = CellFile(cell=record.cell, data_root="", code_root="")
    try:
        write_whole(folder.cell_json, encode(file))
        write_whole(folder.record_json, text)
    except OSError as fault:
        raise HpmlError(f"{folder.root} cannot be written: {fault.strerror}") from fault


def _remove(folder: CellFolder) -> None:
    try:
        folder.record_json.unlink(missing_ok=True)
        folder.cell_json.unlink()
        folder.root.rmdir()
    except OSError as fault:
        raise HpmlError(f"{folder.root} cannot be removed: {fault.strerror}") from fault
