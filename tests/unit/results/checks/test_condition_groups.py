"""Checks compare the runs of one table: cells under other conditions never share a row."""

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected, Level
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.checks.study import checked_groups
from tests.unit.builders import a_cell
from tests.unit.check_cases import (
    attempt_between,
    change_facts,
    clean_record,
    result_of,
)


def measured(gpus, repeat, torch, epoch_s):
    """One run with a version of torch; each of a study has an hour of its own."""
    strategy = Strategy.SINGLE if gpus == 1 else Strategy.DDP
    cell = a_cell(gpus=gpus, strategy=strategy, batch=32, repeat=repeat)
    hour = f"2026-10-01T1{2 * repeat + gpus}"
    attempt = attempt_between(f"{hour}:00", f"{hour}:05")
    return change_facts(torch=torch)(clean_record(cell, epoch_s, attempt=attempt))


def groups_of(records):
    return checked_groups(
        [
            CellResult(slug=r.slug, cell=r.cell, record=r, outcome=Outcome.OK)
            for r in records
        ]
    )


def warnings(group, check):
    """The reasons of the violations of a check by the runs of a group."""
    return [
        result.reason
        for cell_result in group.cells
        for result in group.checks[cell_result.slug]
        if result.check == check and result.level is not Level.PASS
    ]


def test_repeat_after_an_update_marks_no_number():
    one, two = measured(1, 0, "2.7.1", 60.0), measured(2, 0, "2.7.1", 31.0)
    again = measured(2, 1, "2.8.0", 10.0)
    before, after = groups_of([one, two, again])
    single, pair = before.timed
    assert (pair.cells, after.timed[0].cells) == ((two.slug,), (again.slug,))
    efficiency = result_of(before.checks[two.slug], "efficiency")
    assert efficiency.level is Level.PASS
    assert efficiency.reason.startswith(
        "efficiency is 96.77 % over 2 GPUs (limit 105 %)"
    )
    baseline = result_of(before.checks[one.slug], "efficiency")
    assert (
        "ddp on 2 GPUs, compared with this cell, has an efficiency of 96.77 %"
        in baseline.reason
    )
    assert "efficiency" not in {result.check for result in after.checks[again.slug]}
    for group, rows in ((before, (single, pair)), (after, after.timed)):
        assert warnings(group, "scatter") == warnings(group, "efficiency") == []
        assert not any(Affected.TIME in row.doubts for row in rows)
    assert "in torch 2.7.1 (theirs 2.8.0)" in warnings(before, "conditions")[0]
    assert "in torch 2.8.0 (theirs 2.7.1)" in warnings(after, "conditions")[0]


def test_efficiency_above_one_in_a_group_is_not_hidden_by_another():
    """The median of all runs of 2 GPUs is an efficiency of 0.98; in one group it is 1.46."""
    old = [
        measured(gpus, n, "2.7.1", s)
        for gpus, s in ((1, 60.0), (2, 20.5))
        for n in (0, 1)
    ]
    new = [measured(2, repeat, "2.8.0", 40.5) for repeat in (2, 3)]
    before, after = groups_of([*old, *new])
    single, pair = before.timed
    failed = result_of(before.checks[pair.cells[0]], "efficiency")
    assert failed.level is Level.FAIL
    assert (
        "efficiency is 146.34 % [146.34 %, 146.34 %] over 2 GPUs (limit 105 %)"
        in failed.reason
    )
    of_single = result_of(before.checks[single.cells[0]], "efficiency")
    assert of_single.level is Level.FAIL
    assert warnings(after, "efficiency") == []
    assert Affected.TIME not in after.timed[0].doubts
