"""Table of the largest batch that fits, with the reason why the next one does not."""

import msgspec

from hpml_jobs.core.cell import Outcome
from hpml_jobs.study.files import encode, write_whole
from tests.unit.builders import lab_cell, lab_record


def mark_as_ladder(builder, slug):
    folder = builder.study.cell(slug)
    file = msgspec.structs.replace(folder.read(), ladder=True)
    write_whole(folder.cell_json, encode(file))


def with_memory(record, *peaks):
    ranks = tuple(
        msgspec.structs.replace(rank, peak_memory_bytes=peak)
        for rank, peak in zip(record.ranks, peaks, strict=True)
    )
    return msgspec.structs.replace(record, ranks=ranks)


def csv_rows(builder):
    return [row[:7] for row in builder.table("largest").sheet.rows]


def test_largest_batch_absent_without_ladder_or_oom(builder):
    builder.with_published_study()
    assert "largest" not in [table.label for table in builder.collect().groups[0].full]


def test_largest_batch_ends_at_out_of_memory(builder):
    builder.with_record(lab_record(lab_cell(1, 512), 26.0))
    builder.with_record(
        with_memory(lab_record(lab_cell(2, 128), 20.0), 3 * 10**9, 5 * 10**9)
    )
    builder.with_record(
        with_memory(lab_record(lab_cell(2, 512), 15.0), 12 * 10**9, 13 * 10**9)
    )
    builder.with_out_of_memory(lab_cell(2, 2048))
    assert csv_rows(builder) == [
        ("ddp", 2, 1, "", 512, 13 * 10**9, "2048 ran out of memory")
    ]
    (line,) = builder.table("largest").lines
    assert line.texts == ("512", "13.0", "2048 ran out of memory")


def test_largest_batch_ignores_steps_not_tried(builder):
    builder.with_record(lab_record(lab_cell(2, 128), 20.0))
    builder.with_out_of_memory(lab_cell(2, 512))
    builder.with_cell(
        lab_cell(2, 2048), Outcome.OOM, "not tried: batch 512 ran out of memory"
    )
    assert csv_rows(builder)[0][4:] == (128, None, "512 ran out of memory")


def test_largest_batch_names_data_limit_or_failure(builder):
    for batch in (32, 128):
        mark_as_ladder(
            builder, builder.with_record(lab_record(lab_cell(1, batch), 20.0)).slug
        )
    mark_as_ladder(builder, builder.with_record(lab_record(lab_cell(2, 32), 20.0)).slug)
    mark_as_ladder(
        builder, builder.with_cell(lab_cell(2, 128), Outcome.TIMEOUT, "too slow").slug
    )
    mark_as_ladder(
        builder, builder.with_cell(lab_cell(4, 32), Outcome.FAILED, "it broke").slug
    )
    assert [row[1:] for row in csv_rows(builder)] == [
        (1, 1, "", 128, None, "the next is larger than one rank's share of the data"),
        (2, 1, "", 32, None, "128 timeout"),
        (4, 1, "", None, None, "32 failed"),
    ]
