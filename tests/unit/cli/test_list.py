"""The list of studies, as a user types it."""

import errno
import os
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from tests.unit.builders import a_cell
from tests.unit.study_builder import StudyBuilder


@pytest.fixture
def study(laptop):
    """A study of three sizes."""
    return StudyBuilder(Path("outputs") / "mine").with_three_sizes()


def output_of(capsys, *words):
    assert run([*words]) == 0
    return capsys.readouterr().out


def test_list_counts_cells_by_state(study, capsys):
    StudyBuilder(Path("outputs") / "other").with_cell(a_cell())
    out = output_of(capsys, "list")
    assert out.startswith("study")
    (line,) = [line for line in out.splitlines() if line.startswith("mine")]
    assert line.rstrip().endswith("3 ok")
    assert "digits" in line


def test_list_marks_imported_studies(study, capsys):
    Path("times.csv").write_text("run,gpus,batch,epoch_s\na,1,128,40\nb,4,128,24\n")
    output_of(capsys, "import", "times.csv", "study=times")
    shown = dict(
        line.split(maxsplit=1) for line in output_of(capsys, "list").splitlines()
    )
    assert shown["times"].split()[-3:] == ["imported", "2", "ok"]
    assert shown["mine"].split()[-3:] == ["digits", "3", "ok"]


def test_list_without_studies_says_what_to_do(laptop, capsys):
    assert run(["list"]) == 1
    assert "submit one first" in capsys.readouterr().err


def test_study_that_may_not_be_read_is_listed_with_the_reason(
    study, monkeypatch, capsys
):
    private = StudyBuilder(Path("outputs") / "private").study.root.resolve()
    real_stat, real_open = os.stat, os.open

    def refusing(call):
        def guarded(path, *args, **options):
            if (
                isinstance(path, str | Path)
                and private in Path(path).absolute().parents
            ):
                raise PermissionError(
                    errno.EACCES, os.strerror(errno.EACCES), str(path)
                )
            return call(path, *args, **options)

        return guarded

    monkeypatch.setattr(os, "stat", refusing(real_stat))
    monkeypatch.setattr(os, "open", refusing(real_open))
    listed = output_of(capsys, "list")
    assert [line.split()[0] for line in listed.splitlines()[1:]] == ["mine", "private"]
    assert "Permission denied" in listed
    assert "3 ok" in listed
