"""Texts and tables as Markdown, padded for reading as plain text."""

from collections.abc import Iterable, Sequence

from hpml_jobs.core.text import is_command
from hpml_jobs.report.frame.table import Table


def shown(
    head: str, table: Table, caption: Iterable[str], notes: Iterable[str]
) -> list[str]:
    """Return a table under its title, with what is shown of its caption and notes."""
    parts = [
        f"{head} {escaped(table.title)}",
        of_table(table) if table.lines else "",
        escaped("\n".join(caption)),
        bullets(notes),
    ]
    return [part for part in parts if part]


def of_table(table: Table) -> str:
    """Return the table alone; headings with others below them have two rows, as in the lab."""
    heads = [table.corner]
    for block in table.blocks:
        heads += [block.head, *[""] * (block.width - 1)]
    rows = [heads]
    if table.two_level:
        rows.append(["", *(name for block in table.blocks for name in block.names)])
    rows += [[line.label, *line.texts] for line in table.lines]
    return grid(rows, [True, *(column.words for column in table.columns)])


def grid(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> str:
    """Return rows, the first of them a heading; columns are aligned to the left or the right."""
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

    Its lines stay lines; a command is one, as it is typed.

    >>> escaped("to see I_N:\\nhpml-jobs collect my_study")
    'to see I\\\\_N:  \\n`hpml-jobs collect my_study`'
    """
    return "  \n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    """Return a line of a text, or a command as code."""
    if is_command(line):
        return f"`{line}`"
    for character in "\\_*<>[]|`":
        line = line.replace(character, f"\\{character}")
    return line
