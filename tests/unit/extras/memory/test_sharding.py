"""Memory, messages and time of ddp, zero1 and fsdp at the same batch, and wrong shards."""

from msgspec.structs import replace

from hpml_jobs.core.measurements import Message
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.core.training_path import TrainingPath
from tests.unit.builders import lab_cell, lab_record

GB = 10**9


def sharded_record(strategy, epoch_s, peak_bytes, *, held=None, state=None, **changes):
    record = lab_record(lab_cell(4, 128, strategy=strategy, **changes), epoch_s)
    talk = record.ranks[0].communication
    gathered = Message(
        kind="all_gather",
        purpose="parameters",
        dtype="float32",
        elements=1000,
        bytes=4000,
        count=record.iterations * 2,
        busy_s=0.1,
    )
    if strategy is Strategy.FSDP:
        talk = replace(talk, messages=(*talk.messages, gathered))
    ranks = tuple(
        replace(
            rank,
            peak_memory_bytes=peak_bytes,
            held_elements=held,
            optimizer_state_bytes=None if state is None else state - rank.rank,
            communication=talk,
        )
        for rank in record.ranks
    )
    return replace(record, ranks=ranks)


def test_sharding_compares_with_ddp_at_the_same_batch(builder):
    parameters = 11_173_962
    builder.with_record(sharded_record(Strategy.DDP, 20.0, 4 * GB))
    builder.with_record(
        sharded_record(Strategy.ZERO1, 22.0, 3 * GB, held=parameters // 2, state=2 * GB)
    )
    builder.with_record(sharded_record(Strategy.FSDP, 30.0, GB, held=parameters // 4))
    # nothing is sharded at this batch
    builder.with_record(lab_record(lab_cell(4, 32), 40.0))
    table = builder.table("paths")
    assert [line.label.split()[0] for line in table.lines] == ["ddp", "zero1", "fsdp"]
    rows = [
        dict(zip(table.sheet.columns, row, strict=True)) for row in table.sheet.rows
    ]
    assert [row["peak_memory_of_ddp"] for row in rows] == [1.0, 0.75, 0.25]
    assert [row["epoch_of_ddp"] for row in rows] == [1.0, 1.1, 1.5]
    assert rows[0]["kept"] is None
    assert [row["optimizer_state_bytes"] for row in rows] == [None, 2 * GB, None]
    assert rows[2]["kept"] == (parameters // 4) / parameters
    assert rows[2]["all_gather_bytes_per_iteration"] == 8000
    assert rows[1]["all_gather_bytes_per_iteration"] is None


def test_sharding_compares_with_ddp_on_the_same_path(builder):
    accumulated = {"path": TrainingPath(accumulate=2)}
    builder.with_record(sharded_record(Strategy.DDP, 20.0, 4 * GB))
    builder.with_record(sharded_record(Strategy.DDP, 16.0, 4 * GB, **accumulated))
    builder.with_record(sharded_record(Strategy.FSDP, 32.0, GB, **accumulated))
    table = builder.table("paths")
    assert [line.label for line in table.lines] == [
        f"{strategy} 4-GPU (accumulate 2) b128" for strategy in ("ddp", "fsdp")
    ]
    (*_, row) = table.sheet.rows
    assert dict(zip(table.sheet.columns, row, strict=True))["epoch_of_ddp"] == 2.0


def test_sharding_without_ddp_or_on_a_cpu_says_so(builder):
    builder.with_record(sharded_record(Strategy.FSDP, 30.0, GB, device=Device.CPU))
    table = builder.table("paths")
    assert "whole process" in table.notes[0]
    (row,) = table.sheet.rows
    assert (
        dict(zip(table.sheet.columns, row, strict=True))["peak_memory_of_ddp"] is None
    )


def test_no_sharding_table_without_a_sharding_strategy(builder):
    builder.with_record(lab_record(lab_cell(4, 128), 20.0))
    assert "paths" not in [table.label for table in builder.collect().groups[0].full]
