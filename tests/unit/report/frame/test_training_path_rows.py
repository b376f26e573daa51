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
    assert table.lines[1].label == "4 GPUs, batch 128"
    assert "3.64" in table.lines[1].texts
    row = dict(zip(table.sheet.columns, table.sheet.rows[1], strict=True))
    assert (row["global_batch"], row["strong_speedup"]) == (512, 40.0 / 11.0)


def test_reference_of_a_row_does_not_depend_on_other_rows(builder):
    def strong_speedup():
        sheet = builder.table("scaling").sheet
        return sheet.rows[-1][sheet.columns.index("strong_speedup")]

    add(builder, 1, 40.0, batch=512)
    add(builder, 1, 50.0, batch=256, accumulate=2)
    add(builder, 4, 15.0, batch=32, accumulate=4)
    before = strong_speedup()
    add(builder, 2, 25.0, batch=256)
    assert strong_speedup() == before
