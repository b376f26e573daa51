"""A run that something disturbed is left out of medians where another run is there."""

from statistics import median

import pytest

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import SlowIterations
from hpml_jobs.report.answer import answer_of
from hpml_jobs.results.checks.study import check_record
from hpml_jobs.results.figures import WITHOUT, counted_runs
from tests.unit.builders import a_cell, a_record, texts_by_label
from tests.unit.check_cases import change_epoch, change_scheduling

STOPPED = change_scheduling("timed", continued_s=(2.0,))
SPLIT_STOPPED = change_scheduling("instrumented", continued_s=(2.0,))


def runs(*times_s, gpus=1, change=None, changed=()):
    """A record for each time; `change` is made in those of the numbers `changed`."""
    records = [
        a_record(
            a_cell(gpus=gpus, batch=32, repeat=repeat), f"10{repeat}_0.r0", epoch_s
        )
        for repeat, epoch_s in enumerate(times_s)
    ]
    return [change(r) if n in changed else r for n, r in enumerate(records)]


def add(builder, records):
    for record in records:
        builder.with_record(record)


def row_of(builder, gpus):
    return next(
        row for row in builder.collect().groups[0].source.rows if row.gpus == gpus
    )


def test_disturbed_run_is_not_in_the_median(builder, given_checks):
    records = runs(8.0, 9.0, 30.0, change=STOPPED, changed=[2])
    given_checks.update({record.slug: check_record(record) for record in records})
    add(builder, records)
    add(builder, runs(4.0, gpus=4))
    (row,) = (r for r in builder.collect().groups[0].source.rows if r.gpus == 1)
    assert (row.timing.epoch_s, row.timing.runs) == (8.5, 2)
    assert row_of(builder, 4).speedup == pytest.approx(8.5 / 4.0)
    note = "1 of 3 runs left out: the timed epoch was disturbed: rank 0 on gr001"
    assert any(note in line for line in builder.table("table1-ddp").notes)
    report = builder.collect()
    assert "1 to 2 of 1 to 3 runs each" in answer_of(report, report.groups[0]).sentence
    assert "!" not in texts_by_label(builder.table("table1-ddp"))["1-GPU"][0]


def test_disturbed_run_alone_stays_and_is_marked(builder):
    add(builder, runs(8.0, gpus=1))
    add(builder, runs(30.0, gpus=4, change=STOPPED, changed=[0]))
    row = row_of(builder, 4)
    assert (row.timing.epoch_s, row.left_out) == (30.0, ())
    assert texts_by_label(builder.table("table1-ddp"))["4-GPU"][0].startswith("!")


def test_all_runs_disturbed_all_count(builder):
    add(builder, runs(8.0, 10.0, change=STOPPED, changed=[0, 1]))
    assert row_of(builder, 1).timing.epoch_s == 9.0


def test_of_disturbed_runs_alone_those_that_lost_most_do_not_count(builder):
    """Of 30 and 40 s the stop of 15 s is more than 25 %, of 20 s a pause of 0.3 s is not."""
    *spoiled, short = runs(30.0, 40.0, 20.0, change=STOPPED, changed=[0, 1, 2])
    pause = SlowIterations(count=1, excess_s=0.3, longest_s=0.34, longest_index=3)
    add(builder, [*spoiled, change_epoch("timed", slow=pause)(short)])
    row = row_of(builder, 1)
    assert (row.timing.epoch_s, row.timing.runs, row.disturbed_runs) == (20.0, 1, 2)


@pytest.mark.parametrize(
    ("quiet", "disturbed"), [([9.0, 8.0], [7.0]), ([], [100.0, 30.0])]
)
def test_disturbed_run_that_is_the_fastest_counts(builder, quiet, disturbed):
    """A disturbance adds time: without it the fastest would have been faster still."""
    times_s = quiet + disturbed
    changed = range(len(quiet), len(times_s))
    add(builder, runs(*times_s, change=STOPPED, changed=changed))
    row = row_of(builder, 1)
    assert (row.timing.epoch_s, row.left_out) == (median(times_s), ())


def test_slow_iterations_alone_never_drop_a_run(builder):
    slow = SlowIterations(count=1, excess_s=8.0, longest_s=8.04, longest_index=3)
    pause = change_epoch("timed", slow=slow)
    add(builder, runs(8.0, 16.0, change=pause, changed=[1]))
    row = row_of(builder, 1)
    assert (row.timing.epoch_s, row.left_out) == (12.0, ())


def test_disturbed_instrumented_epoch_is_left_out_of_table_2():
    records = runs(8.0, 8.0, 12.0, gpus=4, change=SPLIT_STOPPED, changed=[2])
    counted = counted_runs(records)
    assert [values.epoch_s for values in counted.values] == [8.0, 8.0, 12.0]
    assert [values.compute_s is None for values in counted.values] == [
        False,
        False,
        True,
    ]
    (left,) = counted.left_out
    assert Affected.TIME not in WITHOUT[left.role]
    assert Affected.SPLIT in WITHOUT[left.role]


def test_disturbed_instrumented_epoch_says_nothing_of_the_error_of_a_time():
    """It took twice as long, and the error of all three timed epochs was 49 %."""
    stopped = change_scheduling("instrumented", continued_s=(4.0,))

    def disturbed(record):
        return change_epoch("instrumented", epoch_s=16.0)(stopped(record))

    counted = counted_runs(runs(8.0, 8.0, 8.0, gpus=4, change=disturbed, changed=[1]))
    noises = [values.noise for values in counted.values]
    assert noises[1] is None
    assert max(noises[0], noises[2]) < 0.01


def test_disturbed_unsynced_epoch_is_left_out_of_the_cost_alone():
    disturbed = change_scheduling("unsynced", continued_s=(2.0,))
    counted = counted_runs(runs(8.0, 8.0, 8.0, gpus=4, change=disturbed, changed=[1]))
    costs = [values.comm_cost_s for values in counted.values]
    assert [cost is None for cost in costs] == [False, True, False]
    assert all(values.compute_s is not None for values in counted.values)
    (left,) = counted.left_out
    assert not WITHOUT[left.role]
