r"""The tables as LaTeX for \input; the document needs only \usepackage{booktabs}."""

import re
from collections.abc import Iterable

from hpml_jobs.report.report import Report, ReportGroup
from hpml_jobs.report.table import Table

_HEAD = "% Tables of a scaling study, for \\input; the preamble needs \\usepackage{booktabs}.\n"

_FLOAT = r"""
\begin{{table}}[htbp]
\centering
\small
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
        f"% Not in any table: {result.slug}: {result.reason}\n" for result in report.unplaced
    ]
    return "".join([_HEAD, *unplaced, *floats])


def _float(table: Table, group: ReportGroup | None) -> str:
    """Return a table as a float; `group` is its group if the report has several."""
    apart = f" Group {group.number}: {group.differences}." if group else ""
    answer = [table.answer] if table.answer else []
    caption = " ".join([f"{table.title}.{apart}", *answer, *table.caption, table.setting])
    return _FLOAT.format(
        tabular=tabular(table) if table.lines else "",
        caption=escaped(caption),
        label=f"group{group.number}-{table.label}" if group else table.label,
        notes=_notes(table.notes),
    )


def _notes(notes: Iterable[str]) -> str:
    lines = [f"\\item {escaped(note)}\n" for note in notes]
    if not lines:
        return ""
    return "\\begin{itemize}\\footnotesize\n" + "".join(lines) + "\\end{itemize}\n"


def tabular(table: Table) -> str:
    """Return the tabular alone: booktabs' rules, and a rule under the heading of each block."""
    import pandas as pd  # noqa: PLC0415 - the slowest import of a report; only writing needs it

    heads = [(escaped(block.head), escaped(name)) for block in table.blocks for name in block.names]
    columns = pd.MultiIndex.from_tuples(heads, names=[escaped(table.corner), ""])
    frame = pd.DataFrame(
        [[_number(text) for text in line.texts] for line in table.lines],
        index=[escaped(line.label) for line in table.lines],
        columns=columns if table.two_level else columns.droplevel(1),
    )
    drawn = frame.to_latex(
        escape=False,
        multicolumn_format="c",
        column_format="l" + "".join("l" if words else "r" for words in table.words),
    )
    if table.two_level:
        drawn = drawn.replace("\\\\\n", f"\\\\\n{_rules(table)}\n", 1)
    return drawn.rstrip("\n")


def _rules(table: Table) -> str:
    rules, first = [], 2
    for block in table.blocks:
        rules.append(f"\\cmidrule(lr){{{first}-{first + block.width - 1}}}")
        first += block.width
    return " ".join(rules)


def _number(text: str) -> str:
    return f"$-${text[1:]}" if text.startswith("-") else escaped(text)
