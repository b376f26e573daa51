"""Data-quality checks in a table: the mark beside a number, the notes under it."""

from collections.abc import Callable, Iterable

from hpml_jobs.checks import Level
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row, Setup
from hpml_jobs.report.text.captions import row_label
from hpml_jobs.report.text.notes import places_text

MARK = "!"
"""The mark before a number of a cell that fails a check."""

FEW = {Level.FAIL: 12, Level.WARN: 3}
"""The most reasons of one check that are listed; of more, only the first is."""


def failures(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    """Return the reason of each failed check; many reasons of one kind are one line."""
    label = _label(group)
    lines = []
    for check, reasons in by_check(group, rows, Level.FAIL).items():
        if len(reasons) <= FEW[Level.WARN]:
            for reason, rows_of_reason in reasons.items():
                places = places_text((row.place for row in rows_of_reason), label)
                lines.append(f"{MARK} {places}: {check}: {reason}")
        else:
            rows_of_reason = [row for rows in reasons.values() for row in rows]
            first = next(iter(reasons))
            places = places_text((row.place for row in rows_of_reason), label)
            others = "for the others see Data-quality checks"
            lines.append(f"{MARK} {check}: {places}; first reason: {first}; {others}")
    return lines


def by_check(
    group: ConditionGroup, rows: Iterable[Row], level: Level
) -> dict[str, dict[str, list[Row]]]:
    """Return check -> reason -> the rows (one per run) that it holds for."""
    reasons_by_check: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        for result in group.checks_of(row, level):
            reasons_by_check.setdefault(result.check, {}).setdefault(result.reason, []).append(row)
    return reasons_by_check


def warnings(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    """Return one line that names the checks which ended with a warning, and where."""
    label = _label(group)
    where: dict[str, list[str]] = {}
    for check, reasons in by_check(group, rows, Level.WARN).items():
        places = places_text(
            (row.place for rows_of_reason in reasons.values() for row in rows_of_reason), label
        )
        where.setdefault(places, []).append(check)
    parts = (f"{', '.join(checks)} ({places})" for places, checks in where.items())
    return [f"warnings, see Data-quality checks: {'; '.join(parts)}"] if where else []


def marked(group: ConditionGroup, row: Row, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return a row's texts, the first with the mark if one of its runs fails a check."""
    return (f"{MARK}{texts[0]}", *texts[1:]) if group.has_failed(row) else texts


def _label(group: ConditionGroup) -> Callable[[Setup], str]:
    return lambda setup: row_label(setup, group.device)
