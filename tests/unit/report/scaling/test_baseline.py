"""Ratios against the smallest measured size where no single-GPU cell exists."""

import pytest

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.results.cells import Setup
from tests.unit.builders import PUBLISHED_S, a_cell, a_record

pytestmark = pytest.mark.usefixtures("no_checks")

WITHOUT_SINGLE = tuple((1, batch) for batch in (32, 128, 512))


def add(builder, gpus, batch, epoch_s, **changes):
    cell = a_cell(gpus=gpus, batch=batch, **changes)
    builder.with_record(a_record(cell, f"1{len(builder.cells)}_0.r0", epoch_s))


def only_group(builder):
    (group,) = builder.collect().groups
    return group


def row_at(group, gpus, batch, strategy=Strategy.DDP):
    (row,) = (
        row
        for row in group.source.rows
        if (row.gpus, row.batch_per_gpu, row.strategy) == (gpus, batch, strategy)
    )
    return row


def table_of(group, label):
    return next(table for table in group.tables if table.label == label)


def test_published_study_without_single_cells_is_against_two(builder):
    """t(2) / t(4), and efficiency x 2 / 4, at each batch."""
    group = only_group(builder.with_published_study(but=WITHOUT_SINGLE))
    for batch in (32, 128, 512):
        two, four = row_at(group, 2, batch), row_at(group, 4, batch)
        speedup = PUBLISHED_S[2, batch] / PUBLISHED_S[4, batch]
        assert four.reference == two.reference == Setup(2, 1, Strategy.DDP)
        assert (two.speedup, two.scaling.efficiency) == (1, 1)
        assert four.speedup == pytest.approx(speedup)
        assert four.scaling.efficiency == pytest.approx(speedup * 2 / 4)
        assert four.residual is None
        assert four.scaling.cost_per_compute is None


def test_tables_of_the_residual_need_a_single_gpu_cell(builder):
    """Against 2 GPUs, the rest of an epoch is not communication: 2 GPUs communicate, too."""
    builder.with_published_study(but=WITHOUT_SINGLE)
    labels = {table.label for table in only_group(builder).tables}
    assert not labels & {"table2r-ddp", "table3r-ddp", "q1"}


def test_each_strategy_is_against_its_own_smallest(builder):
    for gpus, epoch_s in ((2, 20.0), (4, 12.0), (8, 8.0)):
        add(builder, gpus, 64, epoch_s)
    for gpus, epoch_s in ((4, 16.0), (8, 10.0)):
        add(builder, gpus, 64, epoch_s, strategy=Strategy.ALLREDUCE)
    group = only_group(builder)
    eight = row_at(group, 8, 64)
    other = row_at(group, 8, 64, Strategy.ALLREDUCE)
    assert (eight.reference.gpus, other.reference.gpus) == (2, 4)
    assert (eight.speedup, eight.scaling.efficiency) == (2.5, 0.625)
    assert (other.speedup, other.scaling.efficiency) == (1.6, 0.8)
    scaling = table_of(group, "scaling")
    assert "against the fewest GPUs, same batch" in [
        block.head for block in scaling.blocks
    ]


def test_strong_scaling_is_against_the_smallest_size(builder):
    """Global batch 256: (2, 128), (4, 64), (8, 32)."""
    for gpus, batch, epoch_s in ((2, 128, 20.0), (4, 64, 12.5), (8, 32, 10.0)):
        add(builder, gpus, batch, epoch_s)
    group = only_group(builder)
    table = table_of(group, "scaling")
    lines = [
        dict(zip(table.sheet.columns, row, strict=True)) for row in table.sheet.rows
    ]
    rows = [line for line in lines if line["strong_speedup"] is not None]
    shown = [(r["strong_reference_gpus"], r["gpus"], r["strong_speedup"]) for r in rows]
    assert shown == [(2, 4, 1.6), (2, 8, 2.0)]
    assert [r["strong_efficiency"] for r in rows] == [0.8, 0.5]
    assert [r["strong_reference_s"] for r in rows] == [20.0, 20.0]
    assert [r["karp_flatt"] for r in rows] == [None, None]
    assert table.blocks[-1].names == ("speedup", "efficiency")


def test_requested_cell_of_one_gpu_is_waited_for(builder):
    """Where one batch has a single-GPU cell, none is compared with anything else."""
    for gpus, epoch_s in ((4, 12.0), (8, 8.0)):
        add(builder, gpus, 64, epoch_s)
    assert row_at(only_group(builder), 8, 64).speedup == 1.5
    builder.with_cell(a_cell(gpus=1, batch=64))
    assert row_at(only_group(builder), 8, 64).speedup is None
