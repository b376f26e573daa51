"""A training path has rows of its own, which are compared with one GPU on the same path."""

from msgspec.structs import replace

from hpml_jobs.core.training_path import Precision, TrainingPath
from tests.unit.builders import lab_cell, lab_record


def add(builder, gpus, epoch_s, batch=512, **path):
    builder.with_record(
        lab_record(lab_cell(gpus, batch, path=TrainingPath(**path)), epoch_s)
    )


def test_path_without_its_baseline_notes_it(builder):
    add(builder, 1, 20.0)
    add(builder, 2, 8.0, precision=Precision.BF16)
    rows = {row.setup.path: row for row in builder.collect().groups[0].source.rows}
    assert rows["bf16"].speedup is None
    notes = builder.table("table1-ddp").notes
    assert "not requested: 1-GPU (bf16) at batch 512" in notes


def test_strong_scaling_pairs_accumulated_batches_with_more_gpus(builder):
    add(builder, 1, 40.0, batch=128, accumulate=4)
    add(builder, 4, 11.0, batch=128)
    rows = builder.collect().groups[0].source.rows
    assert [row.global_batch for row in rows] == [512, 512]
    table = builder.table("scaling")
    assert table.lines[1].label == "ddp 4-GPU b128"
    assert "3.64" in table.lines[1].texts
    row = dict(zip(table.sheet.columns, table.sheet.rows[1], strict=True))
    assert (row["global_batch"], row["strong_speedup"]) == (512, 40.0 / 11.0)


def test_rows_and_tables_are_in_the_order_of_numbers(builder):
    for batches in (16, 2, 4):
        add(builder, 2, 10.0, accumulate=batches)
    rows = builder.collect().groups[0].source.rows
    assert [row.treatment for row in rows] == [f"accumulate {n}" for n in (2, 4, 16)]
    for width in (1024, 64, 256):
        of = replace(
            lab_cell(1, 512).workload, model="mine:build", args={"width": width}
        )
        builder.with_record(lab_record(lab_cell(1, 512, workload=of), 40.0))
    widths = [group.source.conditions["args"] for group in builder.collect().groups]
    assert [text for text in widths if text != "none"] == [
        "width 64",
        "width 256",
        "width 1024",
    ]
