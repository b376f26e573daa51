"""Why numbers of a group are wrong or doubtful: one cause for all cells with the same fix."""

from collections.abc import Iterable
from typing import NamedTuple

from hpml_jobs.checks import GROUPS, Level
from hpml_jobs.checks.result import Affected, CheckResult, Tier
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.rows import Row

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


def causes(group: ConditionGroup, tiers: Iterable[Tier] = Tier) -> list[Cause]:
    """Return the causes of these tiers: failures first, then by the tables that they affect.

    Checks of a run that medians leave out are no cause: a note under the table names the run.
    """
    shown = {*tiers}
    results: dict[tuple[object, ...], list[tuple[CheckResult, Row, str]]] = {}
    for row in group.rows:
        for slug in row.cells:
            for result in group.checks.get(slug, ()):
                is_counted = any(row.counts(slug, affected) for affected in result.affects)
                if result.level is not Level.PASS and result.tier in shown and is_counted:
                    key = (result.check, result.level, result.remedy)
                    results.setdefault(key, []).append((result, row, slug))
    causes_by_fix = [
        Cause(
            members[0][0],
            tuple(row for _, row, _ in members),
            tuple(slug for _, _, slug in members),
        )
        for members in results.values()
    ]
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
