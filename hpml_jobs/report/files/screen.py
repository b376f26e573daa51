"""The report in the terminal: tables as wide as the console, split into blocks if narrow."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import rich.table
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from hpml_jobs.report.frame.captions import MARK
from hpml_jobs.report.frame.numbers import DASH, OOM
from hpml_jobs.report.frame.table import Block, Table
from hpml_jobs.report.report import Report, ReportGroup

_STYLES = {DASH: "dim", OOM: "bold red"}


def show(report: Report, console: Console) -> None:
    """Print all tables of a report; none is truncated, whatever the console's width."""
    if not report.groups and not report.unplaced:
        console.print(Text(f"Study {report.study} has no cells yet."))
    show_differences(report, console)
    for group in report.groups:
        _show_group(group, console, several=report.several)
    for table in report.tables:
        _show_table(table, console, set())
        console.print()
    _show_file_tables(report, console)
    show_unplaced(report, console)


def show_differences(report: Report, console: Console) -> None:
    """Print the conditions in which groups differ."""
    if report.several:
        head = f"{len(report.groups)} groups of cells under different conditions; they differ in:"
        console.print(Text(head, style="bold yellow"))
        bullets(report.differences, console)


def show_unplaced(report: Report, console: Console, most: int | None = None) -> None:
    """Print the cells that cannot be read; at most `most` of them."""
    if report.unplaced:
        console.print(Text("Not in any table:", style="bold yellow"))
        lines = [f"{result.slug}: {result.reason}" for result in report.unplaced]
        bullets(first_lines(lines, most), console)


def first_lines(lines: Sequence[str], most: int | None) -> list[str]:
    """Return the first lines, and the number of the others; all if `most` is None."""
    if most is None or len(lines) <= most:
        return list(lines)
    return [*lines[:most], f"and {len(lines) - most} more"]


def _show_group(group: ReportGroup, console: Console, *, several: bool) -> None:
    show_title(group, console, several=several)
    console.print(Text(group.setting), width=prose_width(console))
    console.print(Text(group.usability, style="bold"), width=prose_width(console))
    if group.suggestion:
        console.print(Text(group.suggestion), width=prose_width(console))
    printed: set[str] = set()
    for table in group.tables:
        if table.on_screen:
            _show_table(table, console, printed)
    console.print()


def show_title(group: ReportGroup, console: Console, *, several: bool) -> None:
    """Print the title of a group, and what distinguishes it from the others."""
    number = f"Group {group.number}: " if several else ""
    title = Rule(Text(f"{number}{group.title}", style="bold"), style="dim")
    console.print(title, width=prose_width(console))
    if group.differences:
        differences = Text(f"Separated because of: {group.differences}.", style="yellow")
        console.print(differences, width=prose_width(console))


def show_table(table: Table, console: Console) -> None:
    """Print one table with its answer, caption and notes."""
    _show_table(table, console, set())


def _show_table(table: Table, console: Console, printed: set[str]) -> None:
    """Print a table, its caption, and the notes that are not yet in `printed`."""
    console.print()
    console.print(Text(table.title, style="bold cyan"))
    if table.answer:
        console.print(Text(table.answer), width=prose_width(console))
    for text in drawn(table, console.width):
        console.print(text, no_wrap=True, overflow="ignore", crop=False)
    caption = table.caption_after(printed)
    if caption:
        console.print(Text("\n".join(caption), style="dim"), width=prose_width(console))
    notes = table.notes_after(printed)
    if notes:
        bullets(notes, console)


def _show_file_tables(report: Report, console: Console) -> None:
    """Print the titles of the tables that are only in the report's files."""
    tables = (table for group in report.groups for table in group.tables)
    titles = dict.fromkeys(table.title for table in tables if not table.on_screen)
    if titles:
        line = f"Only in tables.md and as CSV: {', '.join(titles)}."
        console.print(Text(line, style="bold"), width=prose_width(console))


def bullets(lines: Iterable[str], console: Console) -> None:
    """Print a line with a bullet each."""
    grid = rich.table.Table.grid(padding=(0, 1))
    for line in lines:
        grid.add_row(Text("•", style="yellow"), Text(line))
    console.print(grid, width=prose_width(console))


def prose_width(console: Console) -> int:
    """Return the width of running text: at most 110 columns, so that it stays readable."""
    return min(console.width, 110)


def drawn(table: Table, width: int) -> Iterator[Text]:
    """Yield the table's lines; blocks that do not fit follow below, with the same row labels."""
    if not table.lines:
        return
    labels = [table.corner, *(line.label for line in table.lines)]
    label_width = max(map(len, labels))
    blocks = list(_blocks(table))
    while blocks:
        taken, used = 1, label_width + 3 + blocks[0].width
        while taken < len(blocks) and used + 3 + blocks[taken].width <= width:
            used += 3 + blocks[taken].width
            taken += 1
        yield from _lines(table, blocks[:taken], label_width)
        blocks = blocks[taken:]
        if blocks:
            yield Text()


class _Drawn(NamedTuple):
    """A block with the width of each of its columns, and its texts by row."""

    block: Block
    widths: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def width(self) -> int:
        return sum(self.widths) + 2 * (len(self.widths) - 1)


def _blocks(table: Table) -> Iterator[_Drawn]:
    first = 0
    for block in table.blocks:
        rows = tuple(line.texts[first : first + block.width] for line in table.lines)
        widths = [max(map(len, column)) for column in zip(block.names, *rows, strict=True)]
        widths[0] += max(0, len(block.head) - sum(widths) - 2 * (block.width - 1))
        yield _Drawn(block, tuple(widths), rows)
        first += block.width


def _lines(table: Table, blocks: Sequence[_Drawn], label_width: int) -> Iterator[Text]:
    heads = [Text(_head(drawn, table), style="bold") for drawn in blocks]
    yield _line(Text(table.corner.ljust(label_width), style="bold"), heads)
    if table.two_level:
        names = [_aligned(drawn.block, drawn.block.names, drawn.widths) for drawn in blocks]
        yield _line(Text(" " * label_width), names)
    yield Text(
        "─┼─".join("─" * width for width in (label_width, *(d.width for d in blocks))), "dim"
    )
    for number, line in enumerate(table.lines):
        texts = [_aligned(drawn.block, drawn.rows[number], drawn.widths) for drawn in blocks]
        yield _line(Text(line.label.ljust(label_width), style="bold"), texts)


def _head(drawn: _Drawn, table: Table) -> str:
    head = drawn.block.head
    if drawn.block.words:
        return head.ljust(drawn.width)
    return head.center(drawn.width) if table.two_level else head.rjust(drawn.width)


def _aligned(block: Block, texts: Sequence[str], widths: Sequence[int]) -> Text:
    cells = (
        Text(text.ljust(width) if block.words else text.rjust(width), style=_style(text))
        for text, width in zip(texts, widths, strict=True)
    )
    return Text("  ").join(cells)


def _style(text: str) -> str:
    return "bold red" if text.startswith(MARK) else _STYLES.get(text, "")


def _line(label: Text, blocks: Sequence[Text]) -> Text:
    parts = [part for block in blocks for part in (Text(" │ ", style="dim"), block)]
    return Text.assemble(label, *parts)  # join() would dim the blocks with the bars between them
