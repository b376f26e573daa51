"""The largest batch that fits: named where a ladder was climbed or memory ran out, with why."""

import msgspec

from hpml_jobs.slurm.states import Outcome
from hpml_jobs.study.files import encode, write_whole


def climbed(make, slug: str) -> None:
    folder = make.study.cell(slug)
    file = msgspec.structs.replace(folder.read(), ladder=True)
    write_whole(folder.cell_json, encode(file))


def with_memory(record, *peaks: int):
    ranks = tuple(
        msgspec.structs.replace(rank, peak_memory_bytes=peak)
        for rank, peak in zip(record.ranks, peaks, strict=True)
    )
    return msgspec.structs.replace(record, ranks=ranks)


def rows(make) -> list[tuple]:
    return [row[:7] for row in make.table("largest").sheet.rows]


def test_largest_batch_absent_without_ladder_or_oom(make) -> None:
    make.nine()
    assert "largest" not in [table.label for table in make.collect().groups[0].full]


def test_largest_batch_ends_at_out_of_memory(make) -> None:
    make.add(make.record(make.cell(1, 512), 26.0))
    make.add(with_memory(make.record(make.cell(2, 128), 20.0), 3 * 10**9, 5 * 10**9))
    make.add(with_memory(make.record(make.cell(2, 512), 15.0), 12 * 10**9, 13 * 10**9))
    make.out_of_memory(make.cell(2, 2048))
    assert rows(make) == [("ddp", 2, 1, "", 512, 13 * 10**9, "2048 ran out of memory")]
    (line,) = make.table("largest").lines
    assert line.texts == ("512", "13.0", "2048 ran out of memory")


def test_largest_batch_ignores_steps_not_tried(make) -> None:
    make.add(make.record(make.cell(2, 128), 20.0))
    make.out_of_memory(make.cell(2, 512))
    make.ask(make.cell(2, 2048), Outcome.OOM, "not tried: batch 512 ran out of memory")
    assert rows(make)[0][4:] == (128, None, "512 ran out of memory")


def test_largest_batch_names_data_limit_or_failure(make) -> None:
    for batch in (32, 128):
        climbed(make, make.add(make.record(make.cell(1, batch), 20.0)))
    climbed(make, make.add(make.record(make.cell(2, 32), 20.0)))
    climbed(make, make.ask(make.cell(2, 128), Outcome.TIMEOUT, "too slow"))
    climbed(make, make.ask(make.cell(4, 32), Outcome.FAILED, "it broke"))
    assert [row[1:] for row in rows(make)] == [
        (1, 1, "", 128, None, "the next is more than a share of the data"),
        (2, 1, "", 32, None, "128 timeout"),
        (4, 1, "", None, None, "32 failed"),
    ]
