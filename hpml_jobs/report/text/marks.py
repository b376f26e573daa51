"""Data-quality checks in a table: the mark beside a number, and the note that explains it."""

from collections.abc import Iterable

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row
from hpml_jobs.report.text.numbers import DASH, OOM

MARK = "!"
"""The mark before a number that a check makes doubtful."""

EXPLAINED = f"{MARK} see Data-quality checks"


def marked(
    group: ConditionGroup, row: Row, texts: tuple[str, ...], affected: Affected
) -> tuple[str, ...]:
    """Return a row's texts, the first with the mark if a check of its runs is about them."""
    has_number = texts[0] not in (DASH, OOM)
    is_doubtful = has_number and group.doubts(row, affected)
    return (f"{MARK}{texts[0]}", *texts[1:]) if is_doubtful else texts


def explained(group: ConditionGroup, rows: Iterable[Row], affected: Affected) -> list[str]:
    """Return the note on the marks of a table, if it has any."""
    return [EXPLAINED] if any(group.doubts(row, affected) for row in rows) else []
