"""The table of scaling laws: by hand from the published times, and what is not claimed."""

import pytest

from hpml_jobs.checks import CheckResult, Level
from hpml_jobs.checks.result import Affected
from hpml_jobs.core.strategies import Baseline
from tests.unit.builders import PUBLISHED_S, lab_cell, lab_record


def lines_of(table):
    return [dict(zip(table.sheet.columns, row, strict=True)) for row in table.sheet.rows]


def line(table, scaling, batch):
    (row,) = (r for r in lines_of(table) if (r["scaling"], r["batch"]) == (scaling, batch))
    return row


def test_laws_are_least_squares_of_each_line(builder):
    builder.with_published_study().with_record(lab_record(lab_cell(2, 256), 17.0))
    strong, weak = (line(builder.table("laws"), kind, 512) for kind in ("strong", "weak"))
    points = [(n, PUBLISHED_S[1, 512] / epoch_s) for n, epoch_s in ((2, 17.0), (4, 19.878))]

    def misfit(share):
        inverse = [(1 / n + share * (1 - 1 / n)) * s - 1 for n, s in points]
        return sum(error**2 for error in inverse)

    best = min((share / 1e4 for share in range(10_001)), key=misfit)
    assert strong["amdahl_serial_share"] == pytest.approx(best, abs=1e-4)
    assert strong["sizes"] == weak["sizes"] == "1, 2, 4"
    share = strong["amdahl_serial_share"]
    errors = [1 / (share + (1 - share) / n) / s - 1 for n, s in points]
    assert strong["amdahl_residual"] == pytest.approx((sum(e * e for e in errors) / 2) ** 0.5)
    assert weak["amdahl_serial_share"] is weak["gustafson_serial_share"] is None
    assert (weak["usl_contention"], weak["usl_coherence"] > 0) == (0, True)  # its sign is physical
    assert weak["usl_residual"] > 0


def test_laws_say_that_they_are_no_forecasts(builder):
    table = builder.with_published_study().table("laws")
    assert table.title == "Scaling laws: descriptions, not forecasts"
    assert any("They are no forecasts" in part for part in table.caption)
    assert not table.on_screen


def test_law_with_as_many_coefficients_as_points_has_no_residual(builder):
    table = builder.with_published_study().table("laws")
    strong = line(table, "strong", 512)
    assert strong["sizes"] == "1, 4"
    assert strong["amdahl_serial_share"] == pytest.approx(0.688, abs=0.001)  # Karp-Flatt's
    assert strong["amdahl_residual"] is None
    assert strong["usl_contention"] is None
    assert table.lines[-1].texts[-1] == "–"


def test_laws_leave_out_times_with_a_failed_check(builder, given_checks):
    builder.with_published_study()
    failed = CheckResult(check="closure", level=Level.FAIL, reason="x", affects=(Affected.TIME,))
    (slug,) = [c.slug for c in builder.cells if (c.gpus, c.batch) == (4, 512)]
    builder.with_record(lab_record(lab_cell(8, 512), 9.0))
    assert line(builder.table("laws"), "weak", 512)["sizes"] == "1, 2, 4, 8"
    given_checks[slug] = (failed,)
    assert line(builder.table("laws"), "weak", 512)["sizes"] == "1, 2, 8"


def test_laws_are_against_the_smallest_size_where_asked(builder):
    for gpus, epoch_s in ((2, 20.0), (4, 11.0), (8, 6.5)):
        builder.with_record(lab_record(lab_cell(gpus, 128), epoch_s))
    assert not any(t.label == "laws" for t in builder.collect().groups[0].tables)
    group = builder.collect(Baseline.SMALLEST).groups[0]
    (table,) = (t for t in group.tables if t.label == "laws")
    (described,) = lines_of(table)
    assert described["sizes"] == "2, 4, 8"
    assert described["usl_contention"] == pytest.approx(0.1, abs=0.01)
