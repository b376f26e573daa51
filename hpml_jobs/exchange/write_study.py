"""Write a study of imported timings: the rows of one file, and no measured cell."""

from collections.abc import Sequence
from typing import NamedTuple

from hpml_jobs.core.cell import CellFile, Protocol
from hpml_jobs.core.record import Record
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.errors import HpmlError
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, write_whole, writing
from hpml_jobs.study.study import Study


class ImportChanges(NamedTuple):
    """The slugs of the cells that an import added, replaced, left unchanged and removed."""

    new: list[str]
    replaced: list[str]
    unchanged: list[str]
    removed: list[str]


def write_study(study: Study, records: Sequence[Record], file: str) -> ImportChanges:
    """Write the records of `file` as the cells of a study; remove cells whose rows are gone.

    Raises:
        HpmlError: the study has measured cells, or cells of another file; nothing was changed.
    """
    study.check_schema()
    before = {folder.slug: _imported_before(folder, study, file) for folder in study.cells()}
    study.create()
    changes = ImportChanges([], [], [], [])
    for record in records:
        if before.get(record.slug) == record:
            changes.unchanged.append(record.slug)
            continue
        (changes.replaced if record.slug in before else changes.new).append(record.slug)
        _write(study.cell(record.slug), record)
    for slug in before.keys() - {record.slug for record in records}:
        _remove(study.cell(slug))
        changes.removed.append(slug)
    return changes


def _imported_before(folder: CellFolder, study: Study, file: str) -> Record | None:
    """Return the record that an earlier import of the file wrote; None if it was interrupted."""
    if folder.read().cell.protocol is not Protocol.IMPORTED:
        raise HpmlError(
            f"study {study.name} has measured cells ({folder.slug}); imported timings need a study "
            "of their own: choose another study="
        )
    try:
        record = folder.read_record()
    except InvalidRecordError:
        return None
    if record is None or record.imported is None:
        return None
    if record.imported.file != file:
        raise HpmlError(
            f"study {study.name} has the timings of {record.imported.file}; a study is one file: "
            f"choose another study=, or remove {study.root} first"
        )
    return record


def _write(folder: CellFolder, record: Record) -> None:
    file = CellFile(cell=record.cell, data_root="", code_root="")
    with writing(folder.root):
        write_whole(folder.cell_json, encode(file))
        write_whole(folder.record_json, encode(record))


def _remove(folder: CellFolder) -> None:
    try:
        folder.record_json.unlink(missing_ok=True)
        folder.cell_json.unlink()
        folder.root.rmdir()
    except OSError as error:
        raise HpmlError(f"{folder.root} cannot be removed: {error.strerror}") from error
