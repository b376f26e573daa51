"""Warnings of a report: marks, one line per cause, remarks."""

from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.check_result import Affected, CheckResult, Level, Tier
from hpml_jobs.report.frame import captions
from tests.unit.builders import lab_cell
from tests.unit.check_cases import (
    baseline_record,
    change_messages,
    clean_record,
)
from tests.unit.study_builder import StudyBuilder

FAIL, WARN, PASS = Level.FAIL, Level.WARN, Level.PASS
FIX = "measure again"


def a_result(check, level=WARN, figures="37 % apart", **changes):
    """The result of a check with its figures and fix."""
    fields = {"reason": f"{figures}: {FIX}", "remedy": FIX, "affects": (Affected.TIME,)}
    return CheckResult(check=check, level=level, **(fields | changes))


def marks_of(table):
    """The labels of a table's lines whose numbers have a mark."""
    return [
        line.label for line in table.lines if any(t.startswith("!") for t in line.texts)
    ]


@pytest.mark.parametrize(
    ("affected", "marked"),
    [
        (
            Affected.TIME,
            {"table1-ddp", "table2r-ddp", "table3r-ddp", "scaling", "choice", "gap"},
        ),
        (Affected.SPLIT, {"table2-ddp", "communication", "phases", "gap"}),
        (Affected.BANDWIDTH, {"table3-ddp"}),
        (Affected.LEARNING, {"replicas"}),
    ],
)
def test_mark_is_only_in_affected_tables(builder, given_checks, affected, marked):
    builder.with_published_study()
    given_checks[lab_cell(4, 512).slug] = (a_result("scatter", affects=(affected,)),)
    (group,) = builder.collect().groups
    with_mark = {table.label for table in group.tables if marks_of(table)}
    assert with_mark == marked & {table.label for table in group.tables}
    for table in group.tables:
        assert (captions.EXPLAINED in table.notes) == (table.label in with_mark)


@pytest.mark.parametrize("tier", [Tier.TABLE, Tier.LIST])
def test_lower_tiers_mark_no_number(builder, given_checks, tier):
    builder.with_published_study()
    given_checks[lab_cell(4, 512).slug] = (a_result("scatter", tier=tier),)
    (group,) = builder.collect().groups
    assert not any(marks_of(table) for table in group.tables)


def test_collect_strict_ignores_warnings(laptop, capsys):
    """Checks decide what is marked; --strict is about cells that did not finish."""
    mine = StudyBuilder(Path("outputs") / "mine")
    mine.with_record(change_messages(count=1)(clean_record())).with_record(
        baseline_record()
    )
    assert run(["collect", "mine", "--strict"]) == 0
    cause = "! 4 GPUs, batch 32: "
    assert cause in capsys.readouterr().out
