"""docs/results.md: every check is complete, and its limit is the one in its messages."""

import re

from hpml_jobs.results.checks.study import GROUPS
from tests.unit.check_cases import (
    baseline_record,
    check_records,
    clean_record,
    imported_record,
)

CHECKS = [check for group in GROUPS.values() for check in group]
LIMIT = re.compile(r"\((?:\w+, )?(?:limit|at least) ([\d.,]+(?: %)?)")


def test_every_check_has_limit_and_fix_and_is_explained_by_checks():
    assert all(check.meaning and check.limit and check.remedy for check in CHECKS)
    explaining = set[str]().union(*(check.explained_by for check in CHECKS))
    assert explaining <= {check.name for check in CHECKS}


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
