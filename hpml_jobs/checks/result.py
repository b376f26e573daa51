"""A result: one check of one cell, that it holds or what is wrong, with its reason."""

from collections.abc import Iterable
from enum import StrEnum

from hpml_jobs.core.text import counted
from hpml_jobs.core.value import Value

NAMED = 3
"""So many cells are told by name, of the others how many they are."""


class Level(StrEnum):
    """How a check ended.

    `warn`: the number is true, but means something else than one thinks. `fail`: the number is
    wrong, or this program is.
    """

    PASS = "pass"  # noqa: S105  (a level, not a password)
    WARN = "warn"
    FAIL = "fail"


class CheckResult(Value, frozen=True, kw_only=True):
    """One check of one cell, with its reason (figures, limit) in one line for people."""

    check: str
    level: Level
    reason: str


def judge(
    check: str, *, holds: bool, found: str, advice: str, otherwise: Level = Level.FAIL
) -> CheckResult:
    """The result of a check: what was found, and where it does not hold what that means."""
    level = Level.PASS if holds else otherwise
    return CheckResult(check=check, level=level, reason=found if holds else f"{found}: {advice}")


def warn(check: str, *, holds: bool, found: str, advice: str) -> CheckResult:
    """The result of a check that a true number may fail."""
    return judge(check, holds=holds, found=found, advice=advice, otherwise=Level.WARN)


def in_short(checks: Iterable[CheckResult]) -> str:
    """What did not pass, by name, e.g. `1 failed check: closure; 2 warnings: short, cpus`.

    >>> loader = CheckResult(check="loader-bound", level=Level.WARN, reason="")
    >>> in_short([loader]), in_short([])
    ('1 warning: loader-bound', '')
    """
    told = list(checks)
    parts = []
    for level, word in ((Level.FAIL, "failed check"), (Level.WARN, "warning")):
        names = [result.check for result in told if result.level is level]
        if names:
            parts.append(f"{counted(len(names), word)}: {', '.join(names)}")
    return "; ".join(parts)


def names(slugs: Iterable[str], count: int | None = None) -> str:
    """Cells by name, the first few of them; `count` says how many there are if not all are given.

    >>> names(["a", "b", "c", "d", "e"]), names(["a"]), names(["a", "b", "c"], 100)
    ('a, b, c and 2 more', 'a', 'a, b, c and 97 more')
    """
    told = list(slugs)
    more = (len(told) if count is None else count) - NAMED
    return ", ".join(told[:NAMED]) + (f" and {more} more" if more > 0 else "")
