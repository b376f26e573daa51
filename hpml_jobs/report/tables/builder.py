"""How a full table is put together: columns that know their value, page words and CSV name."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from hpml_jobs.core.cell import Device
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.merge.run_values import Values
from hpml_jobs.report.table import Block, Line, Sheet, Table
from hpml_jobs.report.text import captions, notes
from hpml_jobs.report.text import marks as judged
from hpml_jobs.report.text.numbers import DASH
from hpml_jobs.slurm.states import Outcome

T = TypeVar("T")


class Column(NamedTuple, Generic[T]):
    """One quantity: its name in the CSV with the unit, its value, and how it reads on a page.

    `head` is its heading there. None stands for no value; on a page that is the dash. Without a
    name it stands on pages only.
    """

    name: str
    head: str
    value: Callable[[T], Any]
    words: Callable[[Any], str] = str


class Columns(NamedTuple, Generic[T]):
    """Columns under one heading, which names their unit; `text`: read from the left.

    Without a heading they stand in the CSV only.
    """

    head: str
    columns: tuple[Column[T], ...]
    text: bool = False


class About(NamedTuple):
    """What a full table is called, what stands under it, and the `answer` above it."""

    label: str
    title: str
    corner: str
    caption: tuple[str, ...]
    on_screen: bool = True
    answer: str = ""


class RenderedTable(NamedTuple):
    """The parts of a table that follow from columns and items."""

    blocks: tuple[Block, ...]
    lines: tuple[Line, ...]
    sheet: Sheet


def drawn(
    items: Iterable[T],
    label: Callable[[T], str],
    heads: Sequence[Columns[T]],
    below: Callable[[T], Line | None] = lambda _: None,
    mark: Callable[[T], str] = lambda _: "",
) -> RenderedTable:
    """A line per item, and one `below` it where there is something to say; the sheet beside.

    `mark` stands before the first number of a line.
    """
    found = list(items)
    shown = [head for head in heads if head.head]
    lines = []
    for item in found:
        texts = [_text(column, item) for head in shown for column in head.columns]
        texts[0] = mark(item) + texts[0]
        lines.append(Line(label=label(item), texts=tuple(texts)))
        under = below(item)
        lines += [under] if under else []
    every = [column for head in heads for column in head.columns if column.name]
    return RenderedTable(
        blocks=tuple(_block(head) for head in shown),
        lines=tuple(lines),
        sheet=Sheet(
            columns=tuple(column.name for column in every),
            rows=tuple(tuple(column.value(item) for column in every) for item in found),
        ),
    )


def _block(head: Columns[Any]) -> Block:
    names = tuple(column.head for column in head.columns)
    return Block(head=head.head, columns=names if any(names) else (), words=head.text)


def _text(column: Column[T], item: T) -> str:
    value = column.value(item)
    return DASH if value is None else column.words(value)


def table(
    group: ConditionGroup, about: About, shown: RenderedTable, said: Iterable[str] = ()
) -> Table:
    """A full table of a group; `said` are the notes under it."""
    return Table(
        label=about.label,
        title=about.title,
        corner="" if group.imported else about.corner,
        blocks=shown.blocks,
        lines=shown.lines,
        caption=about.caption,
        setting=captions.setting(group),
        notes=tuple(said),
        on_screen=about.on_screen,
        sheet=shown.sheet,
        answer=about.answer,
    )


UNMEASURED = "not measured"
"""Why an entry with a time may have no line in a table of the instrumented epoch."""


def place(device: Device) -> Columns[Row]:
    """What says where an entry stands, for the CSV; on a page its label says so."""
    return Columns(
        "",
        (
            Column("strategy", "", lambda row: row.strategy.value),
            Column("row", "", lambda row: captions.row_label(row.setup, device)),
            Column("gpus", "", lambda row: row.gpus),
            Column("nodes", "", lambda row: row.nodes),
            Column("treatment", "", lambda row: row.treatment),
            Column("batch", "", lambda row: row.batch_per_gpu),
        ),
    )


def places(
    group: ConditionGroup,
    rows: Iterable[Row],
    heads: Sequence[Columns[Row]],
    below: Callable[[Row], Line | None] = lambda _: None,
) -> RenderedTable:
    """A line per entry, marked where it fails a check."""
    return drawn(
        rows,
        lambda row: label(group, row),
        (place(group.device), *heads),
        below,
        lambda row: judged.MARK if group.has_failed(row) else "",
    )


def label(group: ConditionGroup, row: Row) -> str:
    """Where an entry stands: `ddp 4-GPU b512`, 512 being the batch per GPU."""
    return f"{captions.full_label(row.setup, group.device)} b{row.batch_per_gpu}"


def rest(rows: Iterable[Row], own: Iterable[Row]) -> list[Row]:
    """The entries that stand at no place of `own`."""
    told = {row.place for row in own}
    return [row for row in rows if row.place not in told]


def left_out(group: ConditionGroup, why: str, rows: Iterable[Row]) -> list[str]:
    """A line for the entries that have no line in a table: those without any number, then others.

    `why` is the reason where a cell has its time.
    """
    found = [(_why(row, why), row.place) for row in rows]
    return notes.by_reason(found, lambda setup: captions.full_label(setup, group.device))


def _why(row: Row, why: str) -> str:
    if row.timing is not None:
        return why
    if row.outcome is Outcome.OOM:
        return "out of memory"
    return f"no number, the reason stands under {'Q1' if row.is_baseline else 'Table 1'}"


def of_values(name: str) -> Callable[[Row], float | None]:
    """A measured value of an entry by its name."""
    assert name in Values.__struct_fields__  # noqa: S101 - a misspelt column is a bug of ours
    return lambda row: getattr(row.values, name) if row.values else None
