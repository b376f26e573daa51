"""Warnings of a report: the causes of doubt, which tables can be used, the table of checks."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from hpml_jobs.core.check_result import (
    Affected,
    CheckResult,
    Level,
    Tier,
    worst_level,
)
from hpml_jobs.core.text import counted, listed
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import verb
from hpml_jobs.report.frame.table import Sheet, Table
from hpml_jobs.results.checks.result import names
from hpml_jobs.results.checks.study import GROUPS
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row, by_key

_ORDER = {
    name: number
    for number, name in enumerate(
        dict.fromkeys(check.name for checks in GROUPS.values() for check in checks)
    )
}
"""The place of each check in the report."""


class Consequence(StrEnum):
    """What a check that did not pass means for the numbers that it is about."""

    UNUSABLE = "cannot be used"
    DOUBTFUL = "warning"
    LIMITED = "note"


class Cause(NamedTuple):
    """One check that some cells did not pass, with one fix; `rows` has a row per such cell.

    `result` is that of the first cell.
    """

    result: CheckResult
    rows: tuple[Row, ...]
    slugs: tuple[str, ...]

    @property
    def consequence(self) -> Consequence:
        """What it means for its numbers."""
        if self.result.level is Level.FAIL:
            return Consequence.UNUSABLE
        is_limit = self.result.tier is Tier.TABLE
        return Consequence.LIMITED if is_limit else Consequence.DOUBTFUL

    @property
    def head(self) -> str:
        """The beginning of its line: `warning (scatter)`."""
        return f"{self.consequence} ({self.result.check})"


def causes(group: ConditionGroup, tiers: Collection[Tier] = tuple(Tier)) -> list[Cause]:
    """Return the causes of these tiers: failures first, then by the tables that they affect."""
    by_fix = by_key(
        ((result.check, result.level, result.remedy), (result, row, slug))
        for result, row, slug in group.violations
        if result.tier in tiers
    )
    causes_by_fix = []
    for of_fix in by_fix.values():
        results, rows, slugs = zip(*of_fix, strict=True)
        causes_by_fix.append(Cause(results[0], rows, slugs))
    return sorted(causes_by_fix, key=_seriousness)


def _seriousness(cause: Cause) -> tuple[object, ...]:
    result = cause.result
    affected = [affected not in result.affects for affected in Affected]
    return (
        result.level is not Level.FAIL,
        [*Tier].index(result.tier),
        affected,
        _ORDER.get(result.check, len(_ORDER)),
    )


TABLE_NUMBERS = {Affected.TIME: 1, Affected.SPLIT: 2, Affected.BANDWIDTH: 3}

UNDER: Mapping[Affected, tuple[str, ...]] = {
    Affected.TIME: ("table1-", "q1"),
    Affected.SPLIT: ("table2-",),
    Affected.BANDWIDTH: ("table3-",),
    Affected.LEARNING: ("replicas", "table4"),
}
"""Beginnings of the labels of the tables under which a remark may be, the first choice first."""


def usability(group: ConditionGroup) -> str:
    """Return which of the lab's tables can be used, and which not for how many cells."""
    said = by_key((_judgement(group, affected), affected) for affected in Affected)
    said.pop(CAN, None)
    parts = [f"{_tables_of(group, numbers)} {text}" for text, numbers in said.items()]
    if group.timed and not parts:
        parts = [f"all numbers {CAN}"]
    absent = sum(not result.measured for result in group.cells)
    if absent:
        have = verb(absent, "has", "have")
        parts.append(
            f"{absent} of {counted(len(group.cells), 'cell')} {have} no number"
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


CAN = "can be used"


def _judgement(group: ConditionGroup, affected: Affected) -> str:
    """Return whether a table can be used: all of its numbers, or but for some."""
    rows = [row for row in group.timed if row.has_number(affected)]
    levels = [worst_level(group.doubts_of(row, affected)) for row in rows]
    failed = levels.count(Level.FAIL)
    warned = levels.count(Level.WARN)
    settings = counted(len(rows), "setting")
    text = CAN
    if failed:
        where = "" if failed == len(rows) else f" for {failed} of {settings}"
        text = f"cannot be used{where}"
    if warned:
        where = "all settings" if warned == len(rows) > 1 else f"{warned} of {settings}"
        link = "and" if failed else "but"
        text += f", {link} {where} {verb(warned, 'has', 'have')} a warning (!)"
    return text


def tables_text(affects: Iterable[Affected], *, has_table1: bool = True) -> str:
    """Return tables by name; without Table 1 there is only Q1.

    >>> tables_text([Affected.TIME, Affected.SPLIT]), tables_text([Affected.LEARNING])
    ('Tables 1 and 2', 'loss and accuracy')
    >>> tables_text(Affected), tables_text(Affected, has_table1=False)
    ('Tables 1, 2 and 3, loss and accuracy', 'Q1, loss and accuracy')
    """
    affected_kinds = list(affects)
    numbers = [n for affected, n in TABLE_NUMBERS.items() if affected in affected_kinds]
    kinds = []
    if numbers:
        tables = f"{verb(len(numbers), 'Table', 'Tables')} {listed(numbers)}"
        kinds.append(tables if has_table1 else "Q1")
    if Affected.LEARNING in affected_kinds:
        kinds.append("loss and accuracy")
    return ", ".join(kinds)


def _tables_of(group: ConditionGroup, affects: Iterable[Affected]) -> str:
    return tables_text(
        affects, has_table1=any(not row.is_baseline for row in group.rows)
    )


def cause_text(group: ConditionGroup, cause: Cause) -> str:
    """Return which numbers of which cells a cause is about, and its figures with the fix."""
    tables = _tables_of(group, cause.result.affects)
    return f"{tables} of {_cells(group, cause)}: {_reason(cause)}"


def _reason(cause: Cause) -> str:
    """Return the figures of a cause, of several cells those of the first, then the fix."""
    figures = cause.result.figures
    several = len({row.place for row in cause.rows}) > 1
    return _with_fix(f"{figures} (the first)" if several else figures, cause)


def _with_fix(figures: str, cause: Cause) -> str:
    fix = cause.result.remedy
    return f"{figures}. {fix[0].upper()}{fix[1:]}" if fix else figures


def in_brief(group: ConditionGroup, tier: Tier) -> list[str]:
    """Return a short line per cause: its check, a cell, the first of its figures and the fix."""
    return [_brief(group, cause) for cause in causes(group, [tier])]


def _brief(group: ConditionGroup, cause: Cause) -> str:
    cells = captions.cell_words(cause.rows[0].place, group.device)
    number = len({row.place for row in cause.rows})
    if number > 1:
        cells = f"{number} cells, e.g. {cells}"
    first_figures = cause.result.figures.partition("; ")[0]
    return f"{cause.head}, {cells}: {_with_fix(first_figures, cause)}"


def remarks(group: ConditionGroup) -> list[tuple[Affected, str]]:
    """Return a line per cause that limits what numbers mean, with the first number it affects."""
    return [
        (
            cause.result.affects[0],
            f"{cause.head}: {_cells(group, cause)}: {_reason(cause)}",
        )
        for cause in causes(group, [Tier.TABLE])
    ]


def _cells(group: ConditionGroup, cause: Cause) -> str:
    """Return the cells of a cause: the first few by name, the others counted.

    Of a row with several runs it says how many runs are meant.
    """
    rows = {row.place: row for row in cause.rows}
    runs = sum(len(row.cells) for row in rows.values())
    words = (captions.cell_words(place, group.device) for place in rows)
    cells = names(words, separator="; ")
    if runs == len(cause.slugs):
        return cells
    return f"{cells}, {len(cause.slugs)} of {runs} runs"


def checks(group: ConditionGroup) -> Table:
    """Return the causes of wrong or doubtful numbers, and how many checks passed."""
    slugs = [slug for row in group.rows for slug in row.cells if slug in group.checks]
    results = [(slug, result) for slug in slugs for result in group.checks[slug]]
    violated = [result for _, result in results if result.level is not Level.PASS]
    passed = len(results) - len(violated)
    listed = sum(result.tier is Tier.LIST for result in violated)
    caption = f"{counted(passed, 'check')} passed in {counted(len(set(slugs)), 'cell')}"
    if listed:
        caption += (
            f"; {counted(listed, 'warning')} without effect on a table: see checks.csv"
        )
    doubts = causes(group, [Tier.NUMBER])
    return Table(
        label="checks",
        title="Data-quality checks",
        corner="",
        blocks=(),
        lines=(),
        caption=(f"{caption}." if results else "No cell has been checked.",),
        setting=captions.setting(group),
        notes=tuple(f"{cause.head}: {cause_text(group, cause)}" for cause in doubts),
        sheet=Sheet(
            columns=("cell", "check", "level", "reason", "shown", "affects"),
            rows=tuple(
                (
                    slug,
                    r.check,
                    r.level.value,
                    r.reason,
                    r.tier.value,
                    " ".join(r.affects),
                )
                for slug, r in results
            ),
        ),
    )
