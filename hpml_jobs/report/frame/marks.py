"""Data-quality checks in a table: the mark beside a number, and the note that explains it."""

from collections.abc import Iterable

from hpml_jobs.checks.result import Affected
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import DASH, OOM
from hpml_jobs.report.frame.rows import Row

MARK = "!"
"""The mark before a number that a check makes doubtful."""

EXPLAINED = f"{MARK} see Data-quality checks"


def mark(text: str, *, is_doubtful: bool) -> str:
    """Return the text of a number with the mark if it is doubtful; it needs a number."""
    return f"{MARK}{text}" if is_doubtful and text not in (DASH, OOM) else text


def marked(
    group: ConditionGroup, row: Row, texts: tuple[str, ...], affected: Affected
) -> tuple[str, ...]:
    """Return a row's texts, the first with the mark if a check of its runs is about them."""
    return mark(texts[0], is_doubtful=group.doubts(row, affected)), *texts[1:]


def explained(group: ConditionGroup, rows: Iterable[Row], affected: Affected) -> list[str]:
    """Return the note on the marks of a table, if it has any."""
    return [EXPLAINED] if any(group.doubts(row, affected) for row in rows) else []
