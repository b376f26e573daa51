"""The report in the terminal: all tables, or a first screen of at most 30 lines."""

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from hpml_jobs.core.text import PROGRAM, counted, is_command, with_command
from hpml_jobs.report import warnings
from hpml_jobs.report.frame.captions import EXPLAINED, MARK
from hpml_jobs.report.frame.numbers import DASH, OOM
from hpml_jobs.report.frame.table import Block, Table
from hpml_jobs.report.lab.tables import StrategyTables
from hpml_jobs.report.overview import main_strategy, overview
from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.scaling.table import strong_table
from hpml_jobs.results.checks.result import names
from hpml_jobs.results.rows import by_key

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
        _show_group(group, console, several=report.several)
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
    show_text(group.setting, console)
    show_text(group.usability, console, "bold")
    if group.suggestion:
        show_text(group.suggestion, console)
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
    """Print one table with its answer, caption and notes."""
    _show_table(table, console, set())


def _show_table(table: Table, console: Console, printed: set[str]) -> None:
    """Print a table, its caption, and the notes that are not yet in `printed`."""
    console.print()
    console.print(Text(table.title, style="bold cyan"))
    if table.answer:
        show_text(table.answer, console)
    for text in drawn(table, console.width):
        text.rstrip()
        console.print(text, no_wrap=True, overflow="ignore", crop=False)
    caption = table.caption_after(printed)
    if caption:
        show_text("\n".join(caption), console, "dim")
    notes = table.notes_after(printed)
    if notes:
        bullets(notes, console)


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


def prose_width(console: Console) -> int:
    """Return the width of running text: at most 110 columns, so that it stays readable."""
    return min(console.width, 110)


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

LINES = 30
"""The most lines of a first screen, those on files after it included."""

FILE_LINES = 2
"""Lines on the page that is written, after the first screen."""

CAUSES = 2
"""The most causes of doubtful numbers that are named."""

NOTES = 3
"""The most notes under a table."""


class _Part(NamedTuple):
    """A part of the screen, of a group if it has a number; lower ranks are kept first.

    One that `follows` is shown only below the part before it.
    """

    rank: int
    show: Callable[[Console], None]
    group: int | None = None
    follows: bool = False


ALWAYS, TRUST, TABLE, MORE, CAUSE, SETTING, ANSWER, LATER_TRUST, LATER_TABLE = range(9)
TABLE_NOTES, OTHER_TABLE = range(9, 11)
"""The ranks of parts: those of the first group come before the answers of the others."""


class _Ranks(NamedTuple):
    """The ranks of the parts of a group."""

    answer: int
    more: int
    setting: int
    table: int
    trust: int
    cause: int


_OF_FIRST = _Ranks(ALWAYS, MORE, SETTING, TABLE, TRUST, CAUSE)
_OF_LATER = _Ranks(ANSWER, LATER_TRUST, ANSWER, LATER_TABLE, LATER_TRUST, LATER_TRUST)


def show_first(report: Report, console: Console) -> None:
    """Print the first screen of a report."""
    replaced = [group for group in report.groups if group.is_replaced]
    first_screen = report.first_screen
    parts = [*_parts(first_screen), *_replaced_part(first_screen.study, replaced)]
    left = LINES - FILE_LINES
    left -= first_screen.several  # a line on groups that are not shown
    kept: set[int] = set()
    hidden: set[int | None] = set()
    for number, part in sorted(enumerate(parts), key=lambda item: item[1].rank):
        height = _height(part.show, console)
        if part.follows and number - 1 not in kept:
            continue
        if part.rank == ALWAYS or (height <= left and part.group not in hidden):
            kept.add(number)
            left -= height
        elif part.rank == ANSWER:
            hidden.add(part.group)
    for number in sorted(kept):
        parts[number].show(console)
    if hidden:
        names = ", ".join(str(number) for number in sorted(filter(None, hidden)))
        console.print(Text(f"\nNot shown: group {names}.", style="bold"))


def _height(show: Callable[[Console], None], console: Console) -> int:
    with console.capture() as printed:
        show(console)
    return printed.get().count("\n")


def _parts(report: Report) -> Iterator[_Part]:
    if not report.groups and not report.unplaced:
        empty = Text(f"Study {report.study} has no cells yet.")
        yield _Part(ALWAYS, lambda out: out.print(empty))
    if report.several:
        yield _Part(TRUST, lambda out: show_differences(report, out))
    for group in report.groups:
        yield from _group_parts(report, group)
    if report.unplaced:
        yield _Part(TRUST, lambda out: show_unplaced(report, out, CAUSES))


def _replaced_part(study: str, groups: Sequence[ReportGroup]) -> Iterator[_Part]:
    """Yield one line on the cells of replaced code."""
    slugs = {result.slug for group in groups for result in group.source.cells}
    if slugs:
        text = f"\nLeft out: {counted(len(slugs), 'cell')} of older code or arguments"
        text = with_command(text, f"{PROGRAM} collect {study} --all")
        yield _Part(ALWAYS, partial(show_text, text))


def _group_parts(report: Report, group: ReportGroup) -> Iterator[_Part]:
    ranks = _OF_FIRST if group is report.groups[0] else _OF_LATER
    summary = overview(report, group)
    number = group.number
    setting, cells = summary.measured

    def show_answer(out: Console) -> None:
        if report.several:
            show_title(group, out, several=True)
        _show_lines(summary.answer[:1], out, "bold")
        _show_lines(summary.deciding, out)

    def show_measured(out: Console) -> None:
        out.print()
        show_text(cells, out, "dim")

    yield _Part(ranks.answer, show_answer, number)
    for place, sentence in enumerate(summary.answer[1:]):
        rank = ranks.setting if place else ranks.more
        show = partial(_show_lines, [sentence])
        yield _Part(rank, show, number, follows=place > 0)
    measured = _Part(ranks.answer, show_measured, number)
    if any(result.record for result in group.source.cells):
        yield from _number_parts(group, ranks.table)
        yield measured
        yield _Part(ranks.setting, partial(show_text, setting, style="dim"), number)
        trust, *causes = *summary.trust, *summary.notes
        if causes:
            trust = f"{trust} {counted(len(causes), 'remark')}:"
        trust_line = partial(show_text, f"\nWhat to trust: {trust}")
        yield _Part(ranks.trust, trust_line, number)
        for place, cause in enumerate(causes[:CAUSES]):
            is_first = place == 0 and len(summary.trust) > 1
            rank = ranks.trust if is_first else ranks.cause
            yield _Part(rank, partial(bullets, [cause]), number)
    else:
        yield measured
        by_reason = by_key((r.reason, r.slug) for r in group.source.cells if r.reason)
        lines = [f"{names(slugs)}: {reason}" for reason, slugs in by_reason.items()]
        yield _Part(ranks.trust, partial(bullets, first_lines(lines, CAUSES)), number)


def _number_parts(group: ReportGroup, rank: int) -> Iterator[_Part]:
    """Yield the tables of a group, those of its main strategy with this rank."""
    main = main_strategy(group)
    strong = strong_table(group.source)
    of_iterations = [table for table in group.full if table.label == "iterations"]
    tables = _first_tables(main) if main else []
    if strong:
        tables = [strong]
    elif group.q1 and not main and not of_iterations:
        tables = [group.q1]
    for table in tables + of_iterations:
        yield from _table_parts(group, table, rank)
    others = [strategy for strategy in group.strategies if strategy is not main]
    for table in chain.from_iterable(map(_first_tables, others)):
        yield from _table_parts(group, table, OTHER_TABLE)


def _first_tables(tables: StrategyTables) -> list[Table]:
    """Return Table 1 of a strategy, if it has one."""
    return [table for table in tables.tables if table.label.startswith("table1")]


def _table_parts(group: ReportGroup, table: Table, rank: int) -> Iterator[_Part]:
    """Yield a table without its caption, which the page has, then its notes."""
    short = msgspec.structs.replace(table, caption=(), notes=())
    yield _Part(rank, partial(show_table, short), group.number)
    printed_above = {text for _, text in warnings.remarks(group.source)}
    printed_above.add(EXPLAINED)
    notes = [note for note in table.notes if note not in printed_above]
    for note in first_lines(notes, NOTES):
        show = partial(bullets, [note])
        yield _Part(TABLE_NOTES, show, group.number, follows=True)


def _show_lines(texts: Iterable[str], console: Console, style: str = "") -> None:
    for text in filter(None, texts):
        show_text(text, console, style)
