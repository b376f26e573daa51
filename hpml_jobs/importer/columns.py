"""The columns that a CSV file of timings may have, and how a row's fields are read."""

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpml_jobs.errors import HpmlError, UsageError


class FieldError(UsageError):
    """A field of a row cannot be read."""


class RowError(HpmlError):
    """A row is invalid; `faults` are all reasons."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of a row; None is an absent or blank field. Times are in seconds."""

    gpus: int
    batch: int
    epoch_s: float | None = None
    rate: float | None = None
    unit: str | None = None
    strategy: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    train_s: float | None = None
    compute_s: float | None = None
    comm_s: float | None = None
    repeat: int | None = None
    parameters: int | None = None
    images: int | None = None
    samples: int | None = None
    iterations: int | None = None
    model: str | None = None
    gpu_model: str | None = None
    date: str | None = None


def whole(text: str) -> int:
    """Read a whole number.

    Raises:
        FieldError: it is none.
    """
    _check_no_comma(text)
    if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        raise FieldError("expected a whole number")
    return int(text)


def number(text: str) -> float:
    """Read a finite number.

    Raises:
        FieldError: it is none.
    """
    _check_no_comma(text)
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        raise FieldError("expected a number") from None
    if not math.isfinite(number):
        raise FieldError("expected a finite number")
    return number


def _check_no_comma(text: str) -> None:
    if re.fullmatch(r"[+-]?[\d.]*,[\d.,]*", text, re.ASCII):
        raise FieldError("use a decimal point, not a comma, and no thousands separators")


class ColumnSpec(NamedTuple):
    """How the fields of a column are read."""

    parse: Callable[[str], float | int | str]
    required: bool = False
    may_be_zero: bool = False

    def read(self, text: str) -> float | int | str:
        """Read a field.

        Raises:
            FieldError: it is not of this column.
        """
        value = self.parse(text)
        if isinstance(value, str):
            return value
        if value < 0 or (value == 0 and not self.may_be_zero):
            raise FieldError(f"must be {'0 or more' if self.may_be_zero else 'more than 0'}")
        return value


COLUMNS = {
    "gpus": ColumnSpec(whole, required=True),
    "batch": ColumnSpec(whole, required=True),
    "epoch_s": ColumnSpec(number, required=True),
    "rate": ColumnSpec(number),
    "unit": ColumnSpec(str),
    "strategy": ColumnSpec(str),
    "nodes": ColumnSpec(whole),
    "gpus_per_node": ColumnSpec(whole),
    "train_s": ColumnSpec(number),
    "compute_s": ColumnSpec(number),
    "comm_s": ColumnSpec(number, may_be_zero=True),
    "repeat": ColumnSpec(whole, may_be_zero=True),
    "parameters": ColumnSpec(whole),
    "images": ColumnSpec(whole),
    "samples": ColumnSpec(whole),
    "iterations": ColumnSpec(whole),
    "model": ColumnSpec(str),
    "gpu_model": ColumnSpec(str),
    "date": ColumnSpec(str),
}

REQUIRED = tuple(name for name, column in COLUMNS.items() if column.required)

INSTEAD = {"epoch_s": "rate"}
"""A column that may be given instead of a required one."""

OF_AN_EPOCH = ("epoch_s", "train_s", "compute_s", "comm_s", "iterations")
"""Columns that cannot be beside a rate."""


def read_fields(texts: dict[str, str], columns: Collection[str]) -> Fields:
    """Read the fields of a row, blank ones left out, of a file with these columns.

    Raises:
        RowError: required fields are missing, fields cannot be read or contradict each other; all
            are named.
    """
    values: dict[str, Any] = {}
    faults = []
    for name in REQUIRED:
        names = [n for n in (name, INSTEAD.get(name)) if n and (n in columns)]
        if not any(n in texts for n in names):
            faults.append(f"{' or '.join(names)} is missing")
    if "rate" in texts:
        faults += [f"rate and {name}: give one of them" for name in OF_AN_EPOCH if name in texts]
    if "images" in texts and "samples" in texts:
        faults.append("images and samples are the same: give one of them")
    for name, text in texts.items():
        try:
            values[name] = COLUMNS[name].read(text)
        except FieldError as error:
            faults.append(f"{name}={text}: {error}")
    if faults:
        raise RowError(faults)
    return Fields(**values)
