"""The report in the terminal: all tables, or a first screen of at most 14 lines."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from hpml_jobs.core.text import PROGRAM, counted, is_command, with_command
from hpml_jobs.report.answer import Answer, answer_of
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.captions import MARK
from hpml_jobs.report.frame.numbers import DASH, OOM
from hpml_jobs.report.frame.table import Block, Table
from hpml_jobs.report.report import Report, ReportGroup

_STYLES = {DASH: "dim", OOM: "bold red"}

UNIT = re.compile(r"(?<=\d) (?=%|s\b)")
"""The space before the unit of a number, where no line ends."""

NO_BREAK = "\N{NO-BREAK SPACE}"


def show_all(report: Report, console: Console) -> None:
    """Print all tables of a report; none is truncated, whatever the console's width."""
    if not report.groups and not report.unplaced:
        console.print(Text(f"Study {report.study} has no cells yet."))
    show_differences(report, console)
    for group in report.groups:
        answer = answer_of(report, group)
        _show_group(group, answer, console, several=report.several)
    for table in report.tables:
        _show_table(table, console, set())
        console.print()
    show_unplaced(report, console)


def show_differences(report: Report, console: Console) -> None:
    """Print the conditions in which groups differ."""
    if report.several:
        head = f"{len(report.groups)} groups of cells under different conditions; they differ in:"
        console.print(Text(head, style="bold yellow"))
        bullets(report.differences, console)


def show_unplaced(report: Report, console: Console) -> None:
    """Print the cells that cannot be read."""
    if report.unplaced:
        console.print(Text("Not in any table:", style="bold yellow"))
        bullets((f"{r.slug}: {r.reason}" for r in report.unplaced), console)


def _show_group(
    group: ReportGroup, answer: Answer, console: Console, *, several: bool
) -> None:
    show_title(group, console, several=several)
    show_text(group.setting, console)
    for text in (answer.sentence, *answer.lines, *answer.marks):
        if text:
            show_text(text, console)
    printed: set[str] = set()
    for table in group.tables:
        _show_table(table, console, printed)
    console.print()


def show_title(group: ReportGroup, console: Console, *, several: bool) -> None:
    """Print the title of a group, and what distinguishes it from the others."""
    number = f"Group {group.number}: " if several else ""
    title = Rule(Text(f"{number}{group.title}", style="bold"), style="dim")
    console.print(title, width=prose_width(console))
    if group.differences:
        show_text(
            f"Differs from the other groups in: {group.differences}.", console, "yellow"
        )


def show_table(table: Table, console: Console) -> None:
    """Print one table with its caption and notes."""
    _show_table(table, console, set())


def _show_table(table: Table, console: Console, printed: set[str]) -> None:
    """Print a table, its caption, and the notes that are not yet in `printed`."""
    console.print()
    console.print(Text(table.title, style="bold cyan"))
    _draw(table, console)
    caption = table.caption_after(printed)
    if caption:
        show_text("\n".join(caption), console, "dim")
    notes = table.notes_after(printed)
    if notes:
        bullets(notes, console)


def _draw(table: Table, console: Console) -> None:
    for text in drawn(table, console.width):
        text.rstrip()
        console.print(text, no_wrap=True, overflow="ignore", crop=False)


BULLET = "• "


def bullets(texts: Iterable[str], console: Console) -> None:
    """Print texts with a bullet each."""
    for text in texts:
        show_text(text, console, bullet=BULLET)


def show_text(
    text: str, console: Console, style: str = "", *, bullet: str = ""
) -> None:
    """Print a text in lines that are short enough to read.

    A command in it stands on a line of its own and is left to the terminal, so that it is copied
    whole.
    """
    before = bullet
    for line in text.split("\n"):
        if is_command(line):
            console.print(Text(f"  {line}", style=style), soft_wrap=True)
            continue
        wrapped = textwrap.wrap(
            UNIT.sub(NO_BREAK, before + line),
            prose_width(console),
            subsequent_indent=" " * len(before),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in wrapped or [""]:
            console.print(
                Text(part.replace(NO_BREAK, " "), style=style), soft_wrap=True
            )
        before = " " * len(bullet)


SCREEN = 110


def prose_width(console: Console) -> int:
    """Return the width of running text: at most `SCREEN` columns, so that it stays readable."""
    return min(console.width, SCREEN)


def drawn(table: Table, width: int) -> Iterator[Text]:
    """Yield the table's lines; blocks that do not fit follow below, with the same row labels.

    Words that are wider than the screen take several lines.
    """
    if not table.lines:
        return
    labels = [table.corner, *(line.label for line in table.lines)]
    label_width = max(map(len, labels))
    blocks = list(_blocks(table, width - label_width - 3))
    while blocks:
        taken = 1
        used = label_width + 3 + blocks[0].width
        while taken < len(blocks) and used + 3 + blocks[taken].width <= width:
            used += 3 + blocks[taken].width
            taken += 1
        yield from _table_lines(table, blocks[:taken], label_width)
        blocks = blocks[taken:]
        if blocks:
            yield Text()


class _Drawn(NamedTuple):
    """A block with the width of each of its columns, and its texts by row; they may have lines."""

    block: Block
    widths: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def width(self) -> int:
        return sum(self.widths) + 2 * (len(self.widths) - 1)


def _blocks(table: Table, most: int) -> Iterator[_Drawn]:
    """Yield the blocks, their words wrapped at `most` characters."""
    first = 0
    for block in table.blocks:
        rows = tuple(line.texts[first : first + block.width] for line in table.lines)
        if block.words:
            rows = tuple(tuple(_wrapped(text, most) for text in row) for row in rows)
        widths = [
            max(len(line) for text in column for line in text.split("\n"))
            for column in zip(block.names, *rows, strict=True)
        ]
        widths[0] += max(0, len(block.head) - sum(widths) - 2 * (block.width - 1))
        yield _Drawn(block, tuple(widths), rows)
        first += block.width


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, max(width, NARROWEST))) or text


def _table_lines(
    table: Table, blocks: Sequence[_Drawn], label_width: int
) -> Iterator[Text]:
    heads = [Text(_head(drawn, table), style="bold") for drawn in blocks]
    yield _line(Text(table.corner.ljust(label_width), style="bold"), heads)
    if table.two_level:
        names = [
            _aligned(drawn.block, drawn.block.names, drawn.widths) for drawn in blocks
        ]
        yield _line(Text(" " * label_width), names)
    yield Text(
        "─┼─".join("─" * width for width in (label_width, *(d.width for d in blocks))),
        "dim",
    )
    for number, line in enumerate(table.lines):
        rows = [_lines_of(drawn.rows[number]) for drawn in blocks]
        for part, of_blocks in enumerate(zip_longest(*rows)):
            label = line.label if part == 0 else ""
            texts = [
                _aligned(drawn.block, row or ("",) * len(drawn.widths), drawn.widths)
                for drawn, row in zip(blocks, of_blocks, strict=True)
            ]
            yield _line(Text(label.ljust(label_width), style="bold"), texts)


def _lines_of(row: Sequence[str]) -> list[tuple[str, ...]]:
    """Return a row of texts as the lines that they take.

    >>> _lines_of(("a", "b\\nc"))
    [('a', 'b'), ('', 'c')]
    """
    return list(zip_longest(*(text.split("\n") for text in row), fillvalue=""))


def _head(drawn: _Drawn, table: Table) -> str:
    head = drawn.block.head
    if drawn.block.words:
        return head.ljust(drawn.width)
    return head.center(drawn.width) if table.two_level else head.rjust(drawn.width)


def _aligned(block: Block, texts: Sequence[str], widths: Sequence[int]) -> Text:
    cells = (
        Text(
            text.ljust(width) if block.words else text.rjust(width), style=_style(text)
        )
        for text, width in zip(texts, widths, strict=True)
    )
    return Text("  ").join(cells)


def _style(text: str) -> str:
    return "red" if text.startswith(MARK) else _STYLES.get(text, "")


def _line(label: Text, blocks: Sequence[Text]) -> Text:
    parts = [part for block in blocks for part in (Text(" │ ", style="dim"), block)]
    # join() would dim the blocks with the bars between them
    return Text.assemble(label, *parts)


NARROWEST = 16
"""Characters of wrapped words, however narrow the screen is."""

LINES = 13
"""The most lines of a first screen; the page that is written takes one more."""

ROWS = 5
"""The most rows of its table."""


class _Part(NamedTuple):
    """A part of the screen; those with lower ranks are kept first. `group` is in no other part."""

    rank: int
    show: Callable[[Console], None]
    group: ReportGroup | None = None


def show_first(report: Report, console: Console) -> None:
    """Print the answer of each group, and the main table of the first one."""
    parts = list(_parts(report))
    left = LINES - report.several  # a line on groups that are not shown
    kept: set[int] = set()
    hidden: list[str] = []
    for number, part in sorted(enumerate(parts), key=lambda item: item[1].rank):
        height = _height(part.show, console)
        if part.rank == 0 or height <= left:
            kept.add(number)
            left -= height
        elif part.group is not None:
            hidden.append(part.group.name)
    for number in sorted(kept):
        parts[number].show(console)
    if hidden:
        names = captions.first_few(hidden, most=3)
        show_text(f"On the page, too: {names}.", console)


def _height(show: Callable[[Console], None], console: Console) -> int:
    with console.capture() as printed:
        show(console)
    return printed.get().count("\n")


def _parts(report: Report) -> Iterator[_Part]:
    shown = report.first_screen
    if report.measured_again:
        text = f"{report.measured_again} are pending or running; these are the numbers so far"
        command = f"{PROGRAM} collect {report.study} --wait"
        yield _say(0, with_command(text, command))
    if not report.groups and not report.unplaced:
        yield _say(0, f"Study {report.study} has no cells yet.")
    for number, group in enumerate(shown.groups):
        answer = answer_of(shown, group)
        name = f"{group.name}: " if report.several else ""
        if number:
            yield _say(3, f"{name}{answer.sentence}", group)
            continue
        text = "\n".join([f"{name}{answer.sentence}", answer.why, answer.training])
        yield _say(0, text)
        if table := group.main_table:
            yield _Part(2, partial(_show_short, table, group))
        yield _say(4, answer.accuracy)
        yield from (
            _say(1 if n == 0 else 5, text) for n, text in enumerate(answer.marks)
        )
    if len(shown.groups) < len(report.groups):
        text = "Older code or arguments are left out; all of it"
        yield _say(5, with_command(text, f"{PROGRAM} collect {report.study} --all"))
    for result in report.unplaced[:1]:
        more = len(report.unplaced) - 1
        others = f" (and {counted(more, 'cell')} more)" if more else ""
        yield _say(1, f"{result.slug}: {result.reason}{others}")


def _say(rank: int, text: str, group: ReportGroup | None = None) -> _Part:
    lines = "\n".join(filter(None, text.split("\n")))
    return _Part(rank, partial(show_text, lines) if lines else lambda _: None, group)


def _show_short(table: Table, group: ReportGroup, console: Console) -> None:
    """Print a table without its words: the rows of the answer, and the batches that fit."""
    columns = [*range(len(table.columns))]
    lines = table.lines[-ROWS:]
    if group.series and table.label.startswith("table1"):
        device = group.source.device
        unit = captions.unit(device)
        labels = [
            captions.row_label(size.row.setup, device) for size in group.series.sizes
        ]
        lines = tuple(line for line in table.lines if line.label in labels[-ROWS:])
        main = f"batch {group.series.batch} per {unit}"
        heads = [column.under or column.head for column in table.columns]
        others = [head for head in dict.fromkeys(heads) if head != main]
        room = min(console.width, SCREEN) - max(map(len, (table.corner, *labels)))
        shown = {main}
        room -= len(main) + 3
        for head in reversed(others):  # the larger batches first
            room -= len(head) + 3
            shown |= {head} if room >= 0 else set()
        columns = [n for n, head in enumerate(heads) if head in shown]
    short = msgspec.structs.replace(
        table,
        columns=tuple(table.columns[n] for n in columns),
        lines=tuple(
            line._replace(texts=tuple(line.texts[n] for n in columns)) for line in lines
        ),
    )
    console.print()
    _draw(short, console)
