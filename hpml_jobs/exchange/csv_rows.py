"""A CSV file as numbered rows of text fields, its malformed lines, and how a field is read."""

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text import nearest

DELIMITERS = ",;\t"
"""Possible separators of fields; the header decides."""


class FieldError(UsageError):
    """A field of a row cannot be read."""


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


def share(text: str) -> float:
    """Read a share from 0 to 1; above 1 it is in per cent.

    Raises:
        FieldError: it is none.
    """
    value = number(text)
    if value > 100:
        raise FieldError("expected 0 to 1, or per cent")
    return value / 100 if value > 1 else value


class ColumnSpec(NamedTuple):
    """How the fields of a column are read; `instead` of a required one another may be given."""

    parse: Callable[[str], float | int | str]
    required: bool = False
    instead: str | None = None
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


class Row(NamedTuple):
    """A row: its first line (from 1), and its fields by column; blank fields are absent."""

    line: int
    fields: dict[str, str]


class Fault(NamedTuple):
    """A line, and what is wrong with it."""

    line: int
    text: str


class Rows(NamedTuple):
    """The columns of a file, its rows, and its malformed lines."""

    columns: tuple[str, ...]
    rows: list[Row]
    faults: list[Fault]


def read_rows(
    content: bytes, file: str, columns: Mapping[str, ColumnSpec], *, is_partial: bool = False
) -> Rows:
    """Read a CSV file in UTF-8 with a header; blank lines and blanks around fields are ignored.

    Its columns may be in any order, separated by comma, semicolon or tab. If `columns` are only a
    part (`is_partial`), it may have others too.

    Raises:
        HpmlError: it is not text, is empty, or its header lacks a required column or has an
            unknown one.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise HpmlError(
            f"{file} line {line} is not UTF-8 text; save the file as CSV UTF-8"
        ) from error
    delimiter = _delimiter(text, columns)
    rows, faults, header = list[Row](), list[Fault](), None
    line = 0
    try:
        for line, fields in _records(text, delimiter):
            if header is None:
                header = _header(fields, f"{file} line {line}", columns, is_partial=is_partial)
            elif any(fields[len(header) :]) or len(fields) < len(header):
                faults.append(Fault(line, _wrong_width(fields, header, delimiter)))
            else:
                pairs = zip(header, fields, strict=False)
                rows.append(Row(line, {name: field for name, field in pairs if field}))
    except csv.Error as error:
        faults.append(Fault(line + 1, f"cannot be read from here on: {error}"))
    if header is None:
        reason = faults[0].text if faults else "is empty"
        names = ",".join(name for name, column in columns.items() if column.required)
        raise HpmlError(f"{file} {reason}; its first line must name its columns: {names}")
    return Rows(header, rows, faults)


def _records(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield lines that are not blank: (number, fields without the blanks around them)."""
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    start = 1
    for fields in reader:
        line, start = start, reader.line_num + 1
        stripped = [field.strip() for field in fields]
        if any(stripped):
            yield line, stripped


def _delimiter(text: str, columns: Collection[str]) -> str:
    """Return the delimiter that makes most known columns of the first line that is not blank."""
    header = next((line for line in text.splitlines() if line.strip(f"{DELIMITERS} ")), "")

    def known(delimiter: str) -> int:
        return sum(field.strip(' "').lower() in columns for field in header.split(delimiter))

    return max(DELIMITERS, key=known)


def _header(
    fields: Sequence[str], line: str, columns: Mapping[str, ColumnSpec], *, is_partial: bool
) -> tuple[str, ...]:
    """Return the names of a file's columns.

    Raises:
        HpmlError: a name is unknown or given twice, or a required one is missing.
    """
    names = [name.lower() for name in fields]
    while not names[-1]:
        names.pop()
    for name in names:
        if name not in columns and not is_partial:
            near = nearest(name, columns, cutoff=0.65)  # `time` is not `date`
            hint = f"did you mean {near}? " if near else ""
            raise HpmlError(
                f"{line}: unknown column {name!r}; {hint}Columns are {', '.join(columns)}"
            )
        if names.count(name) > 1:
            raise HpmlError(f"{line}: column {name} is given {names.count(name)} times")
    required = {name: column.instead for name, column in columns.items() if column.required}
    missing = [name for name, instead in required.items() if not {name, instead} & {*names}]
    if missing:
        words = [f"{name} (or {other})" if other else name for name, other in required.items()]
        raise HpmlError(
            f"{line}: column {', '.join(missing)} is missing; required are {', '.join(words)}, "
            f"the file has {', '.join(names)}"
        )
    return tuple(names)


def _wrong_width(fields: Sequence[str], header: Sequence[str], delimiter: str) -> str:
    text = f"{len(fields)} fields where the header names {len(header)}"
    if delimiter == "," and len(fields) > len(header):
        text += "; for a decimal comma, write 48.612"
    return text
