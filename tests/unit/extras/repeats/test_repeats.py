"""Repeats: intervals are printed, and no difference inside the noise is called real."""

import msgspec
import pandas as pd
import pytest

from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import Baseline, Strategy, SyncBuffers
from hpml_jobs.report.folder import write_tables
from hpml_jobs.report.frame import captions
from tests.unit.builders import lab_cell, lab_record, texts_by_label
from tests.unit.check_cases import change_scheduling


def add_runs(builder, times_s, gpus=2, **changes):
    """A cell for each run."""
    for repeat, epoch_s in enumerate(times_s):
        builder.with_record(
            lab_record(lab_cell(gpus, 128, repeat=repeat, **changes), epoch_s)
        )


ONE = (20.0, 20.2, 20.1, 19.9, 20.3, 20.1)
DDP = (8.1, 8.0, 8.2, 8.1, 8.05, 8.15)
ALLREDUCE = (8.3, 8.2, 8.5, 8.3, 8.25, 8.4)
SLOW = (12.0, 12.1, 12.2, 12.0, 12.3, 12.1)


@pytest.mark.usefixtures("no_checks")
def test_repeats_table_has_medians_with_intervals(builder):
    add_runs(builder, ONE, gpus=1)
    add_runs(builder, DDP)
    table = builder.table("repeats")
    assert texts_by_label(table)["ddp 2-GPU b128"][:4] == (
        "6",
        "8.100",
        "[8.000, 8.200]",
        "0.93",
    )
    assert texts_by_label(table)["ddp 2-GPU b128"][4] == "2.48"  # 20.1 / 8.1
    assert texts_by_label(table)["ddp 2-GPU b128"][-1] == (
        "faster: 0.403 [0.399, 0.408] times the seconds"
    )
    assert "96.9 % (6 runs)" in table.caption[0]
    write_tables(builder.collect(), builder.study.report)
    frame = pd.read_csv(builder.study.report / "repeats.csv").set_index("row")
    two = frame.loc["2-GPU"]
    assert (two["epoch_low_s"], two["epoch_high_s"], two["epoch_covers"]) == (
        8.0,
        8.2,
        0.96875,
    )
    assert two["speedup_low"] <= 20.1 / 8.1 <= two["speedup_high"]
    assert two["all_epoch_s"] == "8.1 8.0 8.2 8.1 8.05 8.15"


def test_single_run_has_no_interval_and_a_note(builder, no_checks):
    add_runs(builder, ONE, gpus=1)
    add_runs(builder, DDP[:1])
    table = builder.table("repeats")
    assert texts_by_label(table)["ddp 2-GPU b128"][1:4] == ("8.100", "–", "–")
    assert texts_by_label(table)["ddp 2-GPU b128"][-1] == (
        "too few runs to tell: 8.100 s against 19.90 to 20.30 s (4 runs of each cell are needed)"
    )
    assert table.notes == ("single run, no interval: ddp 2-GPU at batch 128",)


def test_single_runs_have_no_repeats_table(builder):
    builder.with_published_study()
    labels = [table.label for table in builder.collect().groups[0].tables]
    assert "repeats" not in labels
    assert "One run." in builder.table("scaling").caption


def test_strategies_are_compared_with_the_fastest_by_ratio(builder):
    add_runs(builder, ONE, gpus=1)
    add_runs(builder, DDP)
    add_runs(builder, ALLREDUCE, strategy=Strategy.ALLREDUCE)
    add_runs(builder, SLOW, strategy=Strategy.GATHER_SCATTER)
    lines = texts_by_label(builder.table("repeats"))
    assert lines["ddp 2-GPU b128"][-1] == "–"  # the fastest itself
    near, far = lines["allreduce 2-GPU b128"], lines["gather_scatter 2-GPU b128"]
    assert near[1:3] == ("8.300", "[8.200, 8.500]")
    assert near[-1] == "ddp: slower: 1.02 [1.01, 1.04] times the seconds"  # 2.5 %
    assert far[1:3] == ("12.10", "[12.00, 12.30]")
    assert far[-1] == "ddp: slower: 1.49 [1.48, 1.52] times the seconds"
    sheet = builder.table("repeats").sheet
    assert sheet.rows[3][sheet.columns.index("strategy")] == "gather_scatter"
    assert sheet.rows[3][sheet.columns.index("fastest_p")] == pytest.approx(
        3 * 2 / 924, rel=0.1
    )


def test_two_runs_are_too_few_to_tell(builder):
    add_runs(builder, ONE[:2], gpus=1)
    add_runs(builder, DDP[:2])
    add_runs(builder, SLOW[:2], strategy=Strategy.ALLREDUCE)
    lines = texts_by_label(builder.table("repeats"))
    assert lines["allreduce 2-GPU b128"][-1] == (
        "ddp: too few runs to tell: 12.00 to 12.10 s against 8.000 to 8.100 s "
        "(4 runs of each cell are needed)"
    )
    assert "50.0 % (2 runs)" in builder.table("repeats").caption[0]


def test_scattered_runs_are_flagged_and_all_shown(builder):
    add_runs(builder, (8.0, 8.1, 10.0, 11.0, 8.0))
    mark, note = builder.table("repeats").notes
    assert mark == captions.EXPLAINED
    assert note == (
        "ddp 2-GPU b128: the runs scatter: IQR 24.7 % of the median (limit 10 %); runs: "
        "8.000, 8.100, 10.00, 11.00, 8.000 s"
    )


def test_instrumented_epoch_values_have_intervals(builder):
    add_runs(builder, DDP)
    found = dict(
        zip(
            builder.sheet("repeats-measured").columns,
            builder.sheet("repeats-measured").rows[0],
            strict=True,
        )
    )
    assert found["compute_s"] == pytest.approx(0.9 * 1.005 * 8.1)
    assert found["compute_low_s"] == pytest.approx(0.9 * 1.005 * 8.0)
    assert found["comm_exposed_high_s"] == pytest.approx(0.08 * 1.005 * 8.2)
    sent = 196 * 44_695_848
    assert found["bandwidth_low_gb_per_s"] == pytest.approx(
        sent / (0.09 * 1.005 * 8.199) / 1e9
    )


def test_speedup_is_ratio_of_medians(builder):
    add_runs(builder, (10.0, 30.0, 14.0), gpus=1)
    add_runs(builder, (9.0, 8.0, 5.0))
    found = builder.table("repeats").sheet
    speedup = found.rows[1][found.columns.index("speedup")]
    assert speedup == 14 / 8


def add_runs_at(builder, gpus, starts, strategy=Strategy.DDP):
    """A cell for each start."""
    for repeat, start in enumerate(starts):
        cell = lab_cell(
            gpus,
            128,
            repeat=repeat,
            strategy=Strategy.SINGLE if gpus == 1 else strategy,
        )
        record = lab_record(cell, 20.0 / gpus + repeat / 10)
        attempt = msgspec.structs.replace(
            record.attempt, started=f"2026-10-01T{start}:00+00:00"
        )
        builder.with_record(msgspec.structs.replace(record, attempt=attempt))


@pytest.mark.parametrize(
    ("one", "two", "hand", "words"),
    [
        (
            ("10:00", "13:00"),
            ("11:00", "14:00"),
            ("12:00", "15:00"),
            "measured in rounds: every",
        ),
        (
            ("10:00", "11:00"),
            ("12:00", "14:00"),
            ("13:00", "15:00"),
            "in rounds among the cells",
        ),
        (
            ("10:00", "11:00"),
            ("12:00", "13:00"),
            ("14:00", "15:00"),
            "not measured in rounds",
        ),
    ],
)
def test_repeats_caption_says_order_of_the_runs(builder, one, two, hand, words):
    add_runs_at(builder, 1, one)
    add_runs_at(builder, 2, two)
    add_runs_at(builder, 2, hand, Strategy.ALLREDUCE)
    assert words in builder.table("repeats").caption[-1]


@pytest.mark.parametrize(
    ("order", "words"), [(0, "slower: 1.04 "), (1, "no significant diff")]
)
def test_drift_of_the_machine_is_in_all_runs_of_a_round(builder, order, words):
    """The machine becomes 15 % slower; one strategy after the other, no two runs share that."""
    for repeat in range(6):
        for number, strategy in enumerate((Strategy.DDP, Strategy.ALLREDUCE)):
            cell = lab_cell(2, 128, repeat=repeat, strategy=strategy)
            record = lab_record(cell, (1 + 0.04 * number) * (10.0 + 0.3 * repeat))
            at = (repeat, number) if order == 0 else (number, repeat)
            started = "2026-10-01T{:02d}:{:02d}:00+00:00".format(*at)
            attempt = msgspec.structs.replace(record.attempt, started=started)
            builder.with_record(msgspec.structs.replace(record, attempt=attempt))
    lines = texts_by_label(builder.table("repeats"))
    assert lines["allreduce 2-GPU b128"][-1].startswith(f"ddp: {words}")


@pytest.mark.usefixtures("no_checks")
def test_repeats_are_compared_with_the_smallest_size(builder):
    add_runs(builder, (20.0, 20.1, 20.2, 20.3), gpus=2)
    add_runs(builder, (12.0, 12.1, 12.2, 12.3), gpus=4)
    (group,) = builder.collect(Baseline.SMALLEST).groups
    table = next(table for table in group.tables if table.label == "repeats")
    assert "against 2 GPUs" in [block.head for block in table.blocks]
    assert "against_reference_ratio" in table.sheet.columns
    assert any(text.startswith("faster") for text in table.lines[-1].texts)


def lines_of(sheet):
    return [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]


def test_strategies_are_compared_within_one_treatment(builder):
    for seed in (0, 1):
        builder.with_record(lab_record(lab_cell(2, 128, seed=seed), 20.0))
        off = lab_cell(2, 128, seed=seed, sync_buffers=SyncBuffers.OFF)
        builder.with_record(lab_record(off, 19.0))
    assert "fastest" not in builder.table("repeats").sheet.columns
    warmup = Recipe(name="warmup", scaled=True, warmup_epochs=2.0)
    builder.with_record(lab_record(lab_cell(2, 128, recipe=warmup), 18.0))
    other = lab_cell(2, 128, recipe=warmup, strategy=Strategy.ALLREDUCE)
    builder.with_record(lab_record(other, 21.0))
    lines = lines_of(builder.table("repeats").sheet)
    compared = [
        (r["strategy"], r["treatment"], r["fastest"]) for r in lines if r["fastest"]
    ]
    assert compared == [("allreduce", "warmup 2", "ddp")]


def test_three_runs_with_disjoint_ranges_decide_nothing(builder):
    add_runs(builder, (8.0, 8.1, 8.2))
    add_runs(builder, (8.5, 8.6, 8.7), strategy=Strategy.ALLREDUCE)
    _, line = lines_of(builder.table("repeats").sheet)
    assert line["against_fastest"].startswith(
        "ddp: too few runs to tell: 8.500 to 8.700 s against 8.000"
    )
    assert line["fastest_p"] is None


def test_overlapping_ranges_of_six_runs_may_differ(builder):
    add_runs(builder, (8.0, 8.1, 8.2, 8.1, 8.0, 8.5))
    add_runs(builder, (8.4, 8.6, 8.7, 8.6, 8.5, 8.8), strategy=Strategy.ALLREDUCE)
    _, line = lines_of(builder.table("repeats").sheet)
    assert line["against_fastest"] == "ddp: slower: 1.06 [1.02, 1.09] times the seconds"


def test_repeats_keep_all_runs_and_name_those_left_out(builder):
    change = change_scheduling("timed", continued_s=(2.0,))
    for repeat, epoch_s in enumerate((8.0, 9.0, 30.0)):
        record = lab_record(lab_cell(2, 128, repeat=repeat), epoch_s)
        builder.with_record(change(record) if epoch_s == 30.0 else record)
    (line,) = lines_of(builder.table("repeats").sheet)
    assert line["all_epoch_s"] == "8.0 9.0 30.0"
    assert line["left_out_epoch_s"] == "30.0"
    assert line["runs"] == 2


def test_other_loader_workers_are_compared_in_a_sentence(builder):
    builder.with_record(lab_record(lab_cell(1, 128, loader_workers=2), 30.0))
    builder.with_record(lab_record(lab_cell(1, 128, loader_workers=8), 20.0))
    (difference,) = builder.collect().differences
    assert difference.startswith(
        "DataLoader workers per process: 2 | 8; 8 against 2 (1 GPU, batch"
    )
    builder.with_record(lab_record(lab_cell(1, 128, loader_workers=4, threads=2), 25.0))
    assert not any("4 against" in line for line in builder.collect().differences)
