"""The section of docs/results.md on checks: every check with its limit and remedy."""

import textwrap
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.results.checks.result import Check
from hpml_jobs.results.checks.study import GROUPS
from hpml_jobs.results.conditions import CONDITIONS, REMARKS

PAGE = Path(__file__).parents[1] / "results.md"

BEGIN = "<!-- checks: written by `make docs` from hpml_jobs/results/checks -->\n"
END = "<!-- checks: end -->\n"

HEAD = """\
Every record is checked when `status` or `collect` reads it, and every cell is compared with the
other cells of its table. `checks.csv` (`--all`) lists all results. A check may have several fixes:
the row has the most frequent one.

| marks | meaning |
|---|---|
| `!` and T1, T2, T3 or L | a `!` at the numbers of Tables 1 to 3, or at loss and accuracy |
| without `!` | a line below the tables: the number is right, its meaning is limited |
| not with X | only in `checks.csv` and `status --json` where X is violated too |

| check | level | marks | when it reports; limit | what to do |
|---|---|---|---|---|
"""

COMPARED = """\
The check `conditions` compares: {conditions}. It ignores: {remarks} (of
Python its last number).
"""

NUMBERS = {
    Affected.TIME: "T1",
    Affected.SPLIT: "T2",
    Affected.BANDWIDTH: "T3",
    Affected.LEARNING: "L",
}


def page() -> str:
    """Return docs/results.md with the checks that the code has."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section()}\n{END}{after}"


def section() -> str:
    """Return the table of the checks, and the conditions that are compared."""
    checks = chain.from_iterable(GROUPS.values())
    rows = [f"| {' | '.join(_cells(check))} |\n" for check in checks]
    conditions = ", ".join(condition.name for condition in CONDITIONS)
    remarks = ", ".join(remark.name for remark in REMARKS)
    text = COMPARED.format(conditions=conditions, remarks=remarks)
    compared = textwrap.fill(" ".join(text.split()), 100)
    return f"{HEAD}{''.join(rows)}\n{compared}\n"


def _cells(check: Check[...]) -> Iterator[str]:
    yield f"`{check.name}`"
    yield Level(check.level).value
    affected = [text for number, text in NUMBERS.items() if number in check.affects]
    marks = "all" if len(affected) == len(NUMBERS) else ", ".join(affected)
    if check.tier is Tier.NUMBER:
        marks = f"`!` {marks}"
    explained = " or ".join(f"`{name}`" for name in sorted(check.explained_by))
    yield f"{marks}; not with {explained}" if explained else marks
    sentence, *_ = check.meaning.rstrip(".").split(". ")
    yield f"{sentence.partition(': ')[0]}; limit: {check.limit}"
    yield check.remedy


FILES = {"results.md": page}
