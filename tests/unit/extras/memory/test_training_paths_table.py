"""Training paths of the same site side by side: accumulated batches, precisions."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.strategies import Device
from hpml_jobs.core.training_path import Precision, TrainingPath
from tests.unit.builders import lab_cell, lab_record


def add(builder, epoch_s, gpus=4, batch=128, **path):
    builder.with_record(
        lab_record(lab_cell(gpus, batch, path=TrainingPath(**path)), epoch_s)
    )


def rows_of(table):
    return [
        dict(zip(table.sheet.columns, row, strict=True)) for row in table.sheet.rows
    ]


def test_accumulated_batches_of_a_global_batch_are_compared(builder):
    add(builder, 20.0)
    add(builder, 24.0, batch=32, accumulate=4)
    add(builder, 22.0, batch=64, accumulate=2)
    add(builder, 30.0, batch=32)  # another global batch
    rows = rows_of(builder.table("paths"))
    assert [row["treatment"] for row in rows] == ["", "accumulate 2", "accumulate 4"]
    assert [row["epoch_of_default"] for row in rows] == pytest.approx([1.0, 1.1, 1.2])
    assert {row["global_batch"] for row in rows} == {512}
    # the builder's ddp: an all-reduce, and a broadcast of buffers
    assert {row["messages_per_iteration"] for row in rows} == {2.0}


def test_precisions_are_compared_with_fp32(builder):
    add(builder, 40.0, gpus=1, precision=Precision.FP32)
    add(builder, 20.0, gpus=1, precision=Precision.BF16)
    add(builder, 8.0, precision=Precision.BF16)
    add(builder, 12.0, precision=Precision.TF32)
    rows = rows_of(builder.table("paths"))
    ratios = [(row["gpus"], row["treatment"], row["epoch_of_default"]) for row in rows]
    assert ratios == [
        *((1, "fp32", 1.0), (1, "bf16", pytest.approx(0.5))),
        *((4, "tf32", None), (4, "bf16", None)),  # there is no default to compare with
    ]


def test_no_table_without_two_paths_at_a_site(builder):
    add(builder, 20.0)
    add(builder, 30.0, batch=32, precision=Precision.BF16)
    assert "paths" not in [table.label for table in builder.collect().groups[0].full]


def test_setting_names_all_precisions_of_a_cpu(builder):
    cpu = {"device": Device.CPU}
    for precision, words in ((None, "fp32"), (Precision.BF16, "bf16")):
        cell = lab_cell(4, 128, path=TrainingPath(precision=precision), **cpu)
        facts = replace(lab_record(cell, 20.0).facts, precision=words)
        builder.with_record(replace(lab_record(cell, 20.0), facts=facts))
    assert builder.table("paths").setting.endswith(", fp32, bf16.")
