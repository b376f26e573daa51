"""Which numbers stand where, against the published example and an independent computation."""

import statistics

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.results.statistics import ratio_interval
from tests.unit.builders import PUBLISHED_S, lab_cell, lab_record


def test_lab_table_numbers_match_independent_computation(builder):
    builder.with_published_study(stall_s=1.5)
    steps = {(1, 32): 1563, (1, 128): 391, (1, 512): 98, (2, 32): 782, (2, 128): 196}
    steps |= {(2, 512): 49, (4, 32): 391, (4, 128): 98, (4, 512): 25}
    for row in builder.collect().groups[0].source.rows:
        n, b = row.gpus, row.batch_per_gpu
        one, here = PUBLISHED_S[1, b], PUBLISHED_S[n, b]
        assert row.timing.iterations == steps[n, b]
        assert row.speedup == pytest.approx(one / here, rel=1e-12)
        if n == 1:
            assert row.residual is None
            continue
        comm = (here - 1.5) - (one - 1.5) / n  # 50,000 images are equal shares
        moved = {2: 1.0, 4: 1.5}[n] * steps[n, b] * 44_695_848
        assert row.residual.comm_s == pytest.approx(comm, rel=1e-9)
        assert row.residual.compute_s + row.residual.comm_s == pytest.approx(here - 1.5)
        assert row.residual.bus_gb_per_s == pytest.approx(moved / comm / 1e9, rel=1e-9)


def test_ddp_on_one_process_is_in_table_1_but_not_table_2(builder):
    builder.with_published_study()
    builder.with_record(lab_record(lab_cell(1, 32, strategy=Strategy.DDP), 50.0))
    line = builder.table("table1-ddp").lines[1]
    assert (line.label, *line.texts[:2]) == (
        "1-GPU (ddp)",
        "50.00",
        "0.972 [0.963, 0.982]",
    )
    assert [line.label for line in builder.table("table2-ddp").lines] == [
        "2-GPU",
        "4-GPU",
    ]


def test_repeats_take_median_before_dividing(builder):
    runs = {1: [10.0, 30.0, 14.0], 2: [9.0, 8.0, 5.0]}
    for gpus, times in runs.items():
        for repeat, epoch_s in enumerate(times):
            builder.with_record(
                lab_record(lab_cell(gpus, 32, repeat=repeat), epoch_s, 1.0)
            )
    _, two = builder.collect().groups[0].source.rows
    assert (
        two.speedup == statistics.median(runs[1]) / statistics.median(runs[2]) == 14 / 8
    )
    assert two.residual.comm_s == pytest.approx(7 - 13 / 2)
    table = builder.table("table1-ddp")
    assert "Median of 3 runs." in table.caption[1]
    low, high, coverage = ratio_interval((10.0, 14.0, 30.0), (5.0, 8.0, 9.0))
    assert (round(low, 2), high, coverage) == (1.11, 6.0, 0.75)
    assert two.pair.interval[:2] == (low, high)


@pytest.mark.usefixtures("no_checks")
def test_failed_repeat_is_noted_and_others_are_used(builder):
    builder.with_record(lab_record(lab_cell(1, 32), 10.0))
    builder.with_record(lab_record(lab_cell(2, 32), 8.0))
    builder.with_record(lab_record(lab_cell(2, 32, repeat=1), 6.0))
    state = builder.report_states[builder.with_cell(lab_cell(2, 32, repeat=2)).slug]
    builder.report_states[state.slug] = replace(
        state, outcome=Outcome.FAILED, reason="failed: rank 1 killed by signal 9"
    )
    table = builder.table("table1-ddp")
    assert table.lines[1].texts == ("7.000", "1.43 [1.08, 1.89]")
    assert "Median of 1 to 2 runs." in table.caption[1]
    assert table.notes[0].startswith("2 GPUs, batch 32: failed: rank 1 killed")
    assert table.notes[0].endswith("the other runs are used")
