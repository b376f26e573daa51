r"""The tables as LaTeX for \input; they need booktabs and graphicx."""

import re
from collections.abc import Iterable

import pandas as pd

from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.report import Report, ReportGroup

_HEAD = (
    "% Tables of a scaling study, for \\input; the preamble needs\n"
    "% \\usepackage{booktabs} and \\usepackage{graphicx}, which makes wide tables fit the text.\n"
)

_AT_MOST_THE_TEXT = r"""
\resizebox{{\ifdim\width>\textwidth\textwidth\else\width\fi}}{{!}}{{%
{tabular}}}
"""

_FLOAT = r"""
\begin{{table}}[htbp]
\centering
\sloppy
\small
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
    caption = " ".join([f"{table.title}.{apart}", *table.caption, table.setting])
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
    """Return the tabular alone; one that is wider than the text is made smaller."""
    columns = table.columns
    first = [table.corner, *(column.under or column.head for column in columns)]
    second = ["", *(column.head if column.under else "" for column in columns)]
    levels = [[*map(escaped, level)] for level in (first, second)]
    texts = pd.DataFrame(
        [[line.label, *line.texts] for line in table.lines],
        columns=levels if table.two_level else levels[0],
    )
    latex = texts.map(escaped).to_latex(
        index=False,
        escape=False,
        column_format="l" + "".join("l" if c.words else "r" for c in columns),
        multicolumn_format="c",
    )
    return _AT_MOST_THE_TEXT.format(tabular=latex).strip()
