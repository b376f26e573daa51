"""Tables: one description of a column, the texts of a page, and the same numbers for programs."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar, get_type_hints

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.value import Value
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import DASH
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

T = TypeVar("T")

Number = float | None


class Column(NamedTuple):
    """A column on a page: its heading, and the text of its values; None is the dash.

    A line of a table is a NamedTuple. Its fields are the columns of the files, by their names,
    which have the unit; those whose annotation has a `Column` with a heading are on pages, too.
    `under` is the heading above this one and those beside it with the same. `words`: aligned to
    the left. `on_page_only`: not in the files. `doubt` names the field or property of the line that
    says whether its value gets the mark of checks. `parts` are the attributes of the value that
    the files have instead, by the ends of their names. `batch` is the batch per GPU that it is of;
    0: of none.
    """

    head: str = ""
    text: Callable[[Any], str] = str
    under: str = ""
    words: bool = False
    on_page_only: bool = False
    doubt: str = ""
    parts: Mapping[str, str] = {}
    batch: int = 0

    @property
    def is_on_page(self) -> bool:
        """Whether it has a heading."""
        return bool(self.head or self.under)


Columns = Mapping[str, Column]
"""The columns of a table by field."""


def columns_of(
    line: type[Any], without: Collection[str] = (), **names: str
) -> dict[str, Column]:
    """Return the columns of a table by the fields of its lines, but for those of `without`.

    Headings may contain `{names}`. A field that says whether another one is doubtful is no column.
    """
    hints = get_type_hints(line, include_extras=True)
    columns = {field: _column(hint) for field, hint in hints.items()}
    left_out = {*without, *(column.doubt for column in columns.values())}
    return {
        field: column._replace(
            head=column.head.format(**names), under=column.under.format(**names)
        )
        for field, column in columns.items()
        if field not in left_out
    }


def _column(hint: Any) -> Column:
    metadata = getattr(hint, "__metadata__", ())
    return next((item for item in metadata if type(item) is Column), Column())


def line_from(line: type[T], *sources: object, **values: object) -> T:
    """Return a line of `values`, for the other fields of the first of `sources` that has each."""
    for name in line.__annotations__.keys() - values.keys():
        source = next(source for source in sources if hasattr(source, name))
        values[name] = getattr(source, name)
    return line(**values)


class Block(NamedTuple):
    """Columns under one heading; without column names it is a single column."""

    head: str
    columns: tuple[str, ...]
    words: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns; a single empty name if it has none."""
        return self.columns or ("",)

    @property
    def width(self) -> int:
        """The number of columns."""
        return len(self.names)


class Line(NamedTuple):
    """One row: its label, then a text for every column of a page."""

    label: str
    texts: tuple[str, ...]


class Sheet(Value, frozen=True, kw_only=True):
    """Numbers for programs: unrounded, units in the names, None for no number."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class Table(Value, frozen=True, kw_only=True):
    """A table of rounded numbers with its caption and notes; `label` is unique in a group.

    `setting` (what was trained, on what) belongs to the caption; where all tables are in view, once
    is enough. Some tables have nothing but lines of text: their notes. `sheet` has the numbers
    unrounded.
    """

    label: str
    title: str
    corner: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    caption: tuple[str, ...]
    setting: str
    notes: tuple[str, ...] = ()
    sheet: Sheet | None = None

    @property
    def blocks(self) -> list[Block]:
        """Its columns, those side by side under the same heading together."""
        blocks = []
        for under, columns in groupby(self.columns, lambda column: column.under):
            heads = [(column.head, column.words) for column in columns]
            if under:
                names = tuple(head for head, _ in heads)
                blocks.append(Block(under, names, heads[0][1]))
            else:
                blocks += [Block(head, (), words) for head, words in heads]
        return blocks

    @property
    def two_level(self) -> bool:
        """Whether the columns of blocks have names."""
        return any(column.under for column in self.columns)

    def caption_after(self, printed: set[str], extra: Iterable[str] = ()) -> list[str]:
        """Return the caption lines that are not in `printed`; add them to it."""
        return _unseen([*self.caption, *extra], printed)

    def notes_after(self, printed: set[str]) -> list[str]:
        """Return the notes that are not in `printed`; add them to it."""
        return _unseen(self.notes, printed)


def _unseen(lines: Sequence[str], printed: set[str]) -> list[str]:
    new = [line for line in lines if line not in printed]
    printed |= {*lines}
    return new


class TableText(NamedTuple):
    """The words of a table.

    `affected` are its numbers, for the marks of checks. Lines of the caption that are empty are
    left out, as notes.
    """

    label: str
    title: str
    corner: str
    caption: tuple[str, ...]
    affected: Affected = Affected.TIME


def item_table(
    groups: Sequence[ConditionGroup],
    text: TableText,
    items: Sequence[tuple[str, object]],
    columns: Columns,
    notes: Iterable[str],
) -> Table:
    """Return a table of some groups with a line per item; each comes with its label."""
    lines = [Line(label, texts_of(columns, item)) for label, item in items]
    sheet = _sheet(columns, (item for _, item in items))
    return _table(groups, text, columns, lines, sheet, notes)


ROW_COLUMNS = ("strategy", "row", "gpus", "nodes", "treatment", "batch")


def line_table(
    group: ConditionGroup,
    text: TableText,
    lines: Sequence[tuple[Row, object]],
    columns: Columns,
    notes: Iterable[str] = (),
) -> Table:
    """Return a table of rows and their lines, each number marked if its row fails a check.

    In files, the row's place is before its numbers.
    """
    rows = [row for row, _ in lines]
    written = [
        Line(
            row_name(group, row),
            texts_of(columns, line, is_doubtful=text.affected in row.doubts),
        )
        for row, line in lines
    ]
    values = _sheet(columns, (line for _, line in lines))
    places = [
        (
            row.strategy.value,
            captions.row_label(row.setup, group.device),
            *(row.gpus, row.nodes, row.treatment, row.batch_per_gpu),
        )
        for row in rows
    ]
    sheet = Sheet(
        columns=ROW_COLUMNS + values.columns,
        rows=tuple(map(tuple.__add__, places, values.rows)),
    )
    notes = (*captions.explained(rows, text.affected), *notes)
    return _table([group], text, columns, written, sheet, notes)


def _table(  # noqa: PLR0913, PLR0917  (the parts of a table)
    groups: Sequence[ConditionGroup],
    text: TableText,
    columns: Columns,
    lines: Iterable[Line],
    sheet: Sheet,
    notes: Iterable[str],
) -> Table:
    return Table(
        label=text.label,
        title=text.title,
        corner=text.corner,
        columns=tuple(column for column in columns.values() if column.is_on_page),
        lines=tuple(lines),
        caption=tuple(filter(None, text.caption)),
        setting=" ".join(dict.fromkeys(map(captions.setting, groups))),
        notes=tuple(filter(None, notes)),
        sheet=sheet,
    )


def texts_of(
    columns: Columns, line: object, *, is_doubtful: bool = False
) -> tuple[str, ...]:
    """Return the text of each column on a page; of a doubtful line all are marked."""
    return tuple(
        _text(line, field, column, is_doubtful=is_doubtful)
        for field, column in columns.items()
        if column.is_on_page
    )


def _text(line: object, field: str, column: Column, *, is_doubtful: bool) -> str:
    value = getattr(line, field)
    if value is None:
        return DASH
    is_doubtful = is_doubtful and not isinstance(value, int)  # epochs, seeds
    if column.doubt:
        is_doubtful = getattr(line, column.doubt)
    return captions.mark(column.text(value), is_doubtful=is_doubtful)


def _sheet(columns: Columns, lines: Iterable[object]) -> Sheet:
    """Return the values of lines; of a value with parts, these instead."""
    fields = dict(_fields(columns))
    rows = (tuple(_value(line, *field) for field in fields.values()) for line in lines)
    return Sheet(columns=tuple(fields), rows=tuple(rows))


def _fields(columns: Columns) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each column of the files with its field, or its field and part."""
    for field, column in columns.items():
        for end, part in column.parts.items():
            yield field + end, (field, part)
        if not (column.on_page_only or column.parts):
            yield field, (field,)


def _value(line: object, field: str, part: str = "") -> Any:
    value = getattr(line, field)
    return getattr(value, part, None) if part else value


UNMEASURED = "not measured"
"""Why a row with a time may have no line in a table of the instrumented epoch."""


def row_name(group: ConditionGroup, row: Row) -> str:
    """Return the label of a row where strategies share a table: `4 GPUs, batch 512 (fsdp)`."""
    return captions.cell_words(row.place, group.device)


def missing_rows(rows: Iterable[Row], table_rows: Iterable[Row]) -> list[Row]:
    """Return the rows at places that `table_rows` has not."""
    places = {row.place for row in table_rows}
    return [row for row in rows if row.place not in places]


def left_out(group: ConditionGroup, why: str, rows: Iterable[Row]) -> list[str]:
    """Return notes on rows without a line in a table: those without any number, then others.

    `why` is the reason for rows that have their time.
    """
    reasons = [(_why(row, why), row.place) for row in rows]
    return captions.by_reason(reasons, group.device)


def _why(row: Row, why: str) -> str:
    if row.timing is not None:
        return why
    if row.outcome is Outcome.OOM:
        return "out of memory"
    return f"no number; see {'Q1' if row.is_baseline else 'Table 1'} for the reason"
