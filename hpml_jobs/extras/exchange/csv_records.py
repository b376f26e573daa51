"""Imported timings: rows of a CSV file become cells with records, and these become a study."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from hpml_jobs.core.built_in import (
    RESNET18_PARAMETERS,
    UNREPORTED_DATA,
    UNREPORTED_MODEL,
)
from hpml_jobs.core.cell import Cell, CellFile, Outcome, Protocol
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.formulas import gradient_bytes
from hpml_jobs.core.measurements import Imported
from hpml_jobs.core.record import Attempt, Facts, Model, Record
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.text import counted, one_of
from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.core.workload import Workload
from hpml_jobs.extras.exchange.csv_charts import unfolded
from hpml_jobs.extras.exchange.csv_columns import (
    COLUMNS,
    Fields,
    RateUnit,
    RowError,
    Rules,
    Times,
    is_throughput,
    read_fields,
    read_unit,
    times,
)
from hpml_jobs.extras.exchange.csv_histories import is_history, read_history
from hpml_jobs.extras.exchange.csv_rows import (
    CsvRow,
    CsvSelection,
    Fault,
    Rows,
    read_rows,
    select,
)
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, write_whole, writing
from hpml_jobs.study.study import Study

PARAMETERS = {
    "resnet18": RESNET18_PARAMETERS,
    "resnet18cifar": RESNET18_PARAMETERS,
    "resnet18cifar10": RESNET18_PARAMETERS,
    "resnet18torchvision": 11_181_642,
    "vgg11cifar10": 9_231_114,
}
"""Parameters of models with 10 classes, by the letters and digits of their names."""

SHOWN_FAULTS = 10

ATTEMPT = Attempt(id="imported", job="imported")


def read_timings(
    content: bytes,
    file: str,
    rules: Rules,
    notify: Callable[[str], None] = lambda _: None,
) -> list[Record]:
    """Return the records of a CSV file's rows, or of the runs of a history, in their order.

    The same bytes and rules give the same records. `notify` gets remarks on what was read.

    Raises:
        HpmlError: rows are invalid; one message names all of them by line.
        UsageError: a pattern of names is invalid, or the file has no runs.
    """
    whole = unfolded(read_rows(content, file))
    if is_history(whole):
        table, remarks = read_history(whole, rules)
    else:
        table, remarks = _timings(whole, rules)
    faults = list(table.faults)
    records = []
    for row in table.rows:
        try:
            records.append(_record(row, table.columns, file, rules))
        except RowError as error:
            faults += [Fault(row.line, text) for text in error.faults]
        except UsageError as error:
            faults.append(Fault(row.line, str(error)))
    faults += _duplicates(records, has_repeats="repeat" in table.columns)
    faults += _mixed_units(records)
    if faults:
        raise HpmlError(_message(faults, file))
    if not records:
        raise HpmlError(f"{file} has a header and no rows")
    for remark in remarks:
        notify(remark)
    return _with_unique_slugs(records)


def _timings(table: Rows, rules: Rules) -> CsvSelection:
    """Return the rows of timings."""
    if rules.names is not None:
        raise UsageError(
            f"names= is of a history of runs: {table.header} has no column run"
        )
    return select(table, COLUMNS)


def _with_unique_slugs(records: list[Record]) -> list[Record]:
    """Return the records with longer names where two cells have the same."""
    slugs: set[str] = set()
    result = []
    for record in records:
        slug = next(name for name in record.cell.slugs() if name not in slugs)
        slugs.add(slug)
        result.append(msgspec.structs.replace(record, slug=slug))
    return result


def _message(faults: list[Fault], file: str) -> str:
    lines = [f"line {line}: {text}" for line, text in sorted(faults)]
    texts = lines[:SHOWN_FAULTS]
    if len(lines) > SHOWN_FAULTS:
        texts.append(f"and {len(lines) - SHOWN_FAULTS} more")
    number = counted(len(lines), "fault")
    return f"{file}: nothing was imported, {number}: {'; '.join(texts)}"


def _record(row: CsvRow, columns: Collection[str], file: str, rules: Rules) -> Record:
    """Return the record of a row.

    Raises:
        RowError: fields are missing or cannot be read.
        UsageError: the fields contradict each other.
    """
    fields = _with_rules(read_fields(row.fields, columns), rules)
    unit = None if fields.rate is None else read_unit(fields.unit)
    cell = _cell(fields, rules, unit)
    timed = _times(fields, rules, unit, cell)
    gpu_model = fields.gpu_model
    return Record(
        cell=cell,
        slug=cell.slug,
        attempt=ATTEMPT,
        outcome=Outcome.OK,
        model=_model(cell.workload.model, cell.workload.parameters),
        facts=Facts(hpml_jobs="", gpu_model=gpu_model) if gpu_model else None,
        imported=Imported(
            file=file,
            line=row.line,
            epoch_s=timed.epoch_s,
            rate=fields.rate,
            unit=unit,
            rate_is_per_gpu=rules.rate_is_per_gpu and is_throughput(unit),
            work_samples=timed.work_samples,
            step_s=timed.step_s,
            train_s=fields.train_s,
            compute_s=fields.compute_s,
            comm_s=fields.comm_s,
            iterations=fields.iterations,
            loss=fields.loss,
            accuracy=fields.accuracy,
            gpu_model=gpu_model,
            gpus_per_node=fields.gpus_per_node,
            date=fields.date,
        ),
    )


def _with_rules(fields: Fields, rules: Rules) -> Fields:
    """Return the fields of a row, those that it lacks as the rules for all rows say."""
    iterations, unit = fields.iterations, fields.unit
    if fields.rate is not None:
        unit = unit or rules.unit
    elif unit is not None:
        raise UsageError(f"unit={unit} is of a rate: add a column rate")
    else:
        iterations = iterations or rules.iterations
    return replace(
        fields,
        unit=unit,
        iterations=iterations,
        images=fields.images or fields.samples or rules.images,
        parameters=fields.parameters or rules.parameters,
        gpus_per_node=fields.gpus_per_node or rules.gpus_per_node,
    )


def _times(fields: Fields, rules: Rules, unit: RateUnit | None, cell: Cell) -> Times:
    """Return the times of a row, those of a rate if it has one."""
    timed = Times(fields.epoch_s or 0.0, None, None)
    if unit is not None and fields.rate is not None:
        timed = times(fields.rate, unit, cell, per_gpu=rules.rate_is_per_gpu)
    if fields.train_s is not None and fields.train_s > timed.epoch_s:
        raise UsageError(
            f"train_s={fields.train_s} is more than epoch_s={timed.epoch_s}, which contains it"
        )
    return timed


def _model(name: str, parameters: int | None) -> Model | None:
    """Return the model, if its size is known; tensors and buffers are not, and are 0."""
    if parameters is None:
        return None
    size = gradient_bytes(parameters)
    return Model(
        name=name, parameters=parameters, tensors=0, gradient_bytes=size, buffer_bytes=0
    )


def _cell(fields: Fields, rules: Rules, unit: RateUnit | None) -> Cell:
    """Return the cell of a row; loader workers, threads and seed are unknown and get minima."""
    letters = re.sub(r"[^a-z0-9]", "", fields.model.lower())
    return Cell(
        gpus=fields.gpus,
        nodes=_nodes(fields),
        batch=_batch_per_gpu(fields, rules),
        strategy=_strategy(fields.strategy, fields.gpus),
        workload=Workload(
            name=fields.model or "imported",
            model=fields.model or UNREPORTED_MODEL,
            data=unit.data(fields.images) if unit else UNREPORTED_DATA,
            images=fields.images,
            parameters=fields.parameters or PARAMETERS.get(letters),
        ),
        protocol=Protocol.IMPORTED,
        epochs=0,
        probe_s=0.0,
        gpu_type=fields.gpu_model,
        threads=1,
        loader_workers=0,
        repeat=fields.repeat,
    )


def _batch_per_gpu(fields: Fields, rules: Rules) -> int:
    if not rules.batch_is_global:
        return fields.batch
    if fields.batch % fields.gpus:
        raise UsageError(
            f"batch={fields.batch} does not divide over gpus={fields.gpus}; the column is the "
            "global batch because of batch_is=global"
        )
    return fields.batch // fields.gpus


def _nodes(fields: Fields) -> int:
    """Return the nodes of a row: as given, as few as hold its GPUs, or one where nothing is given.

    Raises:
        UsageError: they do not hold its GPUs.
    """
    per_node = fields.gpus_per_node
    if per_node is None:
        return fields.nodes or 1
    if fields.nodes is None:
        return math.ceil(fields.gpus / per_node)
    if fields.gpus > fields.nodes * per_node:
        raise UsageError(
            f"gpus={fields.gpus} do not fit on nodes={fields.nodes} with gpus_per_node={per_node}"
        )
    return fields.nodes


def _strategy(text: str | None, gpus: int) -> Strategy:
    """Return the strategy; one GPU is the baseline whatever the row says, more default to ddp."""
    if gpus == 1:
        return Strategy.SINGLE
    if text is None:
        return Strategy.DDP
    choices = [strategy.value for strategy in Strategy]
    if text.lower() not in choices:
        raise UsageError(f"strategy={text}: {one_of(text.lower(), choices)}")
    return Strategy(text.lower())


def imported_of(record: Record) -> Imported:
    """Return what the file says of a row; of each record that is read here, it says something."""
    assert record.imported is not None  # noqa: S101 -- `_record` has written it
    return record.imported


def line_of(record: Record) -> int:
    """Return the line that a record was read from."""
    return imported_of(record).line


def _mixed_units(records: Iterable[Record]) -> Iterator[Fault]:
    """Yield a fault for each row whose unit is not that of its series: model and GPU model."""
    first: dict[tuple[str, str | None], Record] = {}
    for record in records:
        cell = record.cell
        earlier = first.setdefault((cell.workload.name, cell.gpu_type), record)
        if _unit(earlier) != _unit(record):
            yield Fault(
                line_of(record),
                f"{_unit(record)} where line {line_of(earlier)} of the same series has "
                f"{_unit(earlier)}: give all rows of a series in one unit, or name other series "
                "in the column model",
            )


def _unit(record: Record) -> str:
    """Return the unit of a row's times in words."""
    unit = imported_of(record).unit
    return f"unit={unit}" if unit else "epoch_s"


def _duplicates(records: Iterable[Record], *, has_repeats: bool) -> Iterator[Fault]:
    """Yield a fault for each row whose cell an earlier row has; they are never averaged."""
    first: dict[str, Record] = {}
    for record in records:
        cell = record.cell
        earlier = first.setdefault(cell.digest, record)
        if earlier is record:
            continue
        name = f"{cell.strategy.value} gpus={cell.gpus} nodes={cell.nodes} batch={cell.batch}"
        fix = ""
        if has_repeats:
            name += f" repeat={cell.repeat}"
        else:
            fix = "; for several runs of a cell add a column repeat: 0, 1, 2"
        if cell.gpus == 1:
            fix += "; gpus=1 is one baseline for all strategies"
        yield Fault(
            line_of(record), f"the same cell as line {line_of(earlier)} ({name}){fix}"
        )


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
    before = {
        folder.slug: _imported_before(folder, study, file) for folder in study.cells()
    }
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
