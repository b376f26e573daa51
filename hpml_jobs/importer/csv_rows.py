"""A CSV file as numbered rows of text fields, and its malformed lines."""

import csv
import difflib
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hpml_jobs.errors import HpmlError

DELIMITERS = ",;\t"
"""Possible separators of fields; the header decides."""


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
    content: bytes,
    file: str,
    required: Sequence[str],
    instead: Mapping[str, str],
    allowed: Sequence[str],
) -> Rows:
    """Read a CSV file in UTF-8 with a header; blank lines and blanks around fields are ignored.

    Columns may be in any order, separated by comma, semicolon or tab; `instead` of a required one
    another may be given.

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
    delimiter = _delimiter(text, allowed)
    rows, faults, columns = list[Row](), list[Fault](), None
    line = 0
    try:
        for line, fields in _records(text, delimiter):
            if columns is None:
                columns = _columns(fields, f"{file} line {line}", required, instead, allowed)
            elif any(fields[len(columns) :]) or len(fields) < len(columns):
                faults.append(Fault(line, _wrong_width(fields, columns, delimiter)))
            else:
                pairs = zip(columns, fields, strict=False)
                rows.append(Row(line, {name: field for name, field in pairs if field}))
    except csv.Error as error:
        faults.append(Fault(line + 1, f"cannot be read from here on: {error}"))
    if columns is None:
        reason = faults[0].text if faults else "is empty"
        names = ",".join(required)
        raise HpmlError(f"{file} {reason}; its first line must name its columns: {names}")
    return Rows(columns, rows, faults)


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


def _delimiter(text: str, allowed: Sequence[str]) -> str:
    """Return the delimiter that makes most known columns of the first line that is not blank."""
    header = next((line for line in text.splitlines() if line.strip(f"{DELIMITERS} ")), "")

    def columns(delimiter: str) -> int:
        return sum(field.strip(' "').lower() in allowed for field in header.split(delimiter))

    return max(DELIMITERS, key=columns)


def _columns(
    header: list[str],
    line: str,
    required: Sequence[str],
    instead: Mapping[str, str],
    allowed: Sequence[str],
) -> tuple[str, ...]:
    names = [name.lower() for name in header]
    while not names[-1]:
        names.pop()
    for name in names:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.65)
            hint = f"did you mean {near[0]}? " if near else ""
            raise HpmlError(
                f"{line}: unknown column {name!r}; {hint}Columns are {', '.join(allowed)}"
            )
        if names.count(name) > 1:
            raise HpmlError(f"{line}: column {name} is given {names.count(name)} times")
    missing = [name for name in required if not {name, instead.get(name)} & {*names}]
    if missing:
        words = [f"{name} (or {instead[name]})" if name in instead else name for name in required]
        raise HpmlError(
            f"{line}: column {', '.join(missing)} is missing; required are {', '.join(words)}, "
            f"the file has {', '.join(names)}"
        )
    return tuple(names)


def _wrong_width(fields: list[str], columns: Sequence[str], delimiter: str) -> str:
    text = f"{len(fields)} fields where the header names {len(columns)}"
    if delimiter == "," and len(fields) > len(columns):
        text += "; for a decimal comma, write 48.612"
    return text
