"""Check imported-row: what contradicts itself in a row of an imported file."""

import pytest

from hpml_jobs.checks import study as checks
from hpml_jobs.core.check_result import Affected, Level, Tier
from tests.unit.check_cases import check_records, imported_record, result_of

FAIL, WARN = Level.FAIL, Level.WARN


def results_of_row(record):
    """The results of a row that is alone in its study."""
    return check_records([record])[record.slug]


@pytest.mark.parametrize(
    ("level", "columns", "words"),
    [
        (FAIL, {"iterations": 1563}, "use batch_is=global"),
        (FAIL, {"iterations": 400}, "correct the batch, data set or number"),
        (FAIL, {"comm_s": 12.0}, "comm_s is 12 s of an epoch of 10.5 s"),
        (
            WARN,
            {"compute_s": 3.0, "comm_s": 1.0},
            "61.9 % less than epoch_s (limit 2 %)",
        ),
        (FAIL, {"compute_s": 8.0, "comm_s": 4.0}, "14.29 % more than epoch_s"),
        (FAIL, {"compute_s": 3.0, "comm_s": 1.0, "train_s": 9.0}, "less than train_s"),
    ],
)
def test_row_that_contradicts_itself_fires(level, columns, words):
    result = result_of(results_of_row(imported_record(**columns)), "imported-row")
    assert result.level is level
    assert words in result.reason


def test_plausible_imported_timing_passes_every_check():
    whole = {"train_s": 10.2, "compute_s": 8.2, "comm_s": 2.0, "iterations": 391}
    results = results_of_row(imported_record(**whole))
    assert len(results) == len(checks.OF_IMPORTED) + 1
    assert {result.level for result in results} == {Level.PASS}
    parts = result_of(results, "imported-row").reason.split("; ")
    assert parts[0] == "391 iterations are reported, 4 x 32 of 50,000 images make 391"
    assert parts[1] == "train_s is 10.2 s of an epoch of 10.5 s"
    assert parts[2].endswith("than train_s (limit 2 %)")


def test_parts_of_an_imported_row_mark_their_own_tables():
    times, split, bandwidth = Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH
    rows = [
        imported_record(1, epoch_s=24.0),
        imported_record(2, epoch_s=15.0),
        imported_record(4, epoch_s=10.0, compute_s=6.0, comm_s=12.0, iterations=400),
    ]
    results = check_records(rows)[rows[2].slug]
    assert [
        (r.level, r.tier, r.affects) for r in results if r.check == "imported-row"
    ] == [
        (FAIL, Tier.NUMBER, (times, split, bandwidth)),  # iterations
        (FAIL, Tier.NUMBER, (times, split)),  # comm_s
        (FAIL, Tier.NUMBER, (split,)),  # their sum
        (WARN, Tier.NUMBER, (split, bandwidth)),  # a definition
        (WARN, Tier.TABLE, (times,)),  # whole seconds
    ]


def test_imported_compute_equal_to_baseline_over_n_warns():
    """compute_s equal to the baseline's time / N is a definition, not a measurement."""
    one, four = (
        imported_record(1, epoch_s=24.0),
        imported_record(4, epoch_s=10.5, compute_s=6.0, comm_s=4.5),
    )
    result = result_of(check_records([one, four])[four.slug], "imported-row")
    assert result.level is Level.WARN
    assert "compute_s is 6 s, the baseline's time / 4 is 6 s" in result.reason
    measured = imported_record(4, epoch_s=10.5, compute_s=6.5, comm_s=4.0)
    assert (
        result_of(check_records([one, measured])[four.slug], "imported-row").level
        is Level.PASS
    )


def test_imported_whole_seconds_are_flagged_as_coarse():
    rows = [
        imported_record(gpus, epoch_s=seconds)
        for gpus, seconds in ((1, 24.0), (2, 15.0), (4, 10.0))
    ]
    result = result_of(check_records(rows)[rows[2].slug], "imported-row")
    assert result.level is Level.WARN
    assert "uncertain by 5 %" in result.reason
    rows[0] = imported_record(1, epoch_s=24.3)
    assert (
        result_of(check_records(rows)[rows[2].slug], "imported-row").level is Level.PASS
    )


PARTS_OF_A_ROW = {"s of an epoch of", "compute_s and comm_s are"}


@pytest.mark.parametrize(
    ("changes", "present"),
    [
        ({}, set()),
        ({"comm_s": 1.0}, {"s of an epoch of"}),
        ({"train_s": 0.0, "compute_s": 1.0, "comm_s": 1.0}, {"s of an epoch of"}),
    ],
)
def test_imported_timing_without_its_data_gives_no_result(changes, present):
    row = imported_record(**changes)
    reasons = [
        r.reason for r in check_records([row])[row.slug] if r.check == "imported-row"
    ]
    assert {
        words for words in PARTS_OF_A_ROW if any(words in r for r in reasons)
    } == present
