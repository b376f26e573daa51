"""A check with its limit and remedy: from what a function observed to the result."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Generic, NamedTuple, ParamSpec

from hpml_jobs.core.check_result import Affected, CheckResult, Level, Tier
from hpml_jobs.core.text import Share, few, percent_text
from hpml_jobs.results.statistics import ERRORS

NAMED = 3
"""Number of cells that a message names; the others are counted."""

REPORT_BUG = "this is a fault of hpml_jobs: report it"

LOWER_END = "(lower end of 95 %; itself below ten iterations)"
"""How a share of measured seconds is compared with its limit, in the words of a check's limit."""

Subject = ParamSpec("Subject")


class Observation(NamedTuple):
    """What a check observed: the figures in words.

    `remedy`, `level`, `tier` and `affects`, where given, replace those of the check. `share` and
    `about` are those of `CheckResult`.
    """

    holds: bool
    text: str
    remedy: str = ""
    level: Level | None = None
    tier: Tier | None = None
    affects: frozenset[Affected] | None = None
    share: float | None = None
    about: str = ""


Observed = Observation | None | list[Observation | None]
"""What a check observed, as a whole or of each of its parts; None where it does not apply."""


@dataclass(frozen=True, kw_only=True)
class Check(Generic[Subject]):
    """A check of a record, or of a record compared with others of its study.

    `find` returns None where the check, or a part of it, does not apply. `level` is that of a
    violation, `limit` the condition of a correct number, in words with the constants that the code
    uses. `affects` names the numbers that a violation makes doubtful, `tier` the place where it is
    shown: only the list if the same record violates a check of `explained_by` that affects the same
    numbers.
    """

    name: str
    level: Level
    meaning: str
    limit: str
    remedy: str
    find: Callable[Subject, Observed]
    tier: Tier
    affects: frozenset[Affected]
    explained_by: frozenset[str]

    def __call__(
        self, *args: Subject.args, **kwargs: Subject.kwargs
    ) -> list[CheckResult]:
        """Return a result for each violation, else one that passes; none if it does not apply."""
        observed = self.find(*args, **kwargs)
        parts = observed if isinstance(observed, list) else [observed]
        observations = [part for part in parts if part is not None]
        violations = [self._violation(part) for part in observations if not part.holds]
        if violations or not observations:
            return violations
        return [
            CheckResult(
                check=self.name,
                level=Level.PASS,
                reason="; ".join(part.text for part in observations),
                tier=self.tier,
                affects=_in_order(self.affects),
                share=observations[0].share,
                about=observations[0].about,
            )
        ]

    def _violation(self, observation: Observation) -> CheckResult:
        level = observation.level or self.level
        remedy = observation.remedy or self.remedy
        affects = self.affects if observation.affects is None else observation.affects
        return CheckResult(
            check=self.name,
            level=level,
            reason=f"{observation.text}: {remedy}",
            remedy=remedy,
            tier=Tier.NUMBER if level is Level.FAIL else observation.tier or self.tier,
            affects=_in_order(affects),
            share=observation.share,
            about=observation.about,
        )


@cache
def _in_order(affects: frozenset[Affected]) -> tuple[Affected, ...]:
    return tuple(affected for affected in Affected if affected in affects)


def check(
    name: str,
    level: Level,
    tier: Tier,
    *affects: Affected,
    explained_by: Iterable[str] = (),
) -> Callable[[Callable[Subject, Observed]], Check[Subject]]:
    """Make a function a check; without `affects` it is about all numbers.

    Its docstring says what a violation means, then `Limit:` and `Fix:`. Names in braces are
    constants of its module, REPORT_BUG or LOWER_END.
    """

    def decorate(find: Callable[Subject, Observed]) -> Check[Subject]:
        constants = {
            "REPORT_BUG": REPORT_BUG,
            "LOWER_END": LOWER_END,
        } | find.__globals__
        text = " ".join((find.__doc__ or "").split()).format_map(constants)
        meaning, _, rest = text.partition(" Limit: ")
        limit, _, remedy = rest.partition(" Fix: ")
        return Check(
            name=name,
            level=level,
            meaning=meaning,
            limit=limit,
            remedy=remedy,
            find=find,
            tier=tier,
            affects=frozenset(affects or Affected),
            explained_by=frozenset(explained_by),
        )

    return decorate


def limit_text(limit: Share, error: float) -> str:
    """Return a limit with how far the share that is compared with it is known, in words.

    >>> limit_text(Share(0.05), 0.0), limit_text(Share(0.05), 0.01)
    ('limit 5 %', '± 2 %, limit 5 %')
    """
    half_width = round(ERRORS * error, 3)
    if not half_width:
        return f"limit {limit}"
    return f"± {percent_text(half_width)}, limit {limit}"


def names(slugs: Iterable[str], separator: str = ", ") -> str:
    """Return the first few cells by name; the others are counted."""
    return few(slugs, NAMED, separator)
