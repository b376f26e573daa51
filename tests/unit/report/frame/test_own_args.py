"""Optimizer, recipe and args of own functions: in the setting of a table, with a baseline."""

import csv

from msgspec.structs import replace

from hpml_jobs.core.recipe import COSINE, Recipe
from hpml_jobs.report.folder import write_tables
from tests.unit.builders import RESNET, lab_cell, lab_record

OWN = replace(
    RESNET,
    name="gpt",
    model="mygpt:build",
    data="mygpt:dataset",
    optimizer="mygpt:lion",
    schedule="mygpt:decay",
)
ADAMW = replace(RESNET, optimizer="adamw")


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
    assert second.title.startswith("gpt (tied true, width 512) on ")
    assert (
        "; optimizer mygpt:lion, schedule mygpt:decay; tied true, width 256; "
        in first.setting
    )


def test_args_are_in_the_file_of_cells(builder, tmp_path):
    add_sweep(builder)
    write_tables(builder.collect(), tmp_path / "report")
    with (tmp_path / "report" / "cells.csv").open() as file:
        args = {row["workload_args"] for row in csv.DictReader(file)}
    assert args == {"tied=True width=256", "tied=True width=512"}


def test_adamw_with_its_usual_recipe_has_a_baseline(builder):
    for gpus, epoch_s in ((1, 20.0), (4, 8.0)):
        cell = lab_cell(gpus, 128, workload=ADAMW, recipe=COSINE)
        builder.with_record(lab_record(cell, epoch_s))
    builder.with_record(
        lab_record(lab_cell(4, 128, workload=ADAMW, recipe=Recipe()), 10.0)
    )
    (group,) = builder.collect().groups
    assert [(row.treatment, row.speedup) for row in group.source.rows] == [
        *(("", 1.0), ("", 2.5), ("plain", 2.0))
    ]
    assert "; AdamW, cosine; " in group.setting


def test_other_cosine_is_another_table_with_its_own_baseline(builder):
    longer = replace(COSINE, warmup_epochs=1.0)
    for recipe, epoch_s in ((COSINE, 20.0), (longer, 30.0)):
        for gpus in (1, 4):
            cell = lab_cell(gpus, 128, workload=ADAMW, recipe=recipe)
            builder.with_record(lab_record(cell, epoch_s / gpus))
    groups = builder.collect().groups
    assert [[row.speedup for row in group.source.rows] for group in groups] == [
        [1.0, 4.0]
    ] * 2
    assert "; AdamW, cosine warm-up 1; " in groups[1].setting
