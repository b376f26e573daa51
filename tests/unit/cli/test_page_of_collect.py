"""The page of collect: where it is written, and a browser that is not there."""

import errno

import pytest

from hpml_jobs.cli import collect as report_command
from hpml_jobs.cli.main import run
from tests.unit.study_builder import StudyBuilder


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """Pictures take most of the time, and are tested by themselves."""
    monkeypatch.setattr("hpml_jobs.report.page.contents.pictures", lambda report: {})


@pytest.fixture
def study(tmp_path):
    return StudyBuilder(tmp_path / "outputs" / "lab").with_published_study().study


def report(study, *words):
    return run(["collect", study.name, "--outputs", str(study.root.parent), *words])


def test_report_writes_into_the_folder_that_is_named(study, tmp_path, capsys):
    assert report(study, "--to", str(tmp_path / "handin")) == 0
    assert (tmp_path / "handin" / "report.html").exists()
    assert not (study.report / "report.html").exists()


def test_report_opens_the_file_in_a_browser(study, monkeypatch):
    opened = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(
        report_command.webbrowser, "open", lambda url: opened.append(url) or True
    )
    assert report(study, "--open") == 0
    assert opened == [(study.report / "report.html").as_uri()]


def test_report_of_read_only_study_is_on_the_screen_only(study, capsys, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("hpml_jobs.report.folder.write_whole", refuse)
    assert report(study) == 0
    assert "; --to FOLDER writes elsewhere" in capsys.readouterr().err
    assert report(study, "--to", str(study.root / "x")) == 1
