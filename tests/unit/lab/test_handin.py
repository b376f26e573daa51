"""`collect --handin` writes what the lab hands in."""

from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.lab import handin
from hpml_jobs.lab.questions import QUESTIONS
from hpml_jobs.study.manifest import ManifestEvent
from tests.unit.study_builder import StudyBuilder


@pytest.fixture
def builder(laptop, monkeypatch):
    """The published study of the lab; no browser prints."""
    monkeypatch.setattr(handin, "print_pdf", lambda *_: None)
    return StudyBuilder(laptop / "outputs" / "lab").with_published_study()


@pytest.mark.usefixtures("all_pictures")
def test_handin_has_page_text_pictures_and_commands(builder, capsys):
    for _ in range(2):
        builder.study.add_command("hpml-jobs -m gpus=1,2,4 batch=32,128,512")
    assert run(["collect", "lab", "--handin", "hand", "--name", "Ada, N1"]) == 0
    assert "Replace YOUR WORDS in hand/report.md" in capsys.readouterr().out
    folder = Path("hand")
    assert {
        "report.html",
        "report.md",
        "README.md",
        "speedup.png",
        "gap.png",
        "phases.png",
    } == {path.name for path in folder.iterdir()}
    readme = (folder / "README.md").read_text()
    assert readme.count("gpus=1,2,4 batch=32,128,512") == 1
    text = (folder / "report.md").read_text()
    assert text.count("YOUR WORDS") == len(QUESTIONS)
    assert "Ada, N1" in text
    assert "Ada, N1" in (folder / "report.html").read_text()


def test_handin_writes_over_nothing(builder, capsys):
    text = Path("hand/report.md")
    text.parent.mkdir()
    text.write_text("my words")
    assert run(["collect", "lab", "--handin", "hand"]) == 2
    assert "--handin hand exists already: name a new folder" in capsys.readouterr().err
    assert text.read_text() == "my words"
    assert not builder.study.report.exists()


def test_handin_is_refused_while_cells_may_run(builder, running_process, capsys):
    jobs = [running_process()] * len(builder.cells)
    builder.with_event(ManifestEvent.SENT, *jobs)
    assert run(["collect", "lab", "--handin", "hand"]) == 2
    assert "pending or running: 9 of 9 cells; --wait waits" in capsys.readouterr().err
    assert not Path("hand").exists()
