"""The profiler in a report: its columns beside the phases, and its seconds."""

import pytest
from msgspec.structs import replace

from tests.unit.builders import lab_cell, lab_record


def test_profiler_difference_is_in_percent(builder):
    builder.with_record(lab_record(lab_cell(2, 128), 20.0))
    odd = lab_record(lab_cell(4, 128), 20.0)
    trace = replace(odd.ranks[0].profiler, instruments_comm_s=0.23)
    ranks = tuple(replace(rank, profiler=trace) for rank in odd.ranks)
    builder.with_record(replace(odd, ranks=ranks))
    two, _, four, _ = builder.table("phases").lines
    assert two.texts[-5:] == ("85.0", "10.0", "2.5", "7.5", "1.0")
    assert four.texts[-1] == "15.0"
    sheet = builder.sheet("profiler")
    row = dict(zip(sheet.columns, sheet.rows[0], strict=True))
    assert (row["gpus"], row["iterations"], row["window_s"], row["compute_s"]) == (
        2,
        10,
        2.0,
        1.7,
    )
    assert (row["comm_s"], row["overlap_s"], row["idle_s"]) == (
        0.2,
        0.05,
        pytest.approx(0.15),
    )
    assert row["instruments_comm_s"] == pytest.approx(0.202)


def test_phases_without_a_trace_have_no_columns_of_it(builder):
    record = lab_record(lab_cell(2, 128), 20.0)
    ranks = tuple(replace(rank, profiler=None) for rank in record.ranks)
    builder.with_record(replace(record, ranks=ranks))
    table = builder.table("phases")
    assert not any("profiler" in block.head for block in table.blocks)
    assert not any("torch.profiler" in text for text in table.caption)
    assert "profiler" not in builder.collect().groups[0].sheets
