"""Cells without numbers: nothing is invented, nothing dropped, and every table says why."""

import msgspec
import pytest

from hpml_jobs.core.cell import Outcome
from hpml_jobs.study.snapshot import CellState
from tests.unit.builders import lab_cell, lab_record, texts_by_label
from tests.unit.study_builder import page_text


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Outcome.PENDING, "pending in SLURM as job 17_3 (Resources)"),
        (Outcome.RUNNING, "running as job 17_3 on gr001"),
        (Outcome.FAILED, "failed: rank 1 killed by signal 9 (out of memory?)"),
        (Outcome.TIMEOUT, "timeout: 30 minutes were not enough"),
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
        assert table.notes == (f"4-GPU at batch 128: {reason} [{slug}]",)


def test_missing_baseline_keeps_time_and_omits_speedup(builder):
    builder.with_published_study(but=((1, 128),))
    slug = builder.with_cell(
        lab_cell(1, 128), Outcome.FAILED, "failed: no such data set"
    ).slug
    note = f"1-GPU at batch 128: failed: no such data set [{slug}]"
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


def test_corrupt_record_is_invalid_with_reason(builder):
    builder.with_published_study()
    slug = lab_cell(4, 128).slug
    builder.study.cell(slug).record_json.write_bytes(b'{"schema": 1, "cel')
    table = builder.table("table1-ddp")
    assert texts_by_label(table)["4-GPU"][2:4] == ("–", "–")
    (note,) = table.notes
    assert note.startswith(
        "4-GPU at batch 128: invalid: record.json is not a whole record"
    )


def test_record_of_another_cell_is_invalid(builder):
    builder.with_published_study()
    two, four = (builder.study.cell(lab_cell(gpus, 128).slug) for gpus in (2, 4))
    four.record_json.write_bytes(two.record_json.read_bytes())
    (note,) = builder.table("table1-ddp").notes
    assert f"invalid: record.json is the record of {two.slug}" in note


def test_invalid_record_of_running_cell_notes_both(builder):
    builder.with_published_study()
    slug = lab_cell(4, 128).slug
    builder.study.cell(slug).record_json.write_bytes(b"")
    builder.report_states[slug] = CellState(
        slug=slug, outcome=Outcome.RUNNING, reason="running as job 18_0"
    )
    (note,) = builder.table("table1-ddp").notes
    assert "invalid: " in note
    assert "; now running as job 18_0" in note


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


def test_unreadable_cell_with_record_keeps_number_and_is_noted(builder):
    builder.with_published_study()
    slug = lab_cell(2, 32).slug
    builder.study.cell(slug).cell_json.unlink()
    table = builder.table("table1-ddp")
    assert texts_by_label(table)["2-GPU"][0] == "30.82"
    assert table.notes == (
        f"{slug}: cell.json cannot be read: No such file or directory",
    )


def test_cell_with_deleted_folder_is_noted(builder):
    builder.with_published_study()
    builder.report_states["ddp-lost"] = CellState(
        slug="ddp-lost", outcome=Outcome.CANCELLED
    )
    (found,) = builder.collect().unplaced
    assert found.reason == "its folder is gone (cancelled)"


def test_valid_record_keeps_its_warning(builder):
    builder.with_published_study()
    slug = lab_cell(2, 32).slug
    builder.report_states[slug] = msgspec.structs.replace(
        builder.report_states[slug],
        warning="SLURM says CANCELLED by 1000, the record is whole",
    )
    (note,) = builder.table("table1-ddp").notes
    assert note == f"{slug}: SLURM says CANCELLED by 1000, the record is whole"


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


def test_study_without_records_still_has_tables(builder):
    for gpus in (1, 2):
        builder.with_cell(
            lab_cell(gpus, 32), Outcome.PENDING, "pending in SLURM as job 17_0"
        )
    table = builder.table("table1-ddp")
    assert texts_by_label(table) == {"1-GPU": ("–", "–"), "2-GPU": ("–", "–")}
    assert len(table.notes) == 2
    assert table.setting.endswith("unknown hardware, torch unknown.")


def test_cell_without_state_is_noted_as_unknown(builder):
    slug = builder.with_cell(lab_cell(1, 32)).slug
    del builder.report_states[slug]
    (note,) = builder.table("q1").notes
    assert "no record, and nothing is known of a job for it" in note
