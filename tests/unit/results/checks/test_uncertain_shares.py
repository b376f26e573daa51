"""Limits on shares of measured seconds: judged by the lower end, and once for the runs of a row."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from hpml_jobs.core.check_result import Level, Tier
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Device
from hpml_jobs.results.checks.study import check_record
from hpml_jobs.results.statistics import error_of_median, run_noise, without_unlike
from tests.unit.builders import a_cell
from tests.unit.check_cases import change_epoch, check_records, clean_record, late_rank

PAIR = a_cell(gpus=2, batch=32, device=Device.CPU, loader_workers=2)
SCRIPTED = {"script": Script(path="train.py")}
RISING = tuple(1 + 0.1 * (number % 2) for number in range(10))
"""Ten blocks that scatter by 5 %."""


def checked(record):
    return {result.check: result for result in check_record(record)}


def scattered(role, size):
    """An epoch of which each block is another share of the median iteration."""

    def change(record):
        steps = record.ranks[0].timed.steps
        blocks = tuple(steps.median_s * (1 + size * (block - 1)) for block in RISING)
        return change_epoch(role, steps=replace(steps, block_medians_s=blocks))(record)

    return change


def with_work(blocks, number=1):
    """A rank whose work of an iteration, in blocks, is that of the others times these."""

    def change(record):
        step_s = record.ranks[0].timed.steps.median_s
        for rank in record.ranks:
            factors = blocks if rank.rank == number else (1.0,) * 10
            work_s = tuple(step_s * factor for factor in factors)
            phases = replace(rank.phases, work_blocks_s=work_s)
            record = change_epoch("instrumented", rank.rank, phases=phases)(record)
        return record

    return change


def stalls_in(blocks):
    def change(record):
        timed = record.ranks[0].timed
        each_s = 0.08 * timed.epoch_s / timed.iterations
        stalls = replace(
            timed.stalls,
            first_s=each_s,
            p20_s=0.0,
            last_s=0.0,
            block_means_s=tuple(each_s * block for block in blocks),
        )
        return change_epoch("timed", stall_s=0.08 * timed.epoch_s, stalls=stalls)(
            record
        )

    return change


STEADY = (1.0,) * 10
CASES = {
    "late rank": ("imbalance", late_rank(1, "forward_s", 0.64), with_work(STEADY)),
    "old record": (
        "imbalance",
        late_rank(1, "forward_s", 0.64),
        scattered("instrumented", 1.0),
    ),
    "longer": (
        "overhead",
        change_epoch("instrumented", epoch_s=8.64),
        lambda record: record,
    ),
    "shorter, scatter": (
        "overhead",
        change_epoch("instrumented", epoch_s=7.4),
        scattered("timed", 1.0),
    ),
    "stalls": ("loader-bound", lambda record: record, stalls_in(STEADY)),
}


@pytest.mark.parametrize("case", CASES)
def test_share_is_judged_by_its_lower_end(case):
    """Each share is 8 % or so, above the limit of 5 %: known exactly, or to more than 3 %."""
    name, share, error = CASES[case]
    result = checked(error(share(clean_record(PAIR))))[name]
    warns = case in ("late rank", "longer", "stalls")
    assert result.level is (Level.WARN if warns else Level.PASS)
    assert ("(±" in result.reason) is not warns


def late(number, seconds):
    return late_rank(number, "forward_s", seconds)


def runs_of_row(changes):
    cells = [replace(PAIR, repeat=repeat) for repeat in range(len(changes))]
    return [
        change(clean_record(cell)) for cell, change in zip(cells, changes, strict=True)
    ]


@pytest.mark.parametrize(
    ("runs", "is_shown"),
    [
        ((late(1, 0.6),), True),
        ((late(1, 0.6), late(1, 0.0), late(1, 0.0)), False),
        ((late(1, 0.6), late(0, 0.6), late(1, 0.0)), False),
        ((late(1, 0.6), late(1, 0.62), late(1, 0.0)), True),
    ],
)
def test_row_is_judged_by_its_median_once(runs, is_shown):
    """A warning is of the row, with the figures of its middle run, or in the list of its run."""
    for order in permutations(runs):
        records = runs_of_row(order)
        results = check_records(records)
        shown = {
            result.reason
            for of_run in results.values()
            for result in of_run
            if result.check == "imbalance"
            if result.level is Level.WARN and result.tier is Tier.NUMBER
        }
        assert len(shown) == is_shown
        of_all = {
            r.level
            for of_run in results.values()
            for r in of_run
            if r.check == "imbalance"
        }
        assert of_all == {Level.WARN} if is_shown else Level.WARN in of_all


@pytest.mark.parametrize(
    ("factor", "scatter", "fields", "is_split"),
    [
        (1.05, 0.01, SCRIPTED, True),
        (1.3, 0.01, SCRIPTED, False),
        (0.7, 0.01, SCRIPTED, False),
        (1.3, 0.3, SCRIPTED, True),  # not beyond its error
        (1.3, 0.01, {}, True),  # our own loop does the same in every epoch
    ],
)
def test_script_with_other_iterations_in_a_later_epoch_is_not_split(
    factor, scatter, fields, is_split
):
    record = clean_record(a_cell(batch=32, **fields))
    timed = record.ranks[0].timed.steps
    blocks_s = tuple(
        factor * timed.median_s * (1 + (-1) ** n * scatter) for n in range(10)
    )
    steps = replace(timed, block_medians_s=blocks_s)
    record = without_unlike(change_epoch("instrumented", steps=steps)(record))
    assert bool(record.phases) is bool(record.exchange) is is_split
    if not is_split:
        assert "phases: the timed epoch has iterations of " in record.facts.missing[-1]


def test_a_run_knows_the_wider_of_its_blocks_and_its_epochs():
    record = clean_record(PAIR)
    # the instruments take 0.5 %
    assert run_noise(record) == pytest.approx(0.0035, rel=0.01)
    assert run_noise(scattered("timed", 1.0)(record)) == pytest.approx(0.05, rel=0.05)
    apart = change_epoch("instrumented", epoch_s=1.2 * record.timed_s)(record)
    assert run_noise(apart) == pytest.approx(0.129, rel=0.01)


def test_error_of_repeats_is_at_least_their_noise_and_their_scatter():
    assert error_of_median([8.0, 8.0, 8.0, 8.0], [0.04] * 4) == pytest.approx(0.04)
    assert error_of_median([8.0, 10.0], [0.01, 0.01]) > 0.1
