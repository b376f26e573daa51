"""Full tables: columns with a value, its text, and its name in the CSV."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints

import msgspec

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.strategies import Device
from hpml_jobs.report.frame import captions, marks
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.marks import by_reason
from hpml_jobs.report.frame.numbers import DASH
from hpml_jobs.report.frame.rows import Row, Setup
from hpml_jobs.report.frame.table import Block, Line, Sheet, Table
from hpml_jobs.slurm.states import Outcome

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

    def marked_if(self, is_doubtful: Callable[[T], bool]) -> "Column[T]":
        """Return the column with the mark at the values of doubtful items."""
        return self._replace(is_doubtful=is_doubtful)


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
    line: type[T], without: Collection[str] = (), **names: str
) -> tuple[Columns[T], ...]:
    """Return the columns of a table by the fields of its lines, but for those of `without`.

    Headings may contain `{names}`.
    """
    columns: list[Columns[T]] = []
    for field, hint in get_type_hints(line, include_extras=True).items():
        if field in without:
            continue
        metadata = getattr(hint, "__metadata__", ())
        shown = next((item for item in metadata if isinstance(item, Shown)), None)
        if shown is None:
            columns.append(Columns("", (column(field, "", attrgetter(field)),)))
            continue
        head, under = shown.head.format(**names), shown.under.format(**names)
        made: Column[T] = column(
            "" if shown.on_page_only or shown.parts else field,
            head if under else "",
            attrgetter(field),
            shown.text,
        )
        if shown.doubt:
            made = made.marked_if(attrgetter(shown.doubt))
        if under and columns and columns[-1].head == under:
            columns[-1] = columns[-1]._replace(columns=(*columns[-1].columns, made))
        else:
            columns.append(Columns(under or head, (made,), words=shown.words))
        if shown.parts:
            columns.append(Columns("", tuple(_part(field, *part) for part in shown.parts.items())))
    return tuple(columns)


def _part(field: str, end: str, name: str) -> Column[Any]:
    return column(f"{field}{end}", "", lambda line: getattr(getattr(line, field), name, None))


def filled(line: type[T], source: object, **values: object) -> T:
    """Return a line of `values`, and of the attributes of `source` for the other fields."""
    fields = {name: getattr(source, name) for name in get_type_hints(line) if name not in values}
    return line(**fields, **values)


class TableText(NamedTuple):
    """The words of a full table.

    `answer` is a sentence above it; `below` labels the lines below rows; `affected` are its
    numbers, for the marks of checks.
    """

    label: str
    title: str
    corner: str
    caption: tuple[str, ...]
    on_screen: bool = True
    answer: str = ""
    below: str = ""
    affected: Affected = Affected.TIME


_SETUP_VALUES: dict[str, Callable[[Setup], int | str]] = {
    "strategy": lambda setup: setup.strategy.value,
    "gpus": lambda setup: setup.gpus,
    "nodes": lambda setup: setup.nodes,
    "treatment": lambda setup: setup.treatment,
}

PLACE_COLUMNS = tuple(_SETUP_VALUES)
"""The columns that name a setup in the CSV; on a page the label of the line names it."""


def place_values(setup: Setup, names: Sequence[str] = PLACE_COLUMNS) -> tuple[int | str, ...]:
    """Return the values of a setup's columns."""
    return tuple(_SETUP_VALUES[name](setup) for name in names)


def place_columns(
    setup_of: Callable[[T], Setup], names: Sequence[str] = PLACE_COLUMNS
) -> tuple[Column[T], ...]:
    """Return the columns of each item's setup."""
    return tuple(_place_column(setup_of, name) for name in names)


def _place_column(setup_of: Callable[[T], Setup], name: str) -> Column[T]:
    return column(name, "", lambda item: _SETUP_VALUES[name](setup_of(item)))


def item_table(
    groups: Sequence[ConditionGroup],
    text: TableText,
    items: Iterable[tuple[str, T]],
    heads: Sequence[Columns[T]],
    notes: Iterable[str] = (),
) -> Table:
    """Return a table of one or several groups with a line per item; each comes with its label."""
    return _table(_of_groups(groups, text), text, _blocks(heads), _body(items, heads, notes))


def ungrouped_table(
    setting: str,
    text: TableText,
    items: Iterable[tuple[str, T]],
    heads: Sequence[Columns[T]],
    notes: Iterable[str] = (),
) -> Table:
    """Return the same of items that belong to no condition group, with their setting in words."""
    return _table(Top(text.corner, setting), text, _blocks(heads), _body(items, heads, notes))


def _body(
    items: Iterable[tuple[str, T]], heads: Sequence[Columns[T]], notes: Iterable[str]
) -> "Body":
    listed = list(items)
    lines = tuple(Line(label=label, texts=_texts(heads, item)) for label, item in listed)
    return Body(lines, _sheet(heads, (item for _, item in listed)), tuple(notes))


def row_table(
    group: ConditionGroup,
    text: TableText,
    rows: Iterable[Row],
    heads: Sequence[Columns[Row]],
    notes: Iterable[str] = (),
) -> Table:
    """Return a table with a line per row, marked if it fails a check."""
    return line_table(group, text, [(row, row) for row in rows], heads, notes)


def line_table(
    group: ConditionGroup,
    text: TableText,
    lines: Sequence[tuple[Row, T]],
    heads: Sequence[Columns[T]],
    notes: Iterable[str] = (),
) -> Table:
    """Return a table of rows and their lines, each marked if its row fails a check."""
    place, written = (_row_place(group.device),), []
    for row, line in lines:
        texts = marks.marked(group, row, _texts(heads, line), text.affected)
        written.append(Line(label=row_name(group, row), texts=texts))
        below = tuple(column.below(line) for column in _on_page(heads))
        if any(below):
            written.append(Line(label=text.below, texts=below))
    rows = [row for row, _ in lines]
    places, values = _sheet(place, rows), _sheet(heads, (line for _, line in lines))
    sheet = Sheet(
        columns=places.columns + values.columns,
        rows=tuple(
            of_place + of_line for of_place, of_line in zip(places.rows, values.rows, strict=True)
        ),
    )
    body = Body(tuple(written), sheet, (*marks.explained(group, rows, text.affected), *notes))
    return _table(_of_groups([group], text), text, _blocks(heads), body)


def _row_place(device: Device) -> Columns[Row]:
    def setup(row: Row) -> Setup:
        return row.setup

    return Columns(
        "",
        (
            *place_columns(setup, ["strategy"]),
            column("row", "", lambda row: captions.row_label(row.setup, device)),
            *place_columns(setup, ["gpus", "nodes", "treatment"]),
            column("batch", "", lambda row: row.batch_per_gpu),
        ),
    )


class Body(NamedTuple):
    """The parts of a table that follow from its items."""

    lines: tuple[Line, ...]
    sheet: Sheet
    notes: tuple[str, ...]


class Top(NamedTuple):
    """The corner of a table, its setting (what was trained, on what), and the name of its times."""

    corner: str
    setting: str
    time: str = "epoch"


def _of_groups(groups: Sequence[ConditionGroup], text: TableText) -> Top:
    return Top(
        corner="" if all(group.imported for group in groups) else text.corner,
        setting=" ".join(dict.fromkeys(map(captions.setting, groups))),
        time=captions.time_word(next((group.work for group in groups if group.work), None)),
    )


def _table(top: Top, text: TableText, blocks: tuple[Block, ...], body: Body) -> Table:
    return Table(
        label=text.label,
        title=text.title,
        corner=top.corner,
        blocks=blocks,
        lines=body.lines,
        caption=text.caption,
        setting=top.setting,
        notes=body.notes,
        on_screen=text.on_screen,
        sheet=_named(body.sheet, top.time),
        answer=text.answer,
    )


def _blocks(heads: Sequence[Columns[T]]) -> tuple[Block, ...]:
    return tuple(_block(head) for head in heads if head.head)


def _block(head: Columns[T]) -> Block:
    names = tuple(column.head for column in head.columns)
    return Block(head=head.head, columns=names if any(names) else (), words=head.words)


def _on_page(heads: Sequence[Columns[T]]) -> list[Column[T]]:
    return [column for head in heads if head.head for column in head.columns]


def _texts(heads: Sequence[Columns[T]], item: T) -> tuple[str, ...]:
    return tuple(_text(column, item) for column in _on_page(heads))


def _text(column: Column[T], item: T) -> str:
    value = column.value(item)
    if value is None:
        return DASH
    return marks.mark(column.text(value), is_doubtful=column.is_doubtful(item))


def _sheet(heads: Sequence[Columns[T]], items: Iterable[T]) -> Sheet:
    columns = [column for head in heads for column in head.columns if column.name]
    return Sheet(
        columns=tuple(column.name for column in columns),
        rows=tuple(tuple(column.value(item) for column in columns) for item in items),
    )


def _named(sheet: Sheet, time: str) -> Sheet:
    """Return the sheet with time_s for epoch_s where times are of other work than an epoch."""
    columns = tuple(name.replace("epoch", time) for name in sheet.columns)
    return msgspec.structs.replace(sheet, columns=columns)


UNMEASURED = "not measured"
"""Why a row with a time may have no line in a table of the instrumented epoch."""


def row_name(group: ConditionGroup, row: Row) -> str:
    """Return the label of a row where strategies share a table: `ddp 4-GPU b512`."""
    return captions.cell_label(row.place, group.device)


def rest(rows: Iterable[Row], shown: Iterable[Row]) -> list[Row]:
    """Return the rows at places that `shown` has not."""
    places = {row.place for row in shown}
    return [row for row in rows if row.place not in places]


def left_out(group: ConditionGroup, why: str, rows: Iterable[Row]) -> list[str]:
    """Return notes on the rows without a line in a table: those without any number, then others.

    `why` is the reason for rows that have their time.
    """
    reasons = [(_why(row, why), row.place) for row in rows]
    return by_reason(reasons, lambda setup: captions.full_label(setup, group.device))


def _why(row: Row, why: str) -> str:
    if row.timing is not None:
        return why
    if row.outcome is Outcome.OOM:
        return "out of memory"
    return f"no number; see {'Q1' if row.is_baseline else 'Table 1'} for the reason"
