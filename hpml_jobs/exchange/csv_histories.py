"""Histories of runs, a row per epoch or per step (as W&B exports them), as rows of timings."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import NamedTuple

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.text import counted
from hpml_jobs.exchange import csv_columns
from hpml_jobs.exchange.csv_rows import (
    DELIMITERS,
    ColumnSpec,
    Fault,
    FieldError,
    Row,
    Rows,
    number,
    read_rows,
    whole,
)

_IN_NAMES = {
    "gpus": r"(?:gpus?|world_?size)[ =_-]?(\d+)|(\d+)[ _-]?(?:x|gpus?|procs?|ranks?)",
    "batch": r"(?:batch(?:_?size)?|bs|b)[ =_-]?(\d+)",
    "strategy": f"({'|'.join(sorted(Strategy, key=len, reverse=True))})",
}
"""What the name of a run may say of its cell: a pattern between other characters than letters."""


def instant(text: str) -> float:
    """Read a time: seconds since any moment, or a date and time (ISO 8601).

    Raises:
        FieldError: it is neither.
    """
    if ":" not in text:
        return number(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise FieldError("expected seconds, or a date and time (ISO 8601)") from None


_COLUMNS = {
    "run": ColumnSpec(str, required=True),
    "epoch": ColumnSpec(number, may_be_zero=True),
    "seconds": ColumnSpec(number),
    "step": ColumnSpec(whole, may_be_zero=True),
    "timestamp": ColumnSpec(instant, may_be_zero=True),
    "loss": csv_columns.COLUMNS["loss"],
    "accuracy": csv_columns.COLUMNS["accuracy"],
}
_OF_CELL = csv_columns.COLUMNS.keys() - {"rate", "unit", *csv_columns.OF_AN_EPOCH, *_COLUMNS}
"""Columns of timings that a history may have too."""

_CELL_COLUMNS = ("gpus", "batch", "strategy", "nodes", "model", "gpu_model")
"""Columns that tell the cells of runs apart."""


class _Epoch(NamedTuple):
    """Seconds of an epoch; where they are from steps, its iterations and the time of one."""

    seconds: float
    iterations: int | None = None
    step_s: float = 0.0


class History(NamedTuple):
    """The runs of a history as rows of timings, and remarks on them."""

    table: Rows
    remarks: list[str]


def read_history(content: bytes, file: str) -> History | None:
    """Return the runs of a history as rows of timings; None if the file has no column `run`.

    Columns that are not known are ignored. The time of a run is the median of its epochs without
    the first, the warm-up. An epoch of steps lasts from its first to its last timestamp, and one
    step more, because the beginning of the first one is not in the file.

    Raises:
        HpmlError: there are neither seconds nor timestamps, or it cannot be read.
    """
    header = content.decode("utf-8-sig", "replace").lstrip().partition("\n")[0].lower()
    if "run" not in [name.strip(' "\r') for name in re.split(f"[{DELIMITERS}]", header)]:
        return None
    columns = _COLUMNS | {f"_{name}": _COLUMNS[name] for name in ("step", "timestamp")}  # W&B's
    given, rows, faults = read_rows(content, file, columns, is_partial=True)
    by_step = "seconds" not in given
    if by_step and not {"timestamp", "_timestamp"} & {*given}:
        raise HpmlError(
            f"{file} is a history of runs without times: add the column timestamp of each step "
            "(W&B: export _timestamp), or seconds of each epoch"
        )
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(row.fields.get("run", ""), []).append(row)
    made: list[Row] = []
    earlier = Counter[tuple[str | None, ...]]()
    timed: list[list[_Epoch]] = []
    for name, lines in runs.items():
        try:
            values = sorted((_read(row, columns) for row in lines), key=_order)
            epochs = (_by_steps if by_step else _by_seconds)(values)
            of_cell = {k: text for k, text in lines[0].fields.items() if k in _OF_CELL}
            fields = _from_name(name) | of_cell
            if not {"gpus", "batch"} <= fields.keys():
                raise FieldError(
                    "its name does not say GPUs and batch, as ddp-4gpu-b128 does: add the columns "
                    "gpus and batch"
                )
        except FieldError as error:
            faults.append(Fault(lines[0].line, f"run {name}: {error}"))
            continue
        cell = tuple(fields.get(column) for column in _CELL_COLUMNS)
        figures = {
            "epoch_s": median(epoch.seconds for epoch in epochs[1:] or epochs),
            "iterations": epochs[-1].iterations,
            "loss": values[-1].get("loss"),
            "accuracy": values[-1].get("accuracy"),
        }
        texts = {key: str(value) for key, value in figures.items() if value is not None}
        made.append(Row(lines[0].line, {"repeat": str(earlier[cell])} | fields | texts))
        earlier[cell] += 1
        timed.append(epochs)
    table = Rows(tuple(csv_columns.COLUMNS), made, faults)
    return History(table, list(_remarks(timed)))


def _read(row: Row, columns: Mapping[str, ColumnSpec]) -> dict[str, float | int | str]:
    values = {}
    for name, text in row.fields.items():
        if name in columns:
            try:
                values[name.removeprefix("_")] = columns[name].read(text)
            except FieldError as error:
                raise FieldError(f"line {row.line}: {name}={text}: {error}") from error
    return values


def _order(line: Mapping[str, float | int | str]) -> tuple[float, float]:
    return float(line.get("epoch", 0)), float(line.get("step", 0))


def _column(lines: Sequence[Mapping[str, float | int | str]], name: str) -> list[float]:
    """Return the numbers of a column, which each of a run's rows must have."""
    missing = sum(name not in line for line in lines)
    if missing:
        raise FieldError(f"{name} is missing in {missing} of {counted(len(lines), 'row')}")
    return [float(line[name]) for line in lines]


def _by_seconds(lines: Sequence[Mapping[str, float | int | str]]) -> list[_Epoch]:
    """Return the epochs of a run with a row for each."""
    seconds = dict(zip(_column(lines, "epoch"), _column(lines, "seconds"), strict=True))
    if len(seconds) < len(lines):
        raise FieldError("an epoch is given twice")
    if len(seconds) < 2:
        raise FieldError("one epoch is the warm-up: add the seconds of a second one")
    return [_Epoch(seconds[epoch]) for epoch in sorted(seconds)]


def _by_steps(lines: Sequence[Mapping[str, float | int | str]]) -> list[_Epoch]:
    """Return the epochs of a run with a row for each step, or for each few; one without epochs."""
    epochs: dict[int, list[tuple[float, float]]] = {}
    for line, step, time in zip(
        lines, _column(lines, "step"), _column(lines, "timestamp"), strict=True
    ):
        epochs.setdefault(int(line.get("epoch", 0)), []).append((step, time))
    result = []
    for _, stamps in sorted(epochs.items()):
        (first, start), (last, end) = min(stamps), max(stamps)
        if last == first or end <= start:
            raise FieldError(f"step {first:.0f} and step {last:.0f} have no time between them")
        step_s = (end - start) / (last - first)
        result.append(_Epoch(end - start + step_s, int(last - first) + 1, step_s))
    return result


def _from_name(name: str) -> dict[str, str]:
    """Return what the name of a run says of its cell.

    >>> _from_name("ddp-4gpu-b128"), _from_name("resnet gpus=2 bs 32")
    ({'gpus': '4', 'batch': '128', 'strategy': 'ddp'}, {'gpus': '2', 'batch': '32'})
    """
    found = {}
    for column, pattern in _IN_NAMES.items():
        match = re.search(f"(?<![a-z])(?:{pattern})(?![a-z0-9])", name.lower())
        if match:
            found[column] = next(group for group in match.groups() if group)
    return found


def _remarks(runs: Sequence[Sequence[_Epoch]]) -> Iterator[str]:
    """Yield how the times of runs were found."""
    steps = [epoch.step_s for epochs in runs for epoch in epochs[1:] or epochs if epoch.step_s]
    if steps:
        yield (
            "the beginning of an epoch's first step is not in the file: its mean step is added to "
            f"the time between its timestamps ({min(steps):.3g} to {max(steps):.3g} s)"
        )
    single = sum(len(epochs) == 1 for epochs in runs)
    if single:
        yield f"{single} of {counted(len(runs), 'run')} with one epoch: it includes the warm-up"
    if len(runs) > single:
        yield "the first epoch of a run is its warm-up, and its time the median of the others"
