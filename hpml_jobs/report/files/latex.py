r"""The tables as LaTeX for \input, as wide as A4 with margins of 2.5 cm; they need booktabs."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.report import Report, ReportGroup

_HEAD = (
    "% Tables of a scaling study, for \\input; the preamble needs \\usepackage{booktabs}.\n"
    "% They fit across A4 with margins of 2.5 cm; of wider tables, columns follow below.\n"
)

SMALL, FOOTNOTESIZE = 92, 100
"""Characters across 16 cm in these sizes; a column is GAP wider than its text."""

GAP = 2

WORDS = 60
"""Characters of a column of words that is not wrapped."""

_FLOAT = r"""
\begin{{table}}[htbp]
\centering
\sloppy
\{size}
\setlength{{\tabcolsep}}{{4pt}}
{tabular}
\caption{{{caption}}}
\label{{tab:{label}}}
{notes}\end{{table}}
"""

_ASCII = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "–": "--",
    "±": r"\ensuremath{\pm}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_SPECIAL = re.compile("|".join(map(re.escape, _ASCII)))


def escaped(text: str) -> str:
    r"""Return the text with the characters escaped that are special in LaTeX.

    >>> escaped("100 % of resnet18_cifar")
    '100 \\% of resnet18\\_cifar'
    """
    return _SPECIAL.sub(lambda match: _ASCII[match.group()], text)


def document(report: Report) -> str:
    """Return the whole report; each table is a float, with its caption and notes below it."""
    floats = [
        _float(table, group if report.several else None)
        for group in report.groups
        for table in group.tables
    ]
    floats += [_float(table, None) for table in report.tables]
    unplaced = [
        f"% Not in any table: {result.slug}: {result.reason}\n"
        for result in report.unplaced
    ]
    return "".join([_HEAD, *unplaced, *floats])


def _float(table: Table, group: ReportGroup | None) -> str:
    """Return a table as a float; `group` is its group if the report has several."""
    apart = f" Group {group.number}: {group.differences}." if group else ""
    answer = [table.answer] if table.answer else []
    caption = " ".join(
        [f"{table.title}.{apart}", *answer, *table.caption, table.setting]
    )
    fits = len(list(parts(table, SMALL))) < 2
    return _FLOAT.format(
        size="small" if fits else "footnotesize",
        tabular="\n\n\\medskip\n".join(
            tabular(part) for part in parts(table, SMALL if fits else FOOTNOTESIZE)
        ),
        caption=escaped(caption),
        label=f"group{group.number}-{table.label}" if group else table.label,
        notes=_notes(table.notes),
    )


def _notes(notes: Iterable[str]) -> str:
    lines = [f"\\item {escaped(note)}\n" for note in notes]
    if not lines:
        return ""
    return "\\begin{itemize}\\footnotesize\n" + "".join(lines) + "\\end{itemize}\n"


def parts(table: Table, width: int) -> Iterator[Table]:
    """Yield the table as tables of so many characters: blocks that do not fit follow below.

    A block that is wider than the page is split at a column.
    """
    if not table.lines:
        return
    room = (
        width
        - max(map(len, (table.corner, *(line.label for line in table.lines))))
        - GAP
    )
    taken: list[dict[int, list[int]]] = [{}]  # by block, its columns
    left, first = room, 0
    for place, block in enumerate(table.blocks):
        widths = [_width(table, first + n, name) for n, name in enumerate(block.names)]
        widths[0] += max(0, len(block.head) + GAP - sum(widths))
        for column, needed in enumerate(widths):
            if taken[-1] and (needed if column else sum(widths)) > left:
                taken.append({})
                left = room
            taken[-1].setdefault(place, []).append(column)
            left -= needed
        first += block.width
    for columns in taken:
        yield _part(table, columns)


def _width(table: Table, number: int, name: str) -> int:
    return GAP + min(
        WORDS, max(len(name), *(len(line.texts[number]) for line in table.lines))
    )


def _part(table: Table, columns: dict[int, list[int]]) -> Table:
    """Return the table with these columns of these blocks only."""
    firsts = [number for number, is_first in enumerate(table.firsts) if is_first]
    numbers = [
        firsts[place] + column for place, some in columns.items() for column in some
    ]
    blocks = [
        msgspec.structs.replace(block, columns=tuple(block.columns[n] for n in some))
        if (block := table.blocks[place]).columns
        else block
        for place, some in columns.items()
    ]
    lines = [
        msgspec.structs.replace(line, texts=tuple(line.texts[n] for n in numbers))
        for line in table.lines
    ]
    return msgspec.structs.replace(table, blocks=tuple(blocks), lines=tuple(lines))


def tabular(table: Table) -> str:
    """Return the tabular alone: booktabs' rules, and a rule under the heading of each block."""
    heads = [escaped(block.head) for block in table.blocks for _ in block.names]
    head = [_line([escaped(table.corner), *heads])]
    if table.two_level:
        names = [escaped(name) for block in table.blocks for name in block.names]
        first = _line([escaped(table.corner), *_spanning(heads)])
        head = [first, _rules(table), _line(["", *names])]
    lines = [
        _line([escaped(line.label), *map(_cell, line.texts)]) for line in table.lines
    ]
    begin = f"\\begin{{tabular}}{{l{''.join(_alignments(table))}}}"
    return "\n".join(
        [
            begin,
            "\\toprule",
            *head,
            "\\midrule",
            *lines,
            "\\bottomrule",
            "\\end{tabular}",
        ]
    )


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + " \\\\"


def _spanning(heads: Iterable[str]) -> Iterator[str]:
    """Yield each head once, across the columns that have it."""
    for head, columns in groupby(heads):
        width = len(list(columns))
        yield f"\\multicolumn{{{width}}}{{c}}{{{head}}}" if width > 1 else head


def _rules(table: Table) -> str:
    rules, first = [], 2
    for block in table.blocks:
        rules.append(f"\\cmidrule(lr){{{first}-{first + block.width - 1}}}")
        first += block.width
    return " ".join(rules)


def _alignments(table: Table) -> Iterator[str]:
    for number, is_words in enumerate(table.words):
        is_wrapped = any(len(line.texts[number]) > WORDS for line in table.lines)
        yield f"p{{{WORDS / 2}em}}" if is_wrapped else "l" if is_words else "r"


def _cell(text: str) -> str:
    if len(text) > WORDS:
        return f"{{\\raggedright {escaped(text)}\\par}}"
    return f"$-${text[1:]}" if text.startswith("-") else escaped(text)
