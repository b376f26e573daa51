"""Tables and sheets: columns with a value, its text, and its name in the CSV."""

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import DASH
from hpml_jobs.report.frame.table import Block, Line, Sheet, Table
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

T = TypeVar("T")
V = TypeVar("V")

Number = float | None


class Column(NamedTuple, Generic[T]):
    """One quantity: its name in the CSV with the unit, its value, and its text on a page.

    `head` is its heading there. None stands for no value; on a page that is the dash. Without a
    name it is on pages only. Values that `is_doubtful` get the mark of checks. Made by `column`,
    which checks that the text fits the value.
    """

    name: str
    head: str
    value: Callable[[T], Any]
    text: Callable[[Any], str]
    below: Callable[[T], str]
    is_doubtful: Callable[[T], bool] = lambda _: False


def column(
    name: str,
    head: str,
    value: Callable[[T], V | None],
    text: Callable[[V], str] = str,
    below: Callable[[T], str] = lambda _: "",
) -> Column[T]:
    """Return a column whose values `text` can write; `below` is a text in the line below."""
    return Column(name, head, value, text, below)


class Columns(NamedTuple, Generic[T]):
    """Columns under one heading, which names their unit; `words`: aligned to the left.

    Without a heading they are in the CSV only.
    """

    head: str
    columns: tuple[Column[T], ...]
    words: bool = False


class Shown(NamedTuple):
    """How a field of a line is shown on a page: its heading, and the text of its value.

    A line is a value whose fields are the columns of a table, by their names in the CSV; a field
    with no `Shown` in its annotation is in the CSV only. `under` is the heading above this one and
    those beside it with the same. `on_page_only`: not in the CSV. `words`: aligned to the left.
    `doubt` names the property or field of the line that says whether its value gets the mark of
    checks. `parts` are the attributes of the value that the CSV has instead, by the ends of their
    names.
    """

    head: str
    text: Callable[[Any], str] = str
    under: str = ""
    on_page_only: bool = False
    words: bool = False
    doubt: str = ""
    parts: Mapping[str, str] = {}


def columns_of(
    line: type[T],
    without: Collection[str] = (),
    **names: str,
) -> tuple[Columns[T], ...]:
    """Return the columns of a table by the fields of its lines, but for those of `without`.

    Headings may contain `{names}`. A field that says whether another one is doubtful is no column.
    """
    columns: list[Columns[T]] = []
    hints = get_type_hints(line, include_extras=True)
    shown = {field: _shown(hint) for field, hint in hints.items()}
    doubts = {display.doubt for display in shown.values() if display}
    for field in [field for field in shown if field not in {*without, *doubts}]:
        display = shown[field]
        if display is None:
            field_column = column(field, "", operator.attrgetter(field))
            columns.append(Columns("", (field_column,)))
            continue
        head = display.head.format(**names)
        under = display.under.format(**names)
        field_column = _column_on_page(field, display)
        if not under:
            columns.append(Columns(head, (field_column,), words=display.words))
        else:
            field_column = field_column._replace(head=head)
            is_same = bool(columns) and columns[-1].head == under
            beside = columns.pop().columns if is_same else ()
            columns.append(Columns(under, (*beside, field_column), words=display.words))
        if display.parts:
            parts = tuple(_part(field, *part) for part in display.parts.items())
            columns.append(Columns("", parts))
    return tuple(columns)


def _shown(hint: Any) -> Shown | None:
    """Return how a field is shown by its annotation; None of one that is in the CSV only."""
    metadata = getattr(hint, "__metadata__", ())
    return next((item for item in metadata if type(item) is Shown), None)


def _column_on_page(field: str, display: Shown) -> Column[Any]:
    """Return the column of a field without its heading; its parts are in the CSV instead."""
    name = "" if display.on_page_only or display.parts else field
    shown: Column[Any] = column(name, "", operator.attrgetter(field), display.text)
    if not display.doubt:
        return shown
    return shown._replace(is_doubtful=operator.attrgetter(display.doubt))


def _part(field: str, end: str, name: str) -> Column[Any]:
    return column(
        f"{field}{end}", "", lambda line: getattr(getattr(line, field), name, None)
    )


def filled(line: type[T], *sources: object, **values: object) -> T:
    """Return a line of `values`, for the other fields of the first of `sources` that has each."""
    for name in line.__annotations__.keys() - values.keys():
        source = next(source for source in sources if hasattr(source, name))
        values[name] = getattr(source, name)
    return line(**values)


class TableText(NamedTuple):
    """The words of a full table.

    `answer` is a sentence above it; `below` labels the lines below rows; `affected` are its
    numbers, for the marks of checks. Lines of the caption that are empty are left out, as notes.
    """

    label: str
    title: str
    corner: str
    caption: tuple[str, ...]
    answer: str = ""
    below: str = ""
    affected: Affected = Affected.TIME


def item_table(
    groups: Sequence[ConditionGroup],
    text: TableText,
    items: Iterable[tuple[str, T]],
    heads: Sequence[Columns[T]],
    notes: Iterable[str] = (),
) -> Table:
    """Return a table of some groups with a line per item; each comes with its label."""
    listed = list(items)
    lines = [Line(label=label, texts=texts_of(heads, item)) for label, item in listed]
    sheet = _sheet(heads, (item for _, item in listed))
    return _table(groups, text, heads, lines, sheet, notes)


ROW_COLUMNS = ("strategy", "row", "gpus", "nodes", "treatment", "batch")


def line_table(
    group: ConditionGroup,
    text: TableText,
    lines: Sequence[tuple[Row, T]],
    heads: Sequence[Columns[T]],
    notes: Iterable[str] = (),
) -> Table:
    """Return a table of rows and their lines, each marked if its row fails a check."""
    written = []
    for row, line in lines:
        texts = captions.marked(group, row, texts_of(heads, line), text.affected)
        written.append(Line(label=row_name(group, row), texts=texts))
        below = tuple(column.below(line) for column in _on_page(heads))
        if any(below):
            written.append(Line(label=text.below, texts=below))
    rows = [row for row, _ in lines]
    values = _sheet(heads, (line for _, line in lines))
    sheet = row_sheet(group, values.columns, zip(rows, values.rows, strict=True))
    notes = (*captions.explained(group, rows, text.affected), *notes)
    return _table([group], text, heads, written, sheet, notes)


def row_sheet(
    group: ConditionGroup,
    columns: tuple[str, ...],
    lines: Iterable[tuple[Row, tuple[Any, ...]]],
) -> Sheet:
    """Return the values of rows for programs, each after the row's place."""
    rows = []
    for row, values in lines:
        label = captions.row_label(row.setup, group.device)
        size = (row.gpus, row.nodes, row.treatment, row.batch_per_gpu)
        rows.append((row.strategy.value, label, *size, *values))
    return Sheet(columns=ROW_COLUMNS + columns, rows=tuple(rows))


def _table(  # noqa: PLR0913, PLR0917  (the parts of a table)
    groups: Sequence[ConditionGroup],
    text: TableText,
    heads: Sequence[Columns[T]],
    lines: Iterable[Line],
    sheet: Sheet,
    notes: Iterable[str],
) -> Table:
    is_imported = bool(groups) and all(group.imported for group in groups)
    return Table(
        label=text.label,
        title=text.title,
        corner="" if is_imported else text.corner,
        blocks=tuple(_block(head) for head in heads if head.head),
        lines=tuple(lines),
        caption=tuple(line for line in text.caption if line),
        setting=" ".join(dict.fromkeys(map(captions.setting, groups))),
        notes=tuple(note for note in notes if note),
        sheet=sheet,
        answer=text.answer,
    )


def _block(head: Columns[T]) -> Block:
    names = tuple(column.head for column in head.columns)
    return Block(head=head.head, columns=names if any(names) else (), words=head.words)


def _on_page(heads: Sequence[Columns[T]]) -> list[Column[T]]:
    return [column for head in heads if head.head for column in head.columns]


def texts_of(heads: Sequence[Columns[T]], item: T) -> tuple[str, ...]:
    """Return the text of each column on a page."""
    return tuple(_text(column, item) for column in _on_page(heads))


def _text(column: Column[T], item: T) -> str:
    value = column.value(item)
    if value is None:
        return DASH
    return captions.mark(column.text(value), is_doubtful=column.is_doubtful(item))


def _sheet(heads: Sequence[Columns[T]], items: Iterable[T]) -> Sheet:
    columns = [column for head in heads for column in head.columns if column.name]
    return Sheet(
        columns=tuple(column.name for column in columns),
        rows=tuple(tuple(column.value(item) for column in columns) for item in items),
    )


UNMEASURED = "not measured"
"""Why a row with a time may have no line in a table of the instrumented epoch."""


def row_name(group: ConditionGroup, row: Row) -> str:
    """Return the label of a row where strategies share a table: `ddp 4-GPU b512`."""
    return captions.cell_label(row.place, group.device)


def rest(rows: Iterable[Row], table_rows: Iterable[Row]) -> list[Row]:
    """Return the rows at places that `table_rows` has not."""
    places = {row.place for row in table_rows}
    return [row for row in rows if row.place not in places]


def left_out(group: ConditionGroup, why: str, rows: Iterable[Row]) -> list[str]:
    """Return notes on the rows without a line in a table: those without any number, then others.

    `why` is the reason for rows that have their time.
    """
    reasons = [(_why(row, why), row.place) for row in rows]
    return captions.by_reason(reasons, group.device, captions.full_label)


def _why(row: Row, why: str) -> str:
    if row.timing is not None:
        return why
    if row.outcome is Outcome.OOM:
        return "out of memory"
    return f"no number; see {'Q1' if row.is_baseline else 'Table 1'} for the reason"
