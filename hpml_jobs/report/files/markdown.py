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
        unread = "No cell of this study can be read."
        parts.append(unread if report.unplaced else "No cells yet.")
    if report.several:
        groups = f"{len(report.groups)} groups of cells under different conditions"
        parts += [f"{groups}; they differ in:", bullets(report.differences)]
    for group in report.groups:
        parts += _group(group, several=report.several)
    if report.tables and report.several:
        parts.append("## All groups together")
    for table in report.tables:
        parts += _table(table, set())
    if report.unplaced:
        lines = [f"{result.slug}: {result.reason}" for result in report.unplaced]
        parts += ["## Not in any table", bullets(lines)]
    return "\n\n".join(parts) + "\n"


def _group(group: ReportGroup, *, several: bool) -> list[str]:
    number = f"Group {group.number}: " if several else ""
    parts = [f"## {number}{escaped(group.title)}"]
    if group.differences:
        parts.append(escaped(f"Differs from the other groups in: {group.differences}."))
    parts.append(escaped(group.setting))
    parts += [escaped(text) for text in (group.usability, group.suggestion) if text]
    printed = {group.setting}
    return parts + [part for table in group.tables for part in _table(table, printed)]


def _table(table: Table, printed: set[str]) -> list[str]:
    """Return a table with what is not yet in `printed` of its caption and notes."""
    caption = table.caption_after(printed, [table.setting])
    return shown("###", table, caption, table.notes_after(printed))


def shown(
    head: str, table: Table, caption: Iterable[str], notes: Iterable[str]
) -> list[str]:
    """Return a table under its title, with what is shown of its caption and notes."""
    parts = [
        f"{head} {escaped(table.title)}",
        escaped(table.answer),
        grid(table) if table.lines else "",
        escaped("\n".join(caption)),
        bullets(notes),
    ]
    return [part for part in parts if part]


def grid(table: Table) -> str:
    """Return the table alone, without title, caption and notes."""
    heads = [table.corner]
    for block in table.blocks:
        heads += [block.head, *[""] * (block.width - 1)]
    rows = [heads]
    if table.two_level:
        rows.append(["", *(name for block in table.blocks for name in block.names)])
    rows += [[line.label, *line.texts] for line in table.lines]
    left = (True, *table.words)
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    first, *others = [_row(row, widths, left) for row in rows]
    return "\n".join([first, _ruler(widths, left), *others])


def _ruler(widths: Sequence[int], left: Sequence[bool]) -> str:
    columns = ""
    for width, words in zip(widths, left, strict=True):
        dashes = "-" * (width + 1)
        columns += f"|:{dashes}" if words else f"|{dashes}:"
    return f"{columns}|"


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

    >>> escaped("to see I_N:\\nhpml-jobs collect my_study")
    'to see I\\\\_N:  \\n`hpml-jobs collect my_study`'
    """
    lines = text.split("\n")
    return "\n".join(map(_line, lines)).replace("\n`", "  \n`")


def _line(line: str) -> str:
    """Return a line of a text, or a command as code."""
    if is_command(line):
        fence = _fence(line)
        return f"{fence}{line}{fence}"
    for character in "\\_*<>[]|`":
        line = line.replace(character, f"\\{character}")
    return line


def fenced(commands: str) -> str:
    """Return commands as a block of code; a line of theirs cannot end it."""
    fence = _fence(commands, least=3)
    return f"{fence}bash\n{commands}\n{fence}"


def _fence(code: str, least: int = 1) -> str:
    """Return more backticks than are together in a code."""
    longest = max(map(len, re.findall("`+", code)), default=0)
    return "`" * max(least, longest + 1)
