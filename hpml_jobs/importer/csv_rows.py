"""A CSV file as numbered rows of text; what is wrong with its form is said by line."""

import csv
import difflib
import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpml_jobs.errors import HpmlError

DELIMITERS = ",;\t"
"""What may stand between two fields; the header decides."""


class Row(NamedTuple):
    """One row: the line it begins in (from 1), and its fields by column; blank ones are absent."""

    line: int
    fields: dict[str, str]


class Fault(NamedTuple):
    """What is wrong in one line."""

    line: int
    text: str


class Rows(NamedTuple):
    """All rows of a file, its columns, and the lines that are no rows."""

    columns: tuple[str, ...]
    rows: list[Row]
    faults: list[Fault]


def read_rows(content: bytes, place: str, needed: Sequence[str], known: Sequence[str]) -> Rows:
    """Rows of a CSV file in UTF-8 with a header; blank lines and blanks around fields do not count.

    Columns may stand in any order, separated by comma, semicolon or tab.

    Raises:
        HpmlError: it is not text, empty, or its header lacks or invents a column.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = content[: fault.start].count(b"\n") + 1
        raise HpmlError(
            f"{place} line {line} is not UTF-8 text; save it as CSV UTF-8, comma separated"
        ) from fault
    delimiter = _delimiter(text, known)
    rows, faults, columns = list[Row](), list[Fault](), None
    line = 0
    try:
        for line, fields in _records(text, delimiter):
            if columns is None:
                columns = _columns(fields, f"{place} line {line}", needed, known)
            elif any(fields[len(columns) :]) or len(fields) < len(columns):
                faults.append(Fault(line, _wrong_width(fields, columns, delimiter)))
            else:
                pairs = zip(columns, fields, strict=False)
                rows.append(Row(line, {name: field for name, field in pairs if field}))
    except csv.Error as fault:
        faults.append(Fault(line + 1, f"cannot be read from here on: {fault}"))
    if columns is None:
        why = faults[0].text if faults else "is empty"
        raise HpmlError(f"{place} {why}; its first line must name columns: {','.join(needed)}")
    return Rows(columns, rows, faults)


def _records(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Lines with anything in them: (number, fields without the blanks around them)."""
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True
    )
    start = 1
    for fields in reader:
        line, start = start, reader.line_num + 1
        stripped = [field.strip() for field in fields]
        if any(stripped):
            yield line, stripped


def _delimiter(text: str, known: Sequence[str]) -> str:
    """The one that makes most known columns of the first line with anything in it."""
    header = next((line for line in text.splitlines() if line.strip(f"{DELIMITERS} ")), "")

    def columns(delimiter: str) -> int:
        return sum(field.strip(' "').lower() in known for field in header.split(delimiter))

    return max(DELIMITERS, key=columns)


def _columns(
    header: list[str], place: str, needed: Sequence[str], known: Sequence[str]
) -> tuple[str, ...]:
    names = [name.lower() for name in header]
    while not names[-1]:
        names.pop()
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.65)
            hint = f"did you mean {near[0]}? " if near else ""
            raise HpmlError(f"{place}: unknown column {name!r}; {hint}Known: {', '.join(known)}")
        if names.count(name) > 1:
            raise HpmlError(f"{place}: column {name} is there {names.count(name)} times")
    missing = [name for name in needed if name not in names]
    if missing:
        raise HpmlError(
            f"{place}: no column {', '.join(missing)}; needed are {', '.join(needed)}, "
            f"there are {', '.join(names)}"
        )
    return tuple(names)


def _wrong_width(fields: list[str], columns: Sequence[str], delimiter: str) -> str:
    text = f"{len(fields)} fields where the header names {len(columns)}"
    if delimiter == "," and len(fields) > len(columns):
        text += "; a decimal comma? Write 48.612"
    return text
