"""The first screen of a report: the answer, a picture, Table 1, what to trust, where the rest is.

It has at most 60 lines: what is most important is kept, and the last lines name the rest.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.text import Text

from hpml_jobs.core.text import counted
from hpml_jobs.report import warnings
from hpml_jobs.report.files.screen import (
    bullets,
    first_lines,
    prose_width,
    show_differences,
    show_table,
    show_title,
    show_unplaced,
)
from hpml_jobs.report.frame.captions import EXPLAINED
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.lab.tables import StrategyTables
from hpml_jobs.report.overview import Bars, main_strategy, overview, speedup_bars
from hpml_jobs.report.report import Report, ReportGroup

LINES = 60
"""The most lines of a first screen, those on files after it included."""

FILE_LINES = 4
"""Lines on the files that are written, after the first screen."""

CAUSES = 4
"""The most causes of doubtful numbers that are named."""

NOTES = 3
"""The most notes under a table."""

BAR_WIDTH = 44
"""Characters of the longest bar."""

_EIGHTHS = " ▏▎▍▌▋▊▉"


class _Part(NamedTuple):
    """A part of the screen, of a group if it has a number; lower ranks are kept first."""

    rank: int
    show: Callable[[Console], None]
    group: int | None = None


ALWAYS, ANSWER, TRUST, TABLE, BARS, OTHER_TABLE = range(6)
"""The ranks of parts."""


def show(report: Report, console: Console) -> None:
    """Print the first screen of a report."""
    replaced = [group for group in report.groups if group.is_replaced]
    shown = report.first_screen
    parts = [*_parts(shown), *_replaced_part(shown.study, replaced)]
    left = LINES - FILE_LINES - _height(_Part(ALWAYS, lambda out: _show_rest(report, out)), console)
    left -= shown.several  # a line on groups that are not shown
    kept: set[int] = set()
    hidden: set[int | None] = set()
    for number, part in sorted(enumerate(parts), key=lambda item: item[1].rank):
        height = _height(part, console)
        if part.rank == ALWAYS or (height <= left and part.group not in hidden):
            kept.add(number)
            left -= height
        elif part.rank == ANSWER and part.group is not None:
            hidden.add(part.group)
    for number in sorted(kept):
        parts[number].show(console)
    if hidden:
        names = ", ".join(str(number) for number in sorted(filter(None, hidden)))
        console.print(Text(f"\nNot shown: group {names}.", style="bold"))
    _show_rest(report, console)


def _height(part: _Part, console: Console) -> int:
    with console.capture() as printed:
        part.show(console)
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
        have = "has" if len(slugs) == 1 else "have"
        text = (
            f"\n{counted(len(slugs), 'cell')} of older code {have} no number "
            f"(hpml-jobs collect {study} --all shows them)."
        )
        yield _Part(ALWAYS, lambda out: _lines([text], out))


def _group_parts(report: Report, group: ReportGroup) -> Iterator[_Part]:
    summary = overview(report, group)
    bars, main = speedup_bars(group), main_strategy(group)

    def show_answer(out: Console) -> None:
        if report.several:
            show_title(group, out, several=True)
        _lines(summary.measured, out, "dim")
        _lines(summary.answer, out, "bold")
        _lines(summary.next_cells, out)

    def show_reasons(out: Console) -> None:
        reasons = [f"{r.slug}: {r.reason}" for r in group.source.cells if r.reason]
        bullets(first_lines(reasons, CAUSES), out)

    def show_trust(out: Console) -> None:
        out.print()
        usability, *causes = summary.trust
        out.print(Text(f"What to trust: {usability}", style="bold"), width=prose_width(out))
        bullets(first_lines(causes, CAUSES), out)

    number = group.number
    yield _Part(ALWAYS if group is report.groups[0] else ANSWER, show_answer, number)
    if any(result.record for result in group.source.cells):
        if bars:
            yield _Part(BARS, lambda out: _show_bars(bars, out), number)
        if main:
            yield from _first_tables(group, main, TABLE)
        elif group.q1:
            yield _Part(TABLE, _table_printer(group, group.q1), number)
        for tables in group.strategies:
            if tables is not main:
                yield from _first_tables(group, tables, OTHER_TABLE)
        yield _Part(TRUST, show_trust, number)
    else:
        yield _Part(TRUST, show_reasons, number)


def _first_tables(group: ReportGroup, tables: StrategyTables, rank: int) -> Iterator[_Part]:
    """Yield Table 1 of a strategy, if it has one."""
    for table in tables.tables:
        if table.label.startswith("table1"):
            yield _Part(rank, _table_printer(group, table), group.number)


def _table_printer(group: ReportGroup, table: Table) -> Callable[[Console], None]:
    """Return the printer of a table with what is needed to read it."""
    said = {EXPLAINED, *(text for _, text in warnings.remarks(group.source))}
    notes = first_lines([note for note in table.notes if note not in said], NOTES)
    short = msgspec.structs.replace(table, caption=table.caption[:1], notes=tuple(notes))
    return lambda out: show_table(short, out)


def _lines(texts: Iterable[str], console: Console, style: str = "") -> None:
    for text in filter(None, texts):
        console.print(Text(text, style=style), width=prose_width(console))


def _show_bars(bars: Bars, console: Console) -> None:
    """Print a bar per size, with dots up to the ideal speedup."""
    console.print()
    console.print(Text(f"{bars.title} (· ideal)", style="bold cyan"))
    label_width = max(len(bar.label) for bar in bars.bars)
    most = max(max(bar.speedup, bar.ideal) for bar in bars.bars)
    width = min(BAR_WIDTH, console.width - label_width - 10)
    for bar in bars.bars:
        filled = _bar(width * bar.speedup / most)
        dots = "·" * (round(width * bar.ideal / most) - len(filled))
        line = Text(f"{bar.label.ljust(label_width)}  ")
        line.append(filled, "cyan").append(dots, "dim")
        line.append(" " * (width - len(filled) - len(dots))).append(f"  {bar.text:>6}")
        console.print(line, no_wrap=True, crop=False)


def _bar(length: float) -> str:
    """Return a bar of so many characters, in steps of an eighth.

    >>> _bar(2.5), _bar(0.01)
    ('██▌', '▏')
    """
    eighths = max(1, round(8 * length))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _show_rest(report: Report, console: Console) -> None:
    """Print which commands show the rest."""
    number = sum(len(group.tables) for group in report.groups) + len(report.tables)
    console.print()
    console.print(
        Text(
            f"More: hpml-jobs collect {report.study} --all ({number} tables), hpml-jobs report "
            f"{report.study} (a page), hpml-jobs choose {report.study} (budget, deadline)."
        ),
        width=prose_width(console),
    )
