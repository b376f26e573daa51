"""Warnings of a report: marks, one line per cause, remarks."""

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console

from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.check_result import Affected, CheckResult, Level, Tier
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.report.files.screen import show_all
from hpml_jobs.report.frame import captions
from tests.unit.builders import lab_cell, lab_record
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
    given_checks[lab_cell(4, 512).slug] = (a_result("made-up", affects=(affected,)),)
    (group,) = builder.collect().groups
    with_mark = {table.label for table in group.tables if marks_of(table)}
    assert with_mark == marked & {table.label for table in group.tables}
    for table in group.tables:
        assert (captions.EXPLAINED in table.notes) == (table.label in with_mark)


def test_strong_scaling_marks_the_ratios_that_are_doubtful(builder, given_checks):
    for gpus, batch in ((1, 128), (2, 64), (4, 32)):
        builder.with_record(lab_record(lab_cell(gpus, batch), 20.0))
    assert "!" not in "".join(
        "".join(line.texts) for line in builder.table("scaling").lines
    )
    given_checks[lab_cell(4, 32).slug] = (a_result("made-up"),)
    _, two, four = builder.table("scaling").lines
    assert (two.texts[-3], four.texts[-3]) == ("1.00", "!1.00")


@pytest.mark.parametrize("tier", [Tier.TABLE, Tier.LIST])
def test_lower_tiers_mark_no_number(builder, given_checks, tier):
    builder.with_published_study()
    given_checks[lab_cell(4, 512).slug] = (a_result("made-up", tier=tier),)
    (group,) = builder.collect().groups
    assert not any(marks_of(table) for table in group.tables)


def test_remark_is_with_the_checks(builder, given_checks):
    builder.with_record(lab_record(lab_cell(2, 32, protocol=Protocol.LAB), 20.0))
    slug = builder.slug
    given_checks[slug] = (
        a_result("made-up", tier=Tier.TABLE, affects=(Affected.SPLIT,)),
    )
    assert builder.table("checks").notes == (
        "made-up: 2 GPUs, batch 32 (ddp): 37 % apart. Measure again",
    )


def test_remark_of_several_strategies_is_said_once(builder, given_checks):
    builder.with_published_study()
    for strategy in (Strategy.ALLREDUCE, Strategy.ALLREDUCE_FLAT):
        builder.with_record(lab_record(lab_cell(2, 32, strategy=strategy), 20.0))
        given_checks[builder.slug] = (a_result("made-up", tier=Tier.TABLE),)
    (group,) = builder.collect().groups
    lines = [
        note for table in group.tables for note in table.notes if "made-up" in note
    ]
    assert lines == [
        "made-up: 2 GPUs, batch 32 (allreduce); 2 GPUs, batch 32 (allreduce_flat): 37 % "
        "apart (the first). Measure again"
    ]


def test_each_cause_has_one_line_the_most_serious_first(builder, given_checks):
    builder.with_published_study()
    for number, (gpus, batch) in enumerate(
        ((1, 32), (2, 32), (4, 32), (2, 128), (4, 128))
    ):
        given_checks[lab_cell(gpus, batch).slug] = (
            a_result("short", figures=f"{number} iterations"),
            a_result("split", affects=(Affected.SPLIT,)),
            a_result("fit", tier=Tier.LIST),
            a_result("fine", PASS),
        )
    given_checks[lab_cell(4, 512).slug] = (
        a_result("closure", FAIL, affects=(Affected.SPLIT,)),
    )
    table = builder.table("checks")
    many = "and 2 more"
    assert table.notes == (
        "closure: 4 GPUs, batch 512 (ddp): 37 % apart. Measure again",
        "short: 1 GPU, batch 32; 2 GPUs, batch 32 (ddp); 2 GPUs, batch 128 "
        f"(ddp) {many}: 0 iterations (the first). Measure again",
        "split: 1 GPU, batch 32; 2 GPUs, batch 32 (ddp); 2 GPUs, batch 128 "
        f"(ddp) {many}: 37 % apart (the first). Measure again",
    )
    assert table.caption[0] == (
        "5 checks passed in 6 cells; 5 warnings without effect on a table: see checks.csv."
    )


def test_other_fix_is_another_cause(builder, given_checks):
    builder.with_published_study()
    for batch, fix in ((32, "do this"), (128, "do that")):
        given_checks[lab_cell(2, batch).slug] = (
            a_result("made-up", reason=f"bad: {fix}", remedy=fix),
        )
    assert builder.table("checks").notes == (
        "made-up: 2 GPUs, batch 32 (ddp): bad. Do this",
        "made-up: 2 GPUs, batch 128 (ddp): bad. Do that",
    )


def test_doubtful_run_of_several_is_counted(builder, given_checks):
    for repeat in range(3):
        builder.with_record(lab_record(lab_cell(2, 32, repeat=repeat), 20.0))
    given_checks[builder.slug] = (a_result("made-up"),)
    assert builder.table("checks").notes == (
        "made-up: 2 GPUs, batch 32 (ddp), 1 of 3 runs: 37 % apart. Measure again",
    )


def test_setting_and_notes_are_said_once(builder, given_checks):
    builder.with_published_study()
    given_checks[lab_cell(4, 512).slug] = (a_result("made-up"),)
    report = builder.collect()
    console = Console(width=110, file=io.StringIO())
    show_all(report, console)
    screen = " ".join(console.file.getvalue().split())
    for text in ("11,173,962 parameters", captions.EXPLAINED):
        assert screen.count(text) == 1
    # a mark of the answer, and in the table of checks
    assert screen.count("37 % apart") == 2


def test_collect_strict_ignores_warnings(laptop, capsys):
    """Checks decide what is marked; --strict is about cells that did not finish."""
    mine = StudyBuilder(Path("outputs") / "mine")
    mine.with_record(change_messages(count=1)(clean_record())).with_record(
        baseline_record()
    )
    assert run(["collect", "mine", "--strict"]) == 0
    cause = "! 4 GPUs, batch 32 (ddp): "
    assert cause in capsys.readouterr().out


def test_superlinear_speedup_marks_the_baseline_too(laptop, capsys):
    """Three GPUs' work in less than a third of the time: the baseline may be the disturbed one."""
    mine = StudyBuilder(Path("outputs") / "mine")
    mine.with_record(clean_record(epoch_s=5.0)).with_record(baseline_record())
    assert run(["collect", "mine", "--all"]) == 0
    out = capsys.readouterr().out
    table1 = out[out.index("Table 1: ") : out.index("Table 2: ")]
    assert "!30.00" in table1
    assert "!5.000" in table1
    line = " ".join(out.split())
    cells = "1 GPU, batch 32; 4 GPUs, batch 32 (ddp)"
    assert f"efficiency: {cells}: " in line


def test_first_figures_of_a_cause_close_what_they_open():
    """A first screen has the figures up to the first semicolon, which is in no parenthesis."""
    for path in (Path(__file__).parents[2] / "data/golden").rglob("checks.csv"):
        with path.open() as file:
            for row in csv.DictReader(file):
                first = row["reason"].partition("; ")[0]
                assert first.count("(") == first.count(")"), row["reason"]
