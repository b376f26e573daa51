"""Warnings of a report: the causes of doubt, which tables can be used, the table of checks."""

from collections.abc import Collection
from typing import NamedTuple

from hpml_jobs.core.check_result import Affected, CheckResult, Level, Tier
from hpml_jobs.core.text import counted
from hpml_jobs.core.value import by_key
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.table import Sheet, Table
from hpml_jobs.results.checks.result import names
from hpml_jobs.results.checks.study import GROUPS
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

_ORDER = {
    name: number
    for number, name in enumerate(
        dict.fromkeys(check.name for checks in GROUPS.values() for check in checks)
    )
}
"""The place of each check in the report."""


class Cause(NamedTuple):
    """One check that some cells did not pass, with one fix; `rows` has a row per such cell.

    `result` is that of the first cell.
    """

    result: CheckResult
    rows: tuple[Row, ...]
    slugs: tuple[str, ...]


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
        _ORDER[result.check],
    )


def cause_text(group: ConditionGroup, cause: Cause) -> str:
    """Return the first cell of a cause with its figures, the next ones by name, and the fix.

    Of rows with several runs it says how many runs are meant.
    """
    rows = {row.place: row for row in cause.rows}
    first, *others = (captions.cell_words(place, group.device) for place in rows)
    text = f"{first}: {cause.result.figures}"
    if others:
        text += f"; also {names(others, separator='; ')}"
    runs = sum(len(row.cells) for row in rows.values())
    if runs != len(cause.slugs):
        text += f" (in {len(cause.slugs)} of these {runs} runs)"
    return _with_fix(text, cause)


def _with_fix(figures: str, cause: Cause) -> str:
    fix = cause.result.remedy
    return f"{figures}. {fix[0].upper()}{fix[1:]}" if fix else figures


def brief(group: ConditionGroup, cause: Cause) -> str:
    """Return a cell of a cause, its first figures, what others there are, and the fix."""
    places = dict.fromkeys(row.place for row in cause.rows)
    first, *others = (captions.cell_words(place, group.device) for place in places)
    text = f"{first}: {cause.result.figures.partition('; ')[0]}"
    if others:
        text += (
            f"; also {others[0] if len(others) == 1 else f'{len(others)} other rows'}"
        )
    return _with_fix(text, cause)


def checks(group: ConditionGroup) -> Table:
    """Return the causes of wrong or doubtful numbers, and how many checks passed."""
    slugs = [slug for row in group.rows for slug in row.cells if slug in group.checks]
    results = [(slug, result) for slug in slugs for result in group.checks[slug]]
    passed = sum(result.level is Level.PASS for _, result in results)
    caption = (
        f"{counted(passed, 'check')} passed in {counted(len(set(slugs)), 'cell')}."
    )
    shown = causes(group, [Tier.NUMBER, Tier.TABLE])
    return Table(
        label="checks",
        title="Data-quality checks",
        corner="",
        columns=(),
        lines=(),
        caption=(caption,),
        setting=captions.setting(group),
        notes=tuple(
            f"{cause.result.check}: {cause_text(group, cause)}" for cause in shown
        ),
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
