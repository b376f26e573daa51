"""Results of GPUs: merged over visits, judged by their ranges, never from a machine without one."""

import msgspec
import pytest

from tests.gpu.catalog import PARTS, part_named
from tests.gpu.figures import (
    Basis,
    Expected,
    Figure,
    Machine,
    Part,
    PartResult,
    Results,
    Verdict,
    findings,
    gate_finding,
    left_out,
    left_out_lines,
)
from tests.gpu.page import figures_csv, section

H200 = Machine(card="NVIDIA H200", torch="2.14.1+cu130", cuda="13.0", driver="580.1")
VALUES = part_named("values")
PIXELS = "values,loader=device: largest difference of a pixel from the CPU's,0 to 1e-05"


def a_result(part="values", machine=H200, date="2026-11-01T10:00:00+00:00", **values):
    figures = tuple(Figure(key=key, value=value) for key, value in values.items())
    return PartResult(
        part=part, date=date, seconds=12.0, machine=machine, figures=figures
    )


def test_result_replaces_that_of_its_part_and_card(tmp_path):
    old, other = a_result(pixels=1.0), a_result(machine=Machine(card="NVIDIA L4"))
    new = a_result(date="2026-11-02T10:00:00+00:00", pixels=0.0)
    results = Results.read(tmp_path / "gpu.json")
    for result in (old, other, a_result("events"), new):
        results = results.with_part(result)
    results.write(tmp_path / "gpu.json")
    kept = Results.read(tmp_path / "gpu.json")
    assert kept.of("values", "NVIDIA H200") == new
    assert kept.series == ("NVIDIA H200", "NVIDIA L4")
    assert len(kept.parts) == 3


def test_result_without_a_card_is_not_kept():
    with pytest.raises(ValueError, match="was not measured on a GPU"):
        Results().with_part(a_result(machine=Machine(card=None)))


SHORT, CUT = {"is_short": True}, {"is_interrupted": True}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ({}, SHORT, {"NVIDIA H200", "NVIDIA H200, short"}),
        ({}, CUT, {"NVIDIA H200", "NVIDIA H200, interrupted"}),
        (CUT, SHORT, {"NVIDIA H200, short"}),
        (SHORT, {}, {"NVIDIA H200"}),
    ],
)
def test_less_complete_run_never_replaces_a_more_complete_one(before, after, kept):
    results = Results()
    for kind in (before, after):
        results = results.with_part(msgspec.structs.replace(a_result(), **kind))
    assert {run.series for run in results.parts} == kept


def test_short_figures_have_a_column_of_their_own_on_the_page_and_in_the_csv():
    short = msgspec.structs.replace(a_result(pixels=9e-6), is_short=True)
    results = Results().with_part(a_result(pixels=3e-6)).with_part(short)
    rows = figures_csv(results).splitlines()
    assert rows[0].endswith('NVIDIA H200,"NVIDIA H200, short"')
    assert f"{PIXELS},estimate,,3e-06,9e-06" in rows
    assert "**NVIDIA H200, short**: 1 of" in section(results)
    assert "| NVIDIA H200, short | 2026-11-01 |" in section(results)


def test_interrupted_part_is_no_finding_and_shuts_no_gate():
    result = a_result(pixels=0.0)
    cut = msgspec.structs.replace(result, failure="interrupted", is_interrupted=True)
    assert (findings(VALUES, cut), gate_finding(VALUES, cut)) == ([], "")
    assert gate_finding(VALUES, msgspec.structs.replace(result, failure="exit code 1"))


@pytest.mark.parametrize(
    ("value", "card", "verdict"),
    [
        (3.0, "NVIDIA H200", Verdict.EXPECTED),
        (5.0, "NVIDIA H200", Verdict.FINDING),
        (5.0, "NVIDIA L4", Verdict.NOT_JUDGED),
        (None, "NVIDIA H200", Verdict.NOT_MEASURED),
    ],
)
def test_figure_is_judged_by_range_on_its_card(value, card, verdict):
    expected = Expected("key", "text", 2, 4, "H200")
    assert expected.judge(Figure(key="key", value=value), card) is verdict


def test_figure_left_out_is_no_finding_and_says_why():
    part = Part(
        "values", "decides", 1, (Expected("a", "a", 1, 1), Expected("b", "b", 1, 1))
    )
    figures = tuple(left_out("ab", "one GPU"))
    result = msgspec.structs.replace(a_result(), figures=figures)
    assert findings(part, result) == []
    assert left_out_lines(part, result) == ["values: 2 figures left out: one GPU"]


def test_findings_are_on_the_page_and_name_what_is_missing():
    result = a_result(pixels=2.0)
    results = Results().with_part(result)
    finding, missing = findings(VALUES, result)
    assert finding.endswith("of a pixel from the CPU's is 2, expected 0 to 1e-05")
    assert missing.endswith("was not measured: the part did not come to it")
    text = section(results)
    assert "**NVIDIA H200**: 1 of" in text
    assert "2 findings. Not yet run: events" in text
    versions = "2.14.1+cu130 | 13.0 | – | – | 580.1 | – |"
    assert f"| NVIDIA H200 | 2026-11-01 | {versions} values 12 |" in text
    assert f"{PIXELS},estimate,,2 (finding)\n" in figures_csv(results)


def test_section_without_results_says_that_nothing_was_run():
    assert "**Not yet run on hardware.**" in section(Results())
    assert f"{PIXELS},estimate,\n" in figures_csv(Results())


def test_parts_have_each_figure_once_and_a_limit():
    for part in PARTS:
        keys = [expected.key for expected in part.expected]
        assert len({*keys}) == len(keys)
        points = [e for e in part.expected if e.low is not None and e.low == e.high]
        assert {point.basis for point in points} <= {Basis.EXACT}
        assert 0 < part.least_s <= part.short_s <= 60 * part.minutes
