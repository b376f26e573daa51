"""`collect --handin` writes what the lab hands in; the page names what is measured."""

from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.strategies import SyncBuffers
from hpml_jobs.lab import handin
from hpml_jobs.lab.questions import QUESTIONS, section
from tests.unit.builders import a_cell
from tests.unit.check_cases import clean_record
from tests.unit.study_builder import StudyBuilder


@pytest.fixture
def builder(laptop, monkeypatch):
    """The published study of the lab; no browser prints."""
    monkeypatch.setattr(handin, "print_pdf", lambda *_: False)
    return StudyBuilder(laptop / "outputs" / "lab").with_published_study()


def rows_of(builder):
    (table,) = section(builder.collect()).items
    return {row[0].partition(":")[0]: row[1:] for row in table.rows}


def test_question_names_its_table_or_what_would_measure_it(builder):
    rows = rows_of(builder)
    assert [*rows] == [question.number for question in QUESTIONS]
    assert rows["Q1"] == ("3 rows", "Q1: one epoch on 1 GPU")
    assert rows["Q2"][1].startswith("Table 1")
    assert rows["Q5"] == ("", "not measured: hpml-jobs grid=shuffling")


def test_question_needs_a_cell_of_its_own_treatment(builder):
    builder.with_record(clean_record(a_cell(gpus=4, batch=512), 9.0))
    assert rows_of(builder)["Q7"][0] == ""
    off = a_cell(gpus=4, batch=512, sync_buffers=SyncBuffers.OFF)
    builder.with_record(clean_record(off, 9.0))
    assert rows_of(builder)["Q7"][0] == "2 rows"


@pytest.mark.usefixtures("all_pictures")
def test_handin_has_page_text_pictures_and_commands(builder, capsys):
    builder.study.add_command("hpml-jobs -m gpus=1,2,4 batch=32,128,512")
    assert run(["collect", "lab", "--handin", "hand", "--name", "Ada, N1"]) == 0
    assert "no PDF: Chromium is not here" in capsys.readouterr().out
    folder = Path("hand")
    assert {"report.html", "report.md", "README.md", "speedup.png"} <= {
        path.name for path in folder.iterdir()
    }
    assert "gpus=1,2,4 batch=32,128,512" in (folder / "README.md").read_text()
    text = (folder / "report.md").read_text()
    assert text.count("YOUR WORDS") == len(QUESTIONS)
    for page in (text, (folder / "report.html").read_text()):
        assert "Ada, N1" in page


def test_handin_writes_over_nothing(builder, capsys):
    Path("hand").mkdir()
    (Path("hand") / "report.md").write_text("my words")
    assert run(["collect", "lab", "--handin", "hand"]) == 2
    assert "--handin hand is not empty: name a new folder" in capsys.readouterr().err
    assert (Path("hand") / "report.md").read_text() == "my words"
    assert not builder.study.report.exists()
