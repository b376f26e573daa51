"""Optimizer, recipe and args of own functions: in the setting of a table, with a baseline."""

from msgspec.structs import replace

from tests.unit.builders import RESNET, lab_cell, lab_record

OWN = replace(
    RESNET,
    name="gpt",
    model="mygpt:build",
    data="mygpt:dataset",
    optimizer="mygpt:lion",
    schedule="mygpt:decay",
)


def add_sweep(builder):
    """Two sizes of a model, each on 1 and on 4 GPUs."""
    for width, epoch_s in ((256, 20.0), (512, 60.0)):
        workload = replace(OWN, args={"width": width, "tied": True})
        for gpus, times in ((1, 1.0), (4, 0.4)):
            cell = lab_cell(gpus, 128, workload=workload)
            builder.with_record(lab_record(cell, times * epoch_s))


def test_cells_with_other_args_are_compared_with_their_own_baseline(builder):
    add_sweep(builder)
    first, second = builder.collect().groups
    assert [row.speedup for row in first.source.rows] == [1.0, 2.5]
    assert [row.timing.epoch_s for row in second.source.rows] == [60.0, 24.0]
    assert [row.speedup for row in second.source.rows] == [1.0, 2.5]
    assert "args tied true, width 512" in second.differences
    assert second.name == "args tied true, width 512"
    assert (
        "; optimizer mygpt:lion, schedule mygpt:decay; tied true, width 256; "
        in first.setting
    )
