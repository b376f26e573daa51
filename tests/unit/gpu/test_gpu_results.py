"""Results of GPUs: merged over visits, judged by their ranges, never from a machine without one."""

import errno
import os

import msgspec
import pytest

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.training_path import Precision
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
THREADS = part_named("threads")


def a_result(part="threads", machine=H200, date="2026-11-01T10:00:00+00:00", **values):
    figures = tuple(Figure(key=key, value=value) for key, value in values.items())
    return PartResult(
        part=part, date=date, seconds=12.0, machine=machine, figures=figures
    )


def test_result_replaces_that_of_its_part_and_card():
    old, other = a_result(new_off_ms=30.0), a_result(machine=Machine(card="NVIDIA L4"))
    new = a_result(date="2026-11-02T10:00:00+00:00", new_off_ms=3.0)
    results = Results()
    for result in (old, other, a_result("events"), new):
        results = results.with_part(result)
    assert results.of("threads", "NVIDIA H200") == new
    assert results.series == ("NVIDIA H200", "NVIDIA L4")
    assert len(results.parts) == 3


KINDS = {
    "full": {},
    "short": {"is_short": True},
    "interrupted": {"is_interrupted": True},
    "both": {"is_short": True, "is_interrupted": True},
}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("full", "short", {"NVIDIA H200", "NVIDIA H200, short"}),
        ("full", "interrupted", {"NVIDIA H200", "NVIDIA H200, interrupted"}),
        ("short", "both", {"NVIDIA H200, short", "NVIDIA H200, short, interrupted"}),
        ("interrupted", "short", {"NVIDIA H200, short"}),
        ("both", "full", {"NVIDIA H200"}),
        ("short", "full", {"NVIDIA H200"}),
    ],
)
def test_less_complete_run_never_replaces_a_more_complete_one(before, after, kept):
    runs = [
        msgspec.structs.replace(a_result(), **KINDS[kind]) for kind in (before, after)
    ]
    results = Results().with_part(runs[0]).with_part(runs[1])
    assert {run.series for run in results.parts} == kept


def test_short_figures_have_a_column_of_their_own_on_the_page_and_in_the_csv():
    short = msgspec.structs.replace(a_result(new_off_ms=9.0), is_short=True)
    results = Results().with_part(a_result(new_off_ms=3.0)).with_part(short)
    rows = figures_csv(results).splitlines()
    assert rows[0].endswith('NVIDIA H200,"NVIDIA H200, short"')
    assert f"threads,{NEW_THREAD},3,9" in rows
    assert "**NVIDIA H200, short**: 1 of" in section(results)
    assert "| NVIDIA H200, short | 2026-11-01 |" in section(results)


def test_interrupted_part_is_no_finding_and_shuts_no_gate():
    values = part_named("values")
    result = a_result("values", pixels=0.0)
    cut = msgspec.structs.replace(result, failure="interrupted", is_interrupted=True)
    assert (findings(values, cut), gate_finding(values, cut)) == ([], "")
    assert gate_finding(values, msgspec.structs.replace(result, failure="exit code 1"))


def test_full_disk_leaves_the_results_of_before(tmp_path, monkeypatch):
    path = tmp_path / "gpu.json"
    Results().with_part(a_result()).write(path)
    before = path.read_bytes()

    def refuse(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(HpmlError, match=r"gpu\.json cannot be written: No space left"):
        Results().write(path)
    assert path.read_bytes() == before


def test_results_survive_their_file(tmp_path):
    path = tmp_path / "gpu.json"
    assert Results.read(path) == Results()
    results = Results().with_part(a_result(new_off_ms=3.0))
    results.write(path)
    assert Results.read(path) == results


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


def test_range_of_training_is_scaled_to_the_card():
    expected = Expected("k", "rate", 1_000, None, "H200", precision=Precision.BF16)
    for rate, verdict in ((300, Verdict.FINDING), (320, Verdict.EXPECTED)):
        assert (
            expected.judge(Figure(key="k", value=rate), "NVIDIA A100-SXM4-80GB")
            is verdict
        )


def test_figure_left_out_is_no_finding_and_says_why():
    part = Part(
        "threads", "decides", 1, (Expected("a", "a", 1, 1), Expected("b", "b", 1, 1))
    )
    figures = tuple(left_out("ab", "one GPU"))
    result = PartResult(
        part="threads", date="", seconds=1, machine=H200, figures=figures
    )
    assert findings(part, result) == []
    assert left_out_lines(part, result) == ["threads: 2 figures left out: one GPU"]


def test_findings_name_the_figure_its_range_and_what_is_missing():
    result = a_result(new_off_ms=48.2, same_on_ms=1.0, same_off_ms=1.0, new_on_ms=200.0)
    assert findings(THREADS, result) == [
        "threads: forward in a new thread without, ms is 48.2, expected at most 30",
        "threads: dp trains with cudnn.benchmark (1: yes) was not measured: the part did not come "
        "to it",
    ]


NEW_THREAD = '"forward in a new thread without, ms",at most 30,estimate,'


def test_section_without_results_says_that_nothing_was_run():
    text = section(Results())
    assert "**Not yet run on hardware.**" in text
    assert f"threads,{NEW_THREAD}\n" in figures_csv(Results())


def test_section_shows_runs_findings_and_parts_to_come():
    results = Results().with_part(a_result(new_off_ms=48.2, new_on_ms=200.0))
    text = section(results)
    assert "**NVIDIA H200**: 1 of" in text
    assert "Not yet run: events" in text
    versions = "2.14.1+cu130 | 13.0 | – | – | 580.1 | – |"
    assert f"| NVIDIA H200 | 2026-11-01 | {versions} threads 12 |" in text
    assert (
        "- threads: forward in a new thread without, ms is 48.2, expected at most 30"
        in text
    )
    assert f"threads,{NEW_THREAD},48.2 (finding)\n" in figures_csv(results)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_part_has_each_figure_once_and_a_limit(part):
    keys = [expected.key for expected in part.expected]
    texts = [expected.text for expected in part.expected]
    assert len({*keys}) == len(keys)
    assert len({*texts}) == len(texts)
    assert all(
        e.basis is Basis.EXACT
        for e in part.expected
        if e.low is not None and e.low == e.high
    )
    assert 0 < part.minutes <= 10
    assert 0 < part.least_s <= part.short_s <= 60 * part.minutes
