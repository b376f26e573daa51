"""Timings measured elsewhere: the rows of a CSV file become cells with their records."""

import math
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from hpml_jobs.core.cell import Cell, Protocol, Strategy
from hpml_jobs.core.formulas import gradient_bytes
from hpml_jobs.core.measurements import Imported
from hpml_jobs.core.record import Attempt, Facts, Model, Record
from hpml_jobs.core.text import counted
from hpml_jobs.core.value import Value
from hpml_jobs.core.workload import Workload
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.importer.csv_rows import Fault, Row, read_rows
from hpml_jobs.slurm.states import Outcome

NEEDED = ("gpus", "batch", "epoch_s")
WHOLE = ("nodes", "repeat", "parameters", "images", "iterations")
SECONDS = ("train_s", "compute_s", "comm_s")
WORDS = ("strategy", "model", "gpu_model", "date")
COLUMNS = (*NEEDED, "strategy", "nodes", *SECONDS, *WHOLE[1:], *WORDS[1:])
"""Every column there may be; what is not there, or blank, is unknown."""

MAY_BE_ZERO = ("repeat", "comm_s")

IMAGES = 50_000
"""Training images of an epoch where nothing else is said: CIFAR-10's."""

LAB_PARAMETERS = 11_173_962
"""Parameters where no model is named: the lab's, ResNet-18 with the CIFAR stem."""

PARAMETERS = {
    "resnet18": LAB_PARAMETERS,
    "resnet18cifar": LAB_PARAMETERS,
    "resnet18cifar10": LAB_PARAMETERS,
    "resnet18torchvision": 11_181_642,
    "vgg11cifar10": 9_231_114,
}
"""Of models with 10 classes, by their name's letters and digits; others are not guessed."""

SHOWN_FAULTS = 10

ATTEMPT = Attempt(id="imported", job="imported")


class Rules(Value, frozen=True, kw_only=True):
    """How the rows of a file are to be read; a row's own columns go before."""

    batch_is_global: bool = False
    images: int | None = None
    parameters: int | None = None


def read_timings(content: bytes, file: str, rules: Rules) -> list[Record]:
    """The records of a CSV file's rows, in their order; the same bytes and rules, the same records.

    Raises:
        HpmlError: any row cannot be believed; all such rows are named by line in one message.
    """
    found = read_rows(content, file, NEEDED, COLUMNS)
    faults = list(found.faults)
    records = []
    for row in found.rows:
        told = _record(row, file, rules)
        if isinstance(told, Record):
            records.append(told)
        else:
            faults += told
    faults += _duplicates(records, "repeat" in found.columns)
    if faults:
        raise HpmlError(_told(faults, file))
    if not records:
        raise HpmlError(f"{file} has a header and no rows")
    return records


def _told(faults: list[Fault], file: str) -> str:
    lines = [f"line {line}: {text}" for line, text in sorted(faults)]
    more = len(lines) - SHOWN_FAULTS
    told = "; ".join([*lines[:SHOWN_FAULTS], *([f"and {more} more"] if more > 0 else [])])
    return f"{file}: nothing was imported, {counted(len(lines), 'fault')}: {told}"


def _record(row: Row, file: str, rules: Rules) -> Record | list[Fault]:
    """The record of a row, or everything that is wrong with it."""
    numbers: dict[str, float] = {}
    faults = [f"{name} is missing" for name in NEEDED if name not in row.fields]
    for name, text in row.fields.items():
        if name in WORDS:
            continue
        whole = name in ("gpus", "batch", *WHOLE)
        told = _number(name, text, whole=whole)
        if isinstance(told, str):
            faults.append(told)
        else:
            numbers[name] = told
    if faults:
        return [Fault(row.line, text) for text in faults]
    try:
        return _of_row(row, numbers, file, rules)
    except UsageError as fault:
        return [Fault(row.line, str(fault))]


def _number(name: str, text: str, *, whole: bool) -> float | str:
    """The number in a field, or what is wrong with it."""
    told = f"{name}={text}"
    if re.fullmatch(r"[+-]?[\d.]*,[\d.,]*", text, re.ASCII):
        return f"{told}: a comma in a number; write a decimal point, and no thousands separators"
    if whole and not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        return f"{told} is not a whole number"
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return f"{told} is not a number"
    if not math.isfinite(number):
        return f"{told} is not a finite number"
    if number < 0 or (number == 0 and name not in MAY_BE_ZERO):
        return f"{told}: must be {'0 or more' if name in MAY_BE_ZERO else 'more than 0'}"
    return int(text) if whole else number


def _of_row(row: Row, numbers: dict[str, float], file: str, rules: Rules) -> Record:
    """The record of a row whose numbers can be read; a UsageError says what cannot be."""
    cell = _cell(row, numbers, rules)
    epoch_s, train_s = numbers["epoch_s"], numbers.get("train_s")
    if train_s is not None and train_s > epoch_s:
        raise UsageError(f"train_s={train_s} is more than epoch_s={epoch_s}, which contains it")
    counted_iterations = numbers.get("iterations")
    gpu_model, workload = row.fields.get("gpu_model"), cell.workload
    return Record(
        cell=cell,
        slug=cell.slug,
        attempt=ATTEMPT,
        outcome=Outcome.OK,
        model=_model(workload.model, workload.parameters),
        facts=Facts(hpml_jobs="", gpu_model=gpu_model) if gpu_model else None,
        imported=Imported(
            file=file,
            line=row.line,
            epoch_s=epoch_s,
            train_s=train_s,
            compute_s=numbers.get("compute_s"),
            comm_s=numbers.get("comm_s"),
            iterations=None if counted_iterations is None else int(counted_iterations),
            gpu_model=gpu_model,
            date=row.fields.get("date"),
        ),
    )


def _model(name: str, parameters: int | None) -> Model | None:
    """What was trained as far as it was told; tensors and buffers are not, and are 0."""
    if parameters is None:
        return None
    size = gradient_bytes(parameters)
    return Model(name=name, parameters=parameters, tensors=0, gradient_bytes=size, buffer_bytes=0)


def _cell(row: Row, numbers: dict[str, float], rules: Rules) -> Cell:
    """The cell of a row; loader workers, threads and seed are unknown: the least there may be."""
    gpus, batch = int(numbers["gpus"]), int(numbers["batch"])
    if rules.batch_is_global:
        if batch % gpus:
            raise UsageError(f"batch={batch} over gpus={gpus} is not whole, with batch_is=global")
        batch //= gpus
    parameters = numbers.get("parameters") or rules.parameters
    return Cell(
        gpus=gpus,
        nodes=int(numbers.get("nodes", 1)),
        batch=batch,
        strategy=_strategy(row.fields.get("strategy", ""), gpus),
        workload=_workload(
            row.fields.get("model", ""),
            int(numbers.get("images") or rules.images or IMAGES),
            None if parameters is None else int(parameters),
        ),
        protocol=Protocol.IMPORTED,
        epochs=0,
        probe_s=0.0,
        gpu_type=row.fields.get("gpu_model"),
        threads=1,
        loader_workers=0,
        repeat=int(numbers.get("repeat", 0)),
    )


def _workload(model: str, images: int, parameters: int | None) -> Workload:
    return Workload(
        name=model or "imported",
        model=model or "model not told",
        data="data not told",
        images=images,
        parameters=parameters or _assumed_parameters(model),
    )


def _assumed_parameters(model: str) -> int | None:
    letters = re.sub(r"[^a-z0-9]", "", model.lower())
    return PARAMETERS.get(letters) if model else LAB_PARAMETERS


def _strategy(text: str, gpus: int) -> Strategy:
    """One GPU is the baseline whatever the row calls it; more are ddp unless it says otherwise."""
    if gpus == 1:
        return Strategy.SINGLE
    word = text.lower() or Strategy.DDP.value
    choices = [strategy.value for strategy in Strategy]
    if word not in choices:
        near = get_close_matches(word, choices, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"strategy={text}: choose one of {', '.join(choices)}{hint}")
    return Strategy(word)


def line_of(record: Record) -> int:
    """The line that a record was read from."""
    return record.imported.line if record.imported else 0


def _duplicates(records: Iterable[Record], has_repeats: bool) -> Iterator[Fault]:
    """Rows of one and the same cell, told at the second; they are never averaged."""
    first: dict[str, Record] = {}
    for record in records:
        cell = record.cell
        before = first.setdefault(cell.digest, record)
        if before is record:
            continue
        which = f"{cell.strategy.value} gpus={cell.gpus} nodes={cell.nodes} batch={cell.batch}"
        repeat = f" repeat={cell.repeat}" if has_repeats else ""
        mend = "" if has_repeats else "; for several runs of one cell add a column repeat: 0, 1, 2"
        if cell.gpus == 1:
            mend += "; gpus=1 is one baseline for all strategies"
        yield Fault(
            line_of(record), f"the same cell as line {line_of(before)} ({which}{repeat}){mend}"
        )
