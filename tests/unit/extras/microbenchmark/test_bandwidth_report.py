"""The microbenchmark in a report: the sheet of its points, the picture of bandwidths."""

import msgspec
import pytest

from hpml_jobs.core.measurements import CollectiveKind, NcclChoice
from hpml_jobs.extras.microbenchmark.points import quiet_microbenchmarks
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
