"""The report in the terminal: all tables, or a first screen of at most 14 lines."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from hpml_jobs.core.text import PROGRAM, counted, few, is_command, with_command
from hpml_jobs.report import warnings
from hpml_jobs.report.answer import Answer, answer_of
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.captions import MARK
from hpml_jobs.report.frame.numbers import DASH, OOM
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.results.checks.comparability import SCATTER

_STYLES = {DASH: "dim", OOM: "bold red"}

UNIT = re.compile(r"(?<=\d) (?=%|s\b)")
"""The space before the unit of a number, where no line ends."""

NO_BREAK = "\N{NO-BREAK SPACE}"


def show_all(report: Report, console: Console) -> None:
    """Print all tables of a report; none is truncated, whatever the console's width."""
    if not report.groups and not report.unplaced:
        console.print(Text(f"Study {report.study} has no cells yet."))
    if report.several:
        head = f"{len(report.groups)} groups of cells under different conditions; they differ in:"
        console.print(Text(head, style="bold yellow"))
        bullets(report.differences, console)
    for group in report.groups:
        if report.several:
            title = Text(f"Group {group.number}: {group.name}", style="bold")
            console.print(Rule(title, style="dim"), width=prose_width(console))
        _show_group(group, answer_of(report, group), console)
    for table in report.tables:
        show_table(table, console, set())
        console.print()
    if report.unplaced:
        console.print(Text("Not in any table:", style="bold yellow"))
        bullets((f"{r.slug}: {r.reason}" for r in report.unplaced), console)


def _show_group(group: ReportGroup, answer: Answer, console: Console) -> None:
    show_text(group.setting, console)
    for text in (answer.sentence, *answer.lines, *answer.marks):
        show_text(text, console)
    printed: set[str] = set()
    for table in group.tables:
        show_table(table, console, printed)
    console.print()


def show_table(table: Table, console: Console, printed: set[str]) -> None:
    """Print a table, its caption, and the notes that are not yet in `printed`."""
    console.print()
    console.print(Text(table.title, style="bold cyan"))
    _draw(table, console)
    caption = table.caption_after(printed)
    if caption:
        show_text("\n".join(caption), console, "dim")
    bullets(table.notes_after(printed), console)


def _draw(table: Table, console: Console) -> None:
    """Draw a table; blocks that do not fit follow below, with the same row labels."""
    labels = [table.corner, *(line.label for line in table.lines)]
    label_width = max(map(len, labels))
    shown: list[_Column] = []
    for column in _columns(table) if table.lines else ():
        used = label_width + sum(3 + before.width for before in shown)
        if shown and used + 3 + column.width > console.width:
            _draw_columns(table, shown, console)
            console.print()
            shown = []
        shown.append(column)
    if shown:
        _draw_columns(table, shown, console)


class _Column(NamedTuple):
    """A block of a table as a column of text: its heading, and a text for each line."""

    head: str
    texts: list[Text]
    has_words: bool

    @property
    def width(self) -> int:
        lines = [*self.head.split("\n"), *(text.plain for text in self.texts)]
        return max(map(len, lines))


def _columns(table: Table) -> Iterator[_Column]:
    """Yield the blocks of a table; numbers are aligned to the right."""
    first = 0
    for block in table.blocks:
        rows = [line.texts[first : first + block.width] for line in table.lines]
        first += block.width
        if block.words:
            head = f"{block.head}\n" if table.two_level else block.head
            yield _Column(head, [Text(text) for (text,) in rows], block.words)
            continue
        widths = [
            max(map(len, texts)) for texts in zip(block.names, *rows, strict=True)
        ]
        widths[0] += max(0, len(block.head) - sum(widths) - 2 * (block.width - 1))
        names = _aligned(block.names, widths)
        head = block.head.rjust(len(names))
        if table.two_level:
            head = f"{block.head.center(len(names))}\n{names}"
        yield _Column(head, [_aligned(row, widths) for row in rows], block.words)


def _aligned(texts: Sequence[str], widths: Sequence[int]) -> Text:
    cells = zip(texts, widths, strict=True)
    return Text("  ").join(
        Text(text.rjust(width), _style(text)) for text, width in cells
    )


def _style(text: str) -> str:
    return "red" if text.startswith(MARK) else _STYLES.get(text, "")


def _draw_columns(table: Table, columns: Sequence[_Column], console: Console) -> None:
    """Draw blocks side by side; words that are wider than the screen take several lines."""
    drawn = RichTable(box=box.MINIMAL, show_edge=False, pad_edge=False)
    corner = f"{table.corner}\n" if table.two_level else table.corner
    drawn.add_column(corner, style="bold", no_wrap=True)
    for column in columns:
        drawn.add_column(column.head, no_wrap=not column.has_words)
    texts = zip(*(column.texts for column in columns), strict=True)
    for line, of_line in zip(table.lines, texts, strict=True):
        drawn.add_row(line.label, *of_line)
    # a block may be wider than a narrow screen: it is never truncated
    console.print(drawn, width=max(console.width, 80), crop=False)


def bullets(texts: Iterable[str], console: Console) -> None:
    """Print texts with a bullet each."""
    for text in texts:
        show_text(text, console, bullet="• ")


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


LINES = 13
"""The most lines of a first screen; the page that is written takes one more."""

ROWS = 5
"""The most rows of its table."""


ANSWER, DOUBT, TABLE, DETAIL, ACCURACY, REST = range(6)
"""Ranks of parts: they are kept in this order while there is room, the answer always."""


class _Part(NamedTuple):
    """A part of the screen. `group` is in no other part."""

    rank: int
    show: Callable[[Console], None]
    group: ReportGroup | None = None


def show_first(report: Report, console: Console) -> None:
    """Print the answer of each group, and the main table of the first one."""
    parts = list(_parts(report))
    # a line on groups that are not shown
    left = LINES - (report.several and not report.is_of_lab)
    kept: set[int] = set()
    hidden: list[str] = []
    for number, part in sorted(enumerate(parts), key=lambda item: item[1].rank):
        height = _height(part.show, console)
        if part.rank == ANSWER or height <= left:
            kept.add(number)
            left -= height
        elif part.group is not None:
            hidden.append(part.group.name)
    for number in sorted(kept):
        parts[number].show(console)
    if hidden:
        show_text(f"The page also has: {few(hidden, 3, '; ')}.", console)


def _height(show: Callable[[Console], None], console: Console) -> int:
    with console.capture() as printed:
        show(console)
    return printed.get().count("\n")


def _parts(report: Report) -> Iterator[_Part]:
    shown = report.first_screen
    if report.measured_again:
        again = f"pending or running: {report.measured_again} (--wait waits)"
        yield _say(ANSWER, f"{again}; these are the numbers so far:")
    if not report.groups and not report.unplaced:
        yield _say(ANSWER, f"Study {report.study} has no cells yet.")
    groups = shown.groups[: 1 if report.is_of_lab else None]
    for number, group in enumerate(groups):
        answer = answer_of(shown, group)
        name = f"{group.name}: " if report.several else ""
        if report.is_of_lab and group.source.series:
            name = "Q2: "
        if number:
            yield _say(DETAIL, f"{name}{answer.sentence}", group)
            continue
        yield _say(ANSWER, f"{name}{answer.sentence}")
        yield _say(DETAIL, answer.batch)
        yield _say(ANSWER, f"{answer.why}\n{answer.training}")
        if table := group.main_table:
            yield _Part(TABLE, partial(_show_short, table, group))
        yield _say(ACCURACY, "" if report.is_of_lab else answer.accuracy)
        yield from (
            _say(DOUBT if text.startswith(MARK) and not n else REST, text)
            for n, text in enumerate(answer.marks)
        )
        for cause in warnings.causes(group.source):
            if cause.result.check == SCATTER:
                yield _say(REST, warnings.brief(group.source, cause))
    if report.is_of_lab:
        command = f"{PROGRAM} collect {report.study} --handin FOLDER"
        yield _say(
            ANSWER, f"The page answers Q1 to Q7 and part B; to hand in: {command}"
        )
    if len(shown.groups) < len(report.groups):
        text = "Older code or arguments are left out; all of it"
        yield _say(REST, with_command(text, f"{PROGRAM} collect {report.study} --all"))
    for result in report.unplaced[:1]:
        more = len(report.unplaced) - 1
        others = f" (and {counted(more, 'cell')} more)" if more else ""
        yield _say(DOUBT, f"{result.slug}: {result.reason}{others}")


def _say(rank: int, text: str, group: ReportGroup | None = None) -> _Part:
    lines = "\n".join(filter(None, text.split("\n")))
    return _Part(rank, partial(show_text, lines) if lines else lambda _: None, group)


def _show_short(table: Table, group: ReportGroup, console: Console) -> None:
    """Print a table without its words and ranges: rows of the answer, and batches that fit."""
    lines = tuple(
        line._replace(texts=tuple(text.partition(" [")[0] for text in line.texts))
        for line in table.lines
    )
    table = msgspec.structs.replace(table, lines=lines)
    lines = lines[-ROWS:]
    batches = dict.fromkeys(column.batch for column in table.columns)
    shown = {*batches}
    series = group.source.series
    if series and not series.is_global:
        labels = [
            captions.row_label(size.parallel.setup, group.source.device)
            for size in series.sizes
        ]
        lines = tuple(line for line in table.lines if line.label in labels[-ROWS:])
        blocks = dict(zip(batches, _columns(table), strict=True))
        room = min(console.width, SCREEN) - max(map(len, (table.corner, *labels)))
        shown = {series.batch}
        room -= blocks.pop(series.batch).width + 3
        measured = {row.batch_per_gpu for row in group.source.timed}
        # the larger ones first, but not before those with numbers
        for batch in sorted(
            blocks, key=lambda batch: (batch in measured, batch), reverse=True
        ):
            room -= blocks[batch].width + 3
            if room >= 0:
                shown.add(batch)
    columns = [n for n, column in enumerate(table.columns) if column.batch in shown]
    table = msgspec.structs.replace(
        table,
        columns=tuple(table.columns[n] for n in columns),
        lines=tuple(
            line._replace(texts=tuple(line.texts[n] for n in columns)) for line in lines
        ),
    )
    console.print()
    _draw(table, console)
