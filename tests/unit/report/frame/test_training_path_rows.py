"""A training path has rows of its own, which are compared with one GPU on the same path."""

from hpml_jobs.core.training_path import TrainingPath
from tests.unit.builders import lab_cell, lab_record


def add(builder, gpus, epoch_s, batch=512, **path):
    builder.with_record(
        lab_record(lab_cell(gpus, batch, path=TrainingPath(**path)), epoch_s)
    )


def test_strong_scaling_pairs_accumulated_batches_with_more_gpus(builder):
    add(builder, 1, 40.0, batch=128, accumulate=4)
    add(builder, 4, 11.0, batch=128)
    rows = builder.collect().groups[0].source.rows
    assert [row.global_batch for row in rows] == [512, 512]
    table = builder.table("scaling")
    assert table.lines[1].label == "4 GPUs, batch 128 (ddp)"
    assert "3.64" in table.lines[1].texts
    row = dict(zip(table.sheet.columns, table.sheet.rows[1], strict=True))
    assert (row["global_batch"], row["strong_speedup"]) == (512, 40.0 / 11.0)
