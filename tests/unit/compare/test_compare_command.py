"""Command compare on studies of records, as a user types it."""

import json
from pathlib import Path

import pytest

from hpml_jobs.cli.compare import parse_limit
from hpml_jobs.cli.main import run
from hpml_jobs.compare.reference import Reference, read_reference
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder

TIMES_S = {"before": (8.00, 8.10, 8.05, 8.08), "after": (8.60, 8.70, 8.65, 8.68)}


@pytest.fixture
def studies(laptop, given_checks):
    """Two studies of one cell; the later one is slower by 7 %."""
    for number, (name, times_s) in enumerate(TIMES_S.items()):
        builder = StudyBuilder(Path("outputs") / name)
        for repeat, epoch_s in enumerate(times_s):
            cell = a_cell(gpus=2, batch=64, repeat=repeat)
            builder.with_record(a_record(cell, f"1{number}{repeat}_0.r0", epoch_s))
        builder.sent_as(*(f"1{number}{repeat}_0" for repeat in range(4)))


@pytest.fixture
def given_checks(monkeypatch):
    """No check is made."""
    monkeypatch.setattr(
        "hpml_jobs.results.checks.study.check_study", lambda groups, slugs: {}
    )


def output_of(capsys, *words):
    assert run([*words]) == 0
    return capsys.readouterr().out


def fault_of(capsys, *words):
    code = run([*words])
    return code, capsys.readouterr().err.strip()


def test_faster_study_passes_the_limit(studies, capsys):
    out = output_of(capsys, "compare", "after", "before", "--fail-if-slower", "5")
    assert out.startswith(
        "before (B) compared with after (A): faster in 1 row (2 GPUs, batch 64: -6.9 % "
        "[-8.0, -5.8]).\n"
    )
    assert "passed: no cell is slower by more than the limit\n" in out


@pytest.mark.parametrize(("word", "share"), [("5%", 0.05), ("2.5 %", 0.025)])
def test_limit_is_a_percentage(word, share):
    assert parse_limit(word) == share


def test_stored_reference_gives_the_same_answer(studies, capsys):
    direct = output_of(capsys, "compare", "before", "after")
    saved = output_of(capsys, "compare", "before", "--save", "golden.json")
    assert saved == "saved: the numbers of study before in golden.json\n"
    assert output_of(capsys, "compare", "golden.json", "after") == direct


def test_reference_of_an_earlier_version_is_read(studies, capsys):
    """It has parts of epochs, clocks and the day, too."""
    direct = output_of(capsys, "compare", "before", "after")
    output_of(capsys, "compare", "before", "--save", "golden.json")
    document = json.loads(Path("golden.json").read_text())
    document["measured"] = "2026-10-01T10:00:00+00:00"
    for group in document["groups"]:
        group["imported"] = False
        for cell in group["cells"]:
            cell["clocks"] = {"SM clock, MHz": 1980.0}
            for run_ in cell["runs"]:
                run_["stall_s"] = 0.5
    Path("golden.json").write_text(json.dumps(document))
    assert output_of(capsys, "compare", "golden.json", "after") == direct


def test_reference_file_is_stable_and_names_no_path(studies, capsys, tmp_path):
    output_of(capsys, "compare", "before", "--save", "ci/speed.json")
    content = Path("ci/speed.json").read_bytes()
    assert str(tmp_path).encode() not in content
    assert b"gr001" not in content
    assert isinstance(read_reference(Path("ci/speed.json")), Reference)
    Path("ci/speed.json").unlink()
    output_of(capsys, "compare", "before", "--save", "ci/speed.json")
    assert Path("ci/speed.json").read_bytes() == content
    assert ": slower in 1 row (" in output_of(
        capsys, "compare", "ci/speed.json", "after"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("compare damaged.json after", 1, "damaged.json cannot be read: "),
        (
            "compare newer.json after",
            1,
            "newer.json cannot be read: schema 99, this hpml_jobs",
        ),
        (
            "compare negative.json after",
            1,
            "epoch_s is -8 s - at `$.groups[0].cells[0].runs[0]`",
        ),
    ],
)
def test_bad_words_are_one_line(words, code, message, studies, capsys):
    assert run(["compare", "before", "--save", "golden.json"]) == 0
    StudyBuilder(Path("outputs/both")).with_cell(a_cell())
    folder = Path()
    golden = (folder / "golden.json").read_text()
    (folder / "damaged.json").write_text(golden[: len(golden) // 2])
    (folder / "newer.json").write_text(golden.replace('"schema": 1', '"schema": 99'))
    (folder / "negative.json").write_text(
        golden.replace('"epoch_s": 8.0', '"epoch_s": -8.0')
    )
    capsys.readouterr()
    shown_code, err = fault_of(capsys, *words.split())
    assert shown_code == code
    assert message in err
    assert "\n" not in err
