"""Repeats: intervals are printed, and no difference inside the noise is called real."""

import pandas as pd
import pytest

from hpml_jobs.core.cell import Strategy
from hpml_jobs.report.collect import write


def runs(make, times_s, gpus=2, **changes):
    """A cell for each run."""
    for repeat, epoch_s in enumerate(times_s):
        make.add(make.record(make.cell(gpus, 128, repeat=repeat, **changes), epoch_s))


def texts(table):
    return {line.label: line.texts for line in table.lines}


ONE = (20.0, 20.2, 20.1, 19.9, 20.3, 20.1)
DDP = (8.1, 8.0, 8.2, 8.1, 8.05, 8.15)
ALLREDUCE = (8.3, 8.2, 8.5, 8.3, 8.25, 8.4)
SLOW = (12.0, 12.1, 12.2, 12.0, 12.3, 12.1)


def test_repeats_table_has_medians_with_intervals(make):
    runs(make, ONE, gpus=1)
    runs(make, DDP)
    table = make.table("repeats")
    assert texts(table)["ddp 2-GPU b128"][:4] == ("6", "8.100", "[8.000, 8.200]", "0.93")
    assert texts(table)["ddp 2-GPU b128"][4] == "2.48"  # 20.1 / 8.1
    assert texts(table)["ddp 2-GPU b128"][-1] == "faster"
    assert "96.9 % (6 runs)" in table.caption[0]
    write(make.collect(), make.study.report)
    frame = pd.read_csv(make.study.report / "repeats.csv").set_index("row")
    two = frame.loc["2-GPU"]
    assert (two["epoch_low_s"], two["epoch_high_s"], two["epoch_covers"]) == (8.0, 8.2, 0.96875)
    assert two["speedup_low"] <= 20.1 / 8.1 <= two["speedup_high"]
    assert two["all_epoch_s"] == "8.1 8.0 8.2 8.1 8.05 8.15"


def test_single_run_has_no_interval_and_a_note(make):
    runs(make, ONE, gpus=1)
    runs(make, DDP[:1])
    table = make.table("repeats")
    assert texts(table)["ddp 2-GPU b128"][1:4] == ("8.100", "–", "–")
    assert texts(table)["ddp 2-GPU b128"][-1] == "one run cannot tell"
    assert table.notes == ("one run, no interval: ddp 2-GPU at batch 128",)


def test_single_runs_have_no_repeats_table(make):
    make.nine()
    labels = [table.label for table in make.collect().groups[0].tables]
    assert "repeats" not in labels
    assert "One run." in make.table("scaling").caption


def test_strategies_within_noise_have_no_significant_difference(make):
    runs(make, ONE, gpus=1)
    runs(make, DDP)
    runs(make, ALLREDUCE, strategy=Strategy.ALLREDUCE)
    runs(make, SLOW, strategy=Strategy.GATHER_SCATTER)
    near, far = make.table("compared").lines
    assert near.label == "2-GPU b128"
    assert near.texts[:2] == ("ddp 8.100 [8.000, 8.200]", "allreduce 8.300 [8.200, 8.500]")
    assert near.texts[-1] == "not told apart"
    assert far.texts[1] == "gather_scatter 12.10 [12.00, 12.30]"
    assert far.texts[-1] == "slower"


def test_two_runs_state_their_low_coverage(make):
    runs(make, ONE[:2], gpus=1)
    runs(make, DDP[:2])
    runs(make, SLOW[:2], strategy=Strategy.ALLREDUCE)
    (line,) = make.table("compared").lines
    assert line.texts[-1] == "slower (2 runs: 50 % sure)"
    assert "50.0 % (2 runs)" in make.table("repeats").caption[0]


def test_single_runs_of_strategies_are_not_comparable(make):
    make.nine()
    make.add(make.record(make.cell(2, 32, strategy=Strategy.ALLREDUCE), 40.0))
    assert make.table("scaling").notes == (
        "one run each: which strategy is faster at a place cannot be told from noise; "
        "repeats=6 can",
    )
    assert "compared" not in [table.label for table in make.collect().groups[0].tables]


def test_scattered_runs_are_flagged_and_all_shown(make):
    runs(make, (8.0, 8.1, 10.0, 11.0, 8.0))
    (note,) = make.table("repeats").notes
    assert note == (
        "ddp 2-GPU b128: the runs scatter, IQR 24.7 % of the median (limit 10 %): "
        "8.000, 8.100, 10.00, 11.00, 8.000 s"
    )


def test_instrumented_epoch_values_have_intervals(make):
    runs(make, DDP)
    found = dict(
        zip(
            make.table("repeats-measured").sheet.columns,
            make.table("repeats-measured").sheet.rows[0],
            strict=True,
        )
    )
    assert found["compute_s"] == pytest.approx(0.9 * 1.005 * 8.1)
    assert found["compute_low_s"] == pytest.approx(0.9 * 1.005 * 8.0)
    assert found["comm_exposed_high_s"] == pytest.approx(0.08 * 1.005 * 8.2)
    sent = 196 * 44_695_848
    assert found["bandwidth_low_gb_per_s"] == pytest.approx(sent / (0.09 * 1.005 * 8.199) / 1e9)


def test_speedup_is_ratio_of_medians(make):
    runs(make, (10.0, 30.0, 14.0), gpus=1)
    runs(make, (9.0, 8.0, 5.0))
    found = make.table("repeats").sheet
    speedup = found.rows[1][found.columns.index("speedup")]
    assert speedup == 14 / 8
