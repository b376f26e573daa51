"""Cells without numbers: nothing is invented, nothing dropped, and every table says why."""

import pytest

from hpml_jobs.core.cell import Outcome
from tests.unit.builders import lab_cell, lab_record, texts_by_label
from tests.unit.study_builder import page_text


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.PENDING, "pending in SLURM as job 17_3 (Resources)"),
        (Outcome.FAILED, "failed: rank 1 killed by signal 9 (out of memory?)"),
    ],
)
def test_cell_without_record_is_dash_and_note_in_every_table(builder, outcome, reason):
    builder.with_published_study(but=((4, 128),))
    slug = builder.with_cell(lab_cell(4, 128), outcome, reason).slug
    for label, texts in (
        ("table1-ddp", ("–", "–")),
        ("table2-ddp", ("–", "–")),
        ("table2r-ddp", ("–", "–")),
        ("table3-ddp", ("–", "–")),
        ("table3r-ddp", ("–",)),
    ):
        table = builder.table(label)
        assert texts_by_label(table)["4-GPU"][len(texts) : 2 * len(texts)] == texts
        assert table.notes == (f"4 GPUs, batch 128: {reason} [{slug}]",)


def test_missing_baseline_keeps_time_and_omits_speedup(builder):
    builder.with_published_study(but=((1, 128),))
    slug = builder.with_cell(
        lab_cell(1, 128), Outcome.FAILED, "failed: no such data set"
    ).slug
    note = f"1 GPU, batch 128: failed: no such data set [{slug}]"
    assert texts_by_label(builder.table("table1-ddp"))["1-GPU"][2:4] == ("–", "–")
    assert texts_by_label(builder.table("table1-ddp"))["2-GPU"][2:4] == ("20.92", "–")
    assert texts_by_label(builder.table("table2r-ddp"))["2-GPU"][2:4] == ("–", "–")
    assert texts_by_label(builder.table("table3r-ddp"))["2-GPU"][1] == "–"
    for label in ("q1", "table1-ddp", "table2r-ddp", "table3r-ddp"):
        assert builder.table(label).notes == (note,)


def test_q1_table_ends_at_out_of_memory(builder):
    builder.with_published_study()
    builder.with_out_of_memory(lab_cell(1, 2048))
    table = builder.table("q1")
    assert texts_by_label(table)["2048"] == ("OOM", "–", "–")
    assert len(table.notes) == 1


def test_unreadable_cell_without_record_is_listed_outside_tables(builder):
    builder.with_published_study()
    slug = builder.with_cell(lab_cell(8, 32), Outcome.FAILED, "failed: boom").slug
    builder.study.cell(slug).cell_json.write_bytes(b"{")
    report = builder.collect()
    (found,) = report.unplaced
    assert found.slug == slug
    assert found.reason.startswith("cell.json cannot be read: ")
    assert found.reason.endswith("; failed: boom")
    assert "## Not in any table" in page_text(report)


@pytest.mark.usefixtures("no_checks")
def test_negative_residual_is_printed_without_bandwidth(builder):
    builder.with_published_study(but=((2, 512),))
    builder.with_record(lab_record(lab_cell(2, 512), 12.0))
    assert texts_by_label(builder.table("table2r-ddp"))["2-GPU"][4:] == (
        "12.97",
        "-0.973",
    )
    assert texts_by_label(builder.table("table3r-ddp"))["2-GPU"][2] == "–"
    assert builder.table("table2r-ddp").notes == ()
