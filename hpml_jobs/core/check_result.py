"""The result of one check of one cell: its level, its reason, and the numbers it is about."""

from collections.abc import Iterable
from enum import StrEnum

from hpml_jobs.core.value import Value


class Level(StrEnum):
    """The level of a result.

    `warn`: the number is true, but may not mean what it seems to. `fail`: the number cannot be
    used: it is wrong, or what it is compared with is, or this program is.
    """

    PASS = "pass"  # noqa: S105  (a level, not a password)
    WARN = "warn"
    FAIL = "fail"


class Tier(StrEnum):
    """The place where a warning is shown; a failure is always shown beside the number."""

    NUMBER = "number"  # beside the number in its table: the number may be wrong
    TABLE = "table"  # once, in one line: the number is right, its meaning is limited
    LIST = "list"  # only in checks.csv and status --json


class Affected(StrEnum):
    """The numbers of a cell that a check is about."""

    TIME = "time"  # Table 1: epoch time, speedup, efficiency
    SPLIT = "split"  # Table 2: computation and communication
    BANDWIDTH = "bandwidth"  # Table 3
    LEARNING = "learning"  # loss, accuracy, replicas


TIMES = (Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH)


class CheckResult(Value, frozen=True, kw_only=True):
    """One check of one cell, with its reason (figures, limit, remedy) in one line for people.

    `remedy` is the end of the reason, empty where the check passed. `tier` is where the result is
    shown; a failure is always shown beside the number. `affects` names the numbers it is about.
    `share` is what was compared with a limit, `about` what it is of, such as a rank: by them the
    runs of a row are judged together. None: every run alone.
    """

    check: str
    level: Level
    reason: str
    remedy: str = ""
    tier: Tier = Tier.NUMBER
    affects: tuple[Affected, ...] = tuple(Affected)
    share: float | None = None
    about: str = ""

    @property
    def is_doubt(self) -> bool:
        """Whether the numbers that it is about are doubtful and have the mark."""
        return self.level is not Level.PASS and self.tier is Tier.NUMBER

    @property
    def figures(self) -> str:
        """The reason without the remedy."""
        return self.reason.removesuffix(f": {self.remedy}")


def in_short(results: Iterable[CheckResult]) -> str:
    """Return the names of the checks that make a number doubtful: `marked with !: closure, short`.

    Warnings of a lower tier than `number` are left out.

    >>> short = CheckResult(check="short", level=Level.WARN, reason="")
    >>> buffers = CheckResult(check="buffers", level=Level.WARN, reason="", tier=Tier.TABLE)
    >>> in_short([short, buffers]), in_short([buffers])
    ('marked with !: short', '')
    """
    names = [result.check for result in results if result.is_doubt]
    return f"marked with !: {', '.join(names)}" if names else ""


def worst_level(results: Iterable[CheckResult]) -> Level:
    """Return the most serious level of the results; `pass` without any."""
    levels = (result.level for result in results)
    return max(levels, key=[*Level].index, default=Level.PASS)
