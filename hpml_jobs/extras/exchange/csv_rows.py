"""A CSV file as numbered rows of text fields, its malformed lines, and how a field is read."""

import codecs
import csv
import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.core.text import few, nearest, ranges_text

DELIMITERS = ",;\t|"
"""Possible separators of fields; the header decides. Without any of them, blanks separate."""

_RULE = {*"-|:+= \t\r\n"}
"""The characters of a line between header and rows of a table in Markdown or in a terminal."""

_SECONDS = re.compile(r"\s*[(\[](s|secs?|seconds?)[)\]]$")
"""The unit of times, after the name of a column."""

_RATE = re.compile(r"/s(ec)?\b|per_s|throughput")
"""What the name of a column of rates contains."""

_SHOWN_COLUMNS, _SHOWN_CHARACTERS = 8, 40


class FieldError(UsageError):
    """A field of a row cannot be read."""


def whole(text: str) -> int:
    """Read a whole number; 128.0 is one too.

    Raises:
        FieldError: it is none.
    """
    _check_separators(text)
    if not re.fullmatch(r"[+-]?\d{1,18}(\.0*)?", text, re.ASCII):
        raise FieldError("expected a whole number")
    return int(text.partition(".")[0])


def number(text: str) -> float:
    """Read a finite number.

    Raises:
        FieldError: it is none.
    """
    _check_separators(text)
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        raise FieldError("expected a number") from None
    if not math.isfinite(number):
        raise FieldError("expected a finite number")
    return number


def _check_separators(text: str) -> None:
    if re.fullmatch(r"[+-]?[0-9.]*[,' \u00a0\u202f][0-9.,' \u00a0\u202f]*", text):
        raise FieldError(
            "use a decimal point, not a comma, and no thousands separators"
        )


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
        if self.may_be_zero and value < 0:
            raise FieldError("must be 0 or more")
        if not self.may_be_zero and value <= 0:
            raise FieldError("must be more than 0")
        return value


class CsvRow(NamedTuple):
    """A row: its first line (from 1), and its fields by column; blank fields are absent."""

    line: int
    fields: dict[str, str]

    def renamed(self, names: Mapping[str, str]) -> "CsvRow":
        """Return the fields of these columns under their new names."""
        fields = {
            names[column]: text
            for column, text in self.fields.items()
            if column in names
        }
        return CsvRow(self.line, fields)


class Fault(NamedTuple):
    """A line, and what is wrong with it."""

    line: int
    text: str


class Rows(NamedTuple):
    """A file: the line of its header, the columns, the rows, and the malformed lines.

    `comments` are the lines that begin with #.
    """

    header: str
    columns: tuple[str, ...]
    rows: list[CsvRow]
    faults: list[Fault]
    comments: list[int]

    def named(self) -> set[str]:
        """Return the names of the columns as `select` compares them."""
        return {_normal(name) for name in self.columns}

    def renamed(self, names: Mapping[str, str]) -> "Rows":
        """Return the table of these columns under their new names."""
        columns = tuple(names[column] for column in self.columns if column in names)
        return self._replace(
            columns=columns, rows=[row.renamed(names) for row in self.rows]
        )


def read_rows(content: bytes, file: str) -> Rows:
    """Read a CSV file with a header; blank lines and blanks around fields are ignored.

    It is in UTF-8, or in UTF-16 with a byte order mark.

    Raises:
        HpmlError: it is not text, is empty, or its first line has no names of columns.
    """
    comments, faults, rows = list[int](), list[Fault](), list[CsvRow]()
    lines = list(_lines(_decode(content, file), comments))
    delimiter = _delimiter(lines)
    records = _records(lines, delimiter, faults)
    first = next(records, None)
    if first is None:
        reason = faults[0].text if faults else "is empty"
        raise HpmlError(f"{file} {reason}; {_FIRST_LINE}")
    line, fields = first
    place = f"{file} line {line}"
    header = _header(fields, place)
    for line, fields in records:
        if delimiter == " " and not rows and len(fields) == len(header) + 1:
            header = ("", *header)  # row numbers, as pandas and R print them
        if any(fields[len(header) :]) or len(fields) < len(header):
            faults.append(Fault(line, _wrong_width(fields, header, delimiter)))
        else:
            pairs = zip(header, fields, strict=False)
            rows.append(CsvRow(line, {name: field for name, field in pairs if field}))
    return Rows(place, header, rows, faults, comments)


_FIRST_LINE = "its first line must name its columns: gpus,batch,epoch_s"


def _decode(content: bytes, file: str) -> str:
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise HpmlError(
            f"{file} line {line} is not UTF-8 text; save the file as CSV UTF-8"
        ) from error
    if "\0" in text:
        raise HpmlError(f"{file} is not UTF-8 text; save the file as CSV UTF-8")
    return text


def _lines(text: str, comments: list[int]) -> Iterator[str]:
    """Yield the lines; comments, whose numbers are added to `comments`, and rules are blank."""
    for number, line in enumerate(io.StringIO(text, newline=""), 1):
        is_comment = line.lstrip().startswith("#")
        if is_comment:
            comments.append(number)
        is_rule = ("-" in line or "=" in line) and _RULE.issuperset(line)
        yield "\n" if is_comment or is_rule else line


def _records(
    lines: Sequence[str], delimiter: str, faults: list[Fault]
) -> Iterator[tuple[int, list[str]]]:
    """Yield lines that are not blank: (number, fields without the blanks around them).

    They end where they cannot be read, which is added to `faults`.
    """
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    last, start = 0, 1
    try:
        for fields in reader:
            line, start = start, reader.line_num + 1
            stripped = [field.strip() for field in fields]
            if any(stripped):
                last = line
                yield line, stripped
    except csv.Error as error:
        faults.append(Fault(last + 1, f"cannot be read from here on: {error}"))


def _delimiter(lines: Iterable[str]) -> str:
    """Return the delimiter that is most often in the header, outside of quotes."""
    header = next((line for line in lines if line.strip()), "")
    unquoted = re.sub(r'"[^"]*"', "", header)
    delimiter = max(DELIMITERS, key=unquoted.count)
    return delimiter if delimiter in unquoted else " "


def _header(fields: Sequence[str], place: str) -> tuple[str, ...]:
    """Return the names of a file's columns, blank ones at the end left out."""
    names = [*fields]
    while not names[-1]:
        names.pop()
    for name in names:
        if re.fullmatch(r"[+-]?[0-9.,]+", name):
            raise HpmlError(
                f"{place}: {name} is no name of a column; {_FIRST_LINE} (a line that begins "
                "with # is a comment)"
            )
    return tuple(names)


class CsvSelection(NamedTuple):
    """The rows of a file with the fields of the columns that are read, and remarks on the rest."""

    table: Rows
    remarks: list[str]


def select(
    table: Rows, columns: Mapping[str, ColumnSpec], elsewhere: Collection[str] = ()
) -> CsvSelection:
    """Return the fields of these columns, which may be in any order.

    Other columns are ignored, but not one that is probably misspelt: a name that is like that of a
    column neither in the file nor given `elsewhere`.

    Raises:
        HpmlError: a name is misspelt or given twice, or a required column is missing.
    """
    present = [_normal(column) for column in table.columns]
    names = dict(zip(table.columns, present, strict=True))
    read = {column: name for column, name in names.items() if name in columns}
    selected = table.renamed(read)
    for name in selected.columns:
        if selected.columns.count(name) > 1:
            raise HpmlError(
                f"{table.header}: column {name} is given {selected.columns.count(name)} times"
            )
    given = {*present, *elsewhere}
    absent = {name: column for name, column in columns.items() if name not in given}
    unread = [column for column in table.columns if column not in read]
    for column in unread:
        _check_spelling(names[column], absent, table.header)
    _check_nameless(table)
    _check_required(present, columns, table.header)
    remarks = []
    if table.comments:
        remarks.append(f"comments were left out: lines {ranges_text(table.comments)}")
    if any(unread):
        remarks.append(f"columns that were not read: {names_text(unread)}")
    return CsvSelection(selected, remarks)


def _normal(name: str) -> str:
    """Return the name of a column in small letters, without the unit of times.

    >>> _normal("Epoch_s (s)"), _normal("seconds [sec]"), _normal("rate (images/s)")
    ('epoch_s', 'seconds', 'rate (images/s)')
    """
    return _SECONDS.sub("", name.lower())


def _check_spelling(name: str, absent: Mapping[str, ColumnSpec], header: str) -> None:
    base = name.partition("(")[0].partition("[")[0].strip()
    near = _meant(name, base, absent)
    is_time = base.endswith("_s") or base == "seconds"
    if is_time and near == base != name:
        raise HpmlError(
            f"{header}: unknown column {name!r}: convert it to the unit of {near} and name it so, "
            "or leave it out"
        )
    if near:
        raise HpmlError(
            f"{header}: unknown column {name!r}; did you mean {near}? Rename it, or leave it out"
        )


def _meant(name: str, base: str, absent: Mapping[str, ColumnSpec]) -> str | None:
    """Return the absent column that a name, without its unit `base`, probably means."""
    if _RATE.search(name):
        return "rate" if {"rate", "epoch_s"} <= absent.keys() else None
    if base in absent:
        return base
    required = [column for column, spec in absent.items() if spec.required]
    return nearest(name, required, cutoff=0.65) or nearest(name, absent, cutoff=0.7)


def _check_nameless(table: Rows) -> None:
    """Refuse a column without a name, unless it is blank or has the numbers of rows."""
    for row in table.rows:
        text = row.fields.get("", "")
        if not re.fullmatch(r"\d*(\.0)?", text, re.ASCII):
            number = table.columns.index("") + 1
            raise HpmlError(
                f"{table.header}: column {number} has no name (line {row.line}: {text}): name it"
            )


def _check_required(
    names: Collection[str], columns: Mapping[str, ColumnSpec], header: str
) -> None:
    required = {
        name: column.instead for name, column in columns.items() if column.required
    }
    missing = [
        name for name, instead in required.items() if not {name, instead} & {*names}
    ]
    if missing:
        words = [
            f"{name} (or {instead})" if instead else name
            for name, instead in required.items()
        ]
        raise HpmlError(
            f"{header}: column {', '.join(missing)} is missing; required are {', '.join(words)}, "
            f"the file has {names_text(names)}"
        )


def names_text(names: Iterable[str]) -> str:
    """Return the names of columns as a list, cut where it is long."""
    return few((name[:_SHOWN_CHARACTERS] for name in names if name), _SHOWN_COLUMNS)


def _wrong_width(fields: Sequence[str], header: Sequence[str], delimiter: str) -> str:
    text = f"{len(fields)} fields where the header names {len(header)}"
    if delimiter == "," and len(fields) > len(header):
        text += "; for a decimal comma, write 48.612"
    return text
