"""The microbenchmark in a report: the sheet of its points, the picture of bandwidths."""

import msgspec
import pytest

from hpml_jobs.core.measurements import CollectiveKind, NcclChoice
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.extras.microbenchmark.points import quiet_microbenchmarks
from hpml_jobs.report.frame import style
from hpml_jobs.report.pictures import PLOTS
from tests.unit.builders import lab_cell, lab_record
from tests.unit.check_cases import change_microbenchmark, clean_record


def test_disturbed_microbenchmark_gives_no_price_where_another_is_quiet():
    quiet = clean_record()
    disturbed = change_microbenchmark(busy_s=8.0 * (3.6 + 6.0))(quiet)
    assert quiet_microbenchmarks([disturbed, quiet]) == [quiet]
    assert quiet_microbenchmarks([disturbed]) == [disturbed]


def test_microbenchmark_names_collectives_and_nccl_choices(builder):
    """All-gathers of sharded strategies have half the bus factor of all-reduces."""
    whole = lab_record(lab_cell(4, 128), 20.0)
    points = whole.microbenchmark.points
    gathers = tuple(
        msgspec.structs.replace(point, kind=CollectiveKind.ALL_GATHER, launched_late=1)
        for point in points
    )
    chosen = tuple(
        NcclChoice(
            kind=kind, bytes=size, algorithm=algorithm, protocol="SIMPLE", channels=8
        )
        for kind, size, algorithm in (
            (CollectiveKind.ALL_REDUCE, 1024, "RING"),
            (CollectiveKind.ALL_REDUCE, 2**20, "NVLS"),
            (CollectiveKind.ALL_GATHER, 1024, "RING"),
        )
    )
    probe = msgspec.structs.replace(
        whole.microbenchmark, points=points + gathers, nccl=chosen
    )
    builder.with_record(msgspec.structs.replace(whole, microbenchmark=probe))
    sheet = builder.sheet("microbenchmark")
    rows = [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]
    assert {row["collective"] for row in rows} == {"all_reduce", "all_gather"}
    reduced, gathered = (
        next(row for row in rows if row["bytes"] == 2**28 and row["collective"] == kind)
        for kind in ("all_reduce", "all_gather")
    )
    assert reduced["median_s"] == gathered["median_s"]
    assert reduced["bus_gb_per_s"] == pytest.approx(2 * gathered["bus_gb_per_s"])
    assert {row["launched_late"] for row in rows} == {None, 1}
    nvls = next(
        row
        for row in rows
        if row["bytes"] == 2**20 and row["collective"] == "all_reduce"
    )
    assert (nvls["algorithm"], nvls["protocol"], nvls["channels"]) == (
        "NVLS",
        "SIMPLE",
        8,
    )


@pytest.mark.usefixtures("all_pictures")
def test_bandwidth_marks_sizes_that_strategies_send(builder):
    for gpus, epoch_s in ((1, 20.0), (2, 12.0), (4, 8.0)):
        builder.with_record(lab_record(lab_cell(gpus, 128), epoch_s))
    report = builder.collect()
    picture = PLOTS["bandwidth"](report)
    (axis,) = picture.figure.axes
    names = [text.get_text() for text in picture.figure.legends[0].get_texts()]
    assert names[:2] == ["2 GPUs", "4 GPUs"]
    assert "sent by ddp" in names
    records = [
        r
        for row in report.groups[0].source.timed
        if row.strategy is Strategy.DDP
        for r in report.groups[0].source.records(row)
    ]
    sizes = {
        m.bytes
        for r in records
        for m in r.communication.messages
        if m.kind == "all_reduce"
    }
    (marks,) = (line for line in axis.lines if line.get_color() == style.BLUE)
    assert set(marks.get_xdata()) == sizes
    assert axis.get_xscale() == axis.get_yscale() == "log"
    assert axis.get_ylabel() == "bus bandwidth, GB/s (log)"
