"""What was done to a cell is part of its row: named, compared within itself, never a baseline."""

from hpml_jobs.core.recipe import Recipe
from tests.unit.builders import lab_cell, lab_record

WARMUP = Recipe(name="warmup", scaled=True, warmup_epochs=2.0)


def add_batch_512_cells(builder):
    """The cells at batch 512, and one with a recipe at 4 GPUs."""
    builder.with_published_study(
        but=tuple((n, b) for n in (1, 2, 4) for b in (32, 128))
    )
    builder.with_record(lab_record(lab_cell(4, 512, recipe=WARMUP), 20.0))


def test_treated_single_cell_is_no_baseline(builder):
    add_batch_512_cells(builder)
    builder.with_record(lab_record(lab_cell(1, 512, recipe=WARMUP), 30.0))
    first, *_ = builder.collect().groups[0].source.rows
    assert (first.timing.epoch_s, first.is_baseline) == (25.945, True)
    own = builder.table("table1-single")
    assert [line.texts for line in own.lines] == [
        ("25.95", "1")
    ]  # the plain loop alone
    scaling = builder.table("scaling")
    assert "1 GPU, batch 512 (warmup 2)" in [line.label for line in scaling.lines]


def test_treated_cell_alone_notes_missing_baseline(builder):
    builder.with_record(lab_record(lab_cell(1, 512, recipe=WARMUP), 30.0))
    assert builder.table("table1-single").notes == (
        "not requested: 1 GPU at batch 512",
    )
