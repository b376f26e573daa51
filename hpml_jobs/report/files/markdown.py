"""The tables as Markdown: two header rows as in the lab, padded for reading as plain text."""

import re
from collections.abc import Iterable, Sequence

from hpml_jobs.core.text import is_command
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.report import Report, ReportGroup


def document(report: Report) -> str:
    """Return the whole report as one Markdown text."""
    parts = [f"# {escaped(report.study)}"]
    if not report.groups:
        parts.append(
            "No cell of this study can be read." if report.unplaced else "No cells yet."
        )
    if report.several:
        parts.append(
            f"{len(report.groups)} groups of cells under different conditions; they differ in:"
        )
        parts.append(bullets(report.differences))
    for group in report.groups:
        parts += _group(group, several=report.several)
    if report.tables and report.several:
        parts.append("## All groups together")
    parts += [part for table in report.tables for part in _table(table, set())]
    if report.unplaced:
        parts.append("## Not in any table")
        parts.append(
            bullets(f"{result.slug}: {result.reason}" for result in report.unplaced)
        )
    return "\n\n".join(parts) + "\n"


def _group(group: ReportGroup, *, several: bool) -> list[str]:
    number = f"Group {group.number}: " if several else ""
    parts = [f"## {number}{escaped(group.title)}"]
    if group.differences:
        parts.append(escaped(f"Separated because of: {group.differences}."))
    parts.append(escaped(group.setting))
    parts += [escaped(text) for text in (group.usability, group.suggestion) if text]
    printed = {group.setting}
    return parts + [part for table in group.tables for part in _table(table, printed)]


def _table(table: Table, printed: set[str]) -> list[str]:
    """Return a table with what is not yet in `printed` of its caption and notes."""
    caption = table.caption_after(printed, [table.setting])
    notes = table.notes_after(printed)
    return [
        f"### {escaped(table.title)}",
        *([escaped(table.answer)] if table.answer else []),
        *([grid(table)] if table.lines else []),
        *([escaped("\n".join(caption))] if caption else []),
        *([bullets(notes)] if notes else []),
    ]


def grid(table: Table) -> str:
    """Return the table alone, without title, caption and notes."""
    heads = [
        text for block in table.blocks for text in (block.head, *[""] * (block.width - 1))
    ]
    rows = [[table.corner, *heads]]
    if table.two_level:
        rows.append(["", *(name for block in table.blocks for name in block.names)])
    rows += [[line.label, *line.texts] for line in table.lines]
    left = (True, *table.words)
    widths = [max(3, *(len(row[i]) for row in rows)) for i in range(len(rows[0]))]
    ruler = "|" + "|".join(
        [
            f":{'-' * (width + 1)}" if words else f"{'-' * (width + 1)}:"
            for width, words in zip(widths, left, strict=True)
        ]
    )
    drawn = [_row(row, widths, left) for row in rows]
    return "\n".join([drawn[0], f"{ruler}|", *drawn[1:]])


def _row(texts: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    padded = (
        text.ljust(width) if words else text.rjust(width)
        for text, width, words in zip(texts, widths, left, strict=True)
    )
    return f"| {' | '.join(padded)} |"


def bullets(lines: Iterable[str]) -> str:
    """Return lines of text as a list."""
    return "\n".join(f"- {escaped(line)}" for line in lines)


def escaped(text: str) -> str:
    """Return the text without Markdown emphasis: I_N and resnet18_cifar keep their underscores.

    A command in it is on a line of its own, as it is typed.

    >>> escaped("to see I_N:\\nhpml-jobs record my_study")
    'to see I\\\\_N:  \\n`hpml-jobs record my_study`'
    """
    lines = text.split("\n")
    return "\n".join(map(_line, lines)).replace("\n`", "  \n`")


def _line(line: str) -> str:
    """Return a line of a text, or a command as code: it may have backticks too."""
    if is_command(line):
        fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
        return f"{fence}{line}{fence}"
    for character in "\\_*<>[]|`":
        line = line.replace(character, f"\\{character}")
    return line
