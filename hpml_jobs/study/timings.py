"""Timings of another program: each row of a table of runs becomes a cell with its record."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hpml_jobs.core.built_in import UNREPORTED_DATA, UNREPORTED_MODEL
from hpml_jobs.core.cell import Cell, CellFile, Outcome, Protocol
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.formulas import samples_processed
from hpml_jobs.core.record import Attempt, Record
from hpml_jobs.core.source import Imported
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Workload
from hpml_jobs.study.files import encode, write_whole, writing
from hpml_jobs.study.study import Study

ATTEMPT = Attempt(id="imported", job="imported")

EPOCH_S = (1e-3, 1e7)
"""The shortest and the longest epoch that is believed, in seconds."""

NEEDED = ("gpus", "batch")

TABLE = (
    "a table of runs has the columns gpus, batch and epoch_s, or images and images_per_s; it may "
    "have run, nodes, strategy, gpu_type, loss, accuracy; docs/results.md makes one of a history"
)

Count = Annotated[int, Meta(ge=1, le=10**12)]


class TimingRow(Value, frozen=True, kw_only=True):
    """A run: the columns of the table are these fields; blank fields are absent.

    `batch` is per GPU, `accuracy` a share. Of one GPU every strategy is the baseline.
    """

    gpus: Count
    batch: Count
    run: str = ""
    epoch_s: float | None = None
    images: Count | None = None
    images_per_s: Annotated[float, Meta(gt=0)] | None = None
    nodes: Count = 1
    strategy: Strategy = Strategy.DDP
    gpu_type: str | None = None
    loss: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    accuracy: Annotated[float, Meta(ge=0, le=1)] | None = None


def read_timings(content: bytes, file: str) -> list[Record]:
    """Return the records of a CSV file's rows, in their order; equal cells are repeats.

    Raises:
        UsageError: it is no table of runs; the first wrong line is named.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise UsageError(f"{file} is not UTF-8 text: save it as CSV UTF-8") from fault
    table = csv.DictReader(
        io.StringIO(text, newline=""), strict=True, skipinitialspace=True
    )
    records: dict[str, Record] = {}
    repeats, runs = Counter[str](), set[str]()
    try:
        _check_columns(table.fieldnames or ())
        for fields in table:
            row = _row(fields)
            if row.run in runs:
                raise UsageError(f"run {row.run} is given twice: a row is a run")
            runs |= {row.run} - {""}
            cell = _cell(row)
            repeat = repeats[cell.digest]
            repeats[cell.digest] += 1
            record = _record(
                msgspec.structs.replace(cell, repeat=repeat), row, file, table.line_num
            )
            slug = next(name for name in record.cell.slugs() if name not in records)
            records[slug] = msgspec.structs.replace(record, slug=slug)
    except (csv.Error, UsageError) as fault:
        raise UsageError(f"{file} line {table.line_num}: {fault}") from fault
    if not records:
        raise UsageError(f"{file} has no row: {TABLE}")
    return [*records.values()]


def _check_columns(names: Sequence[str]) -> None:
    """Refuse a header with other columns than those of a table of runs."""
    known = TimingRow.__struct_fields__
    faults = [f"column {name!r} is unknown" for name in names if name not in known]
    faults += [f"column {name} is missing" for name in NEEDED if name not in names]
    if len({*names}) < len(names):
        faults.append("a column is given twice")
    if faults:
        raise UsageError(f"{faults[0]}: {TABLE}")


def _row(fields: dict[Any, Any]) -> TimingRow:
    if None in fields or None in fields.values():
        raise UsageError("it has not as many fields as the header")
    try:
        given = {name: text for name, text in fields.items() if text or name in NEEDED}
        row = msgspec.convert(given, TimingRow, strict=False)
    except msgspec.ValidationError as fault:
        problem, _, column = str(fault).rstrip("`").partition(" - at `$.")
        if column == "epoch_s":
            problem = "expected a number of seconds"
        raise UsageError(f"{column}={fields[column]}: {problem}") from fault
    if (row.epoch_s is None) == (row.images_per_s is None):
        raise UsageError("give either epoch_s or images_per_s")
    if row.images_per_s is not None and row.images is None:
        raise UsageError("images_per_s needs images, those of an epoch")
    return row


def _cell(row: TimingRow) -> Cell:
    """Return the cell of a row; loader workers, threads and seed are unknown and get minima."""
    return Cell(
        gpus=row.gpus,
        nodes=row.nodes,
        batch=row.batch,
        strategy=row.strategy if row.gpus > 1 else Strategy.SINGLE,
        workload=Workload(
            name="imported",
            model=UNREPORTED_MODEL,
            data=UNREPORTED_DATA,
            images=row.images,
        ),
        protocol=Protocol.IMPORTED,
        epochs=0,
        probe_s=0.0,
        gpu_type=row.gpu_type,
        threads=1,
        loader_workers=0,
    )


def _record(cell: Cell, row: TimingRow, file: str, line: int) -> Record:
    return Record(
        cell=cell,
        slug=cell.slug,
        attempt=ATTEMPT,
        outcome=Outcome.OK,
        imported=Imported(
            file=file,
            line=line,
            run=row.run,
            epoch_s=_epoch_s(row, cell),
            loss=row.loss,
            accuracy=row.accuracy,
            gpu_model=row.gpu_type,
        ),
    )


def _epoch_s(row: TimingRow, cell: Cell) -> float:
    epoch_s = row.epoch_s or 0.0
    if row.images is not None and row.images_per_s is not None:
        epoch_s = samples_processed(row.images, cell.processes) / row.images_per_s
    shortest, longest = EPOCH_S
    if not shortest <= epoch_s <= longest:
        raise UsageError(
            f"an epoch of {epoch_s:.4g} s is not from {shortest:g} to {longest:g} s"
        )
    return epoch_s


def write_study(study: Study, records: Sequence[Record]) -> None:
    """Write records as the cells of a new study, which is there once it has all of them.

    Raises:
        HpmlError: the study exists; nothing was changed.
    """
    if study.root.exists():
        raise HpmlError(f"study {study.name} exists: name a new one, study=NAME")
    outputs = study.root.parent
    with writing(outputs):
        outputs.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=outputs, prefix=".import-") as folder:
            draft = Study(Path(folder) / study.name)
            draft.create()
            for record in records:
                cell = draft.cell(record.slug)
                file = CellFile(cell=record.cell, data_root="", code_root="")
                write_whole(cell.cell_json, encode(file))
                write_whole(cell.record_json, encode(record))
            draft.root.rename(study.root)
