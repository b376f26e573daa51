"""docs/checks.md: every check is complete, and its limit is the one in its messages."""

import re
from pathlib import Path

import pytest

from hpml_jobs.results.checks.study import GROUPS, MEASURED, OF_IMPORTED
from tests.unit.check_cases import (
    baseline_record,
    check_records,
    clean_record,
    imported_record,
)

PAGE = (Path(__file__).parents[4] / "docs" / "checks.md").read_text()
CHECKS = [check for group in GROUPS.values() for check in group]
LIMIT = re.compile(r"\((?:\w+, )?(?:limit|at least) ([\d.,]+(?: %)?)")


def rows(check):
    return [
        line for line in PAGE.splitlines() if line.startswith(f"| `{check.name}` |")
    ]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.find.__name__)
def test_check_is_complete_and_on_the_page(check):
    assert check.name
    assert check.meaning.endswith((".", ")"))
    assert check.limit
    assert check.remedy
    assert not check.remedy.endswith(".")
    texts = (check.level.value, f"; limit: {check.limit} |", f"| {check.remedy} |")
    assert any(all(text in row for text in texts) for row in rows(check))


def test_every_check_that_is_run_is_on_the_page():
    assert {*MEASURED, *OF_IMPORTED} <= {*CHECKS}
    assert PAGE.count("\n| `") == len(CHECKS)


def test_limits_on_the_page_are_those_of_the_messages():
    """A message names the constant that was compared with; the page names the same number."""
    clean = [clean_record(), baseline_record()]
    whole = {"train_s": 10.2, "compute_s": 8.2, "comm_s": 2.0, "iterations": 391}
    elsewhere = imported_record(**whole)
    results = [
        *check_records(clean)[clean[0].slug],
        *check_records([elsewhere])[elsewhere.slug],
    ]
    with_limit = [result for result in results if LIMIT.search(result.reason)]
    assert len({result.check for result in with_limit}) >= 10
    for result in with_limit:
        limits = [check.limit for check in CHECKS if check.name == result.check]
        for number in LIMIT.findall(result.reason):
            if result.check != "loss":  # the product with ln(classes)
                assert any(number in limit for limit in limits), result
