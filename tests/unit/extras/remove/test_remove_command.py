"""Command remove: what it deletes, what it asks, and what it refuses before anything is deleted."""

import json
import os
import shutil
from pathlib import Path

import pytest

from hpml_jobs.cli import submit
from hpml_jobs.cli.main import run
from hpml_jobs.core.cell import Outcome
from hpml_jobs.extras.remove import removal
from hpml_jobs.study.study import Study
from tests.unit.builders import a_cell, a_record
from tests.unit.slurm_output import squeue_line
from tests.unit.study_builder import StudyBuilder

ROOT = Path(__file__).parents[4]


SUBMIT = ("gpus=1", "workload=digits", "study=mine", "cluster=greene")


@pytest.fixture
def study(working_folder):
    """A study with a record and a failed cell."""
    builder = StudyBuilder(working_folder / "outputs" / "mine")
    builder.with_record(a_record(a_cell(gpus=1), "101_0.r0", 8.0))
    builder.with_cell(a_cell(gpus=2), Outcome.FAILED)
    return Study(working_folder / "outputs" / "mine")


def files_below(folder):
    """Every path below a folder but SLURM's last answers, which a question writes."""
    return sorted(path for path in folder.rglob("*") if path.name != "seen.json")


def refused(capsys, study, *words, code=1):
    """The message of a refusal, after which every file is there."""
    before = files_below(study.root)
    assert run(["remove", *words]) == code
    assert files_below(study.root) == before
    return capsys.readouterr().err


def test_study_is_deleted_and_others_stay(study, capsys):
    StudyBuilder(study.root.parent / "other")
    assert run(["remove", "mine", "--yes"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(
        f"study mine in {study.root}: 2 cells, 1 with a record; "
    )
    assert shown[1] == "removed study mine"
    assert [path.name for path in study.root.parent.iterdir()] == ["other"]


def test_several_studies_are_refused_with_a_command(study, capsys):
    shown = refused(capsys, study, "mine", "other", "--yes", code=2)
    assert shown.startswith("hpml-jobs: one study at a time: hpml-jobs remove other (")


def test_json_names_what_was_deleted(study, capsys):
    assert run(["remove", "mine", "--yes", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["folder"] == str(study.root)
    assert (about["study"], about["cells"], about["records"]) == ("mine", 2, 1)
    assert about["files"] > 0
    assert about["bytes"] > 0
    assert not study.root.exists()


@pytest.mark.whole
def test_whole_report_and_pictures_are_deleted(study, capsys):
    assert run(["report", "mine"]) == 0
    (study.report / "compare.png").write_bytes(b"")
    assert run(["remove", "mine", "--yes"]) == 0
    assert not study.root.exists()


@pytest.mark.whole
def test_imported_timings_are_deleted(working_folder, capsys):
    assert run(["import", str(ROOT / "docs" / "published.csv"), "study=published"]) == 0
    assert run(["report", "published"]) == 0
    assert run(["remove", "published", "--yes"]) == 0
    assert list((working_folder / "outputs").iterdir()) == []


RELEASED = sorted(
    path.parent for path in (ROOT / "tests" / "data").glob("studies-*/*/cells")
)


@pytest.mark.parametrize("released", RELEASED)
def test_studies_of_released_versions_have_nothing_foreign(
    released, working_folder, capsys
):
    target = working_folder / "outputs" / "old"
    shutil.copytree(released, target)
    assert run(["remove", "old", "--yes"]) in (0, 1)
    assert "did not write" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "report/mine.docx",
        "report/drafts/report.md",
        "cells/readme.md",
        "cells/CELL/model.pt",
        "mine/x",
        ".hidden",
    ],
)
def test_file_of_other_origin_is_named_and_nothing_is_deleted(name, study, capsys):
    cell = study.cells()[0].slug
    path = study.root / name.replace("CELL", cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    shown = refused(capsys, study, "mine", "--yes")
    assert "has what hpml-jobs did not write" in shown
    assert str(path.relative_to(study.root)).split("/")[0] in shown


def test_what_jobs_leave_is_deleted_and_no_link_is_followed(
    study, working_folder, capsys
):
    outside = working_folder / "outside"
    outside.mkdir()
    (outside / "data.bin").write_text("precious")
    attempt = study.cells()[0].attempts / "101_0.r0"
    (attempt / "checkpoints").mkdir(parents=True)
    (attempt / "checkpoints" / "last").symlink_to(outside)
    study.slurm.mkdir(exist_ok=True)
    (study.slurm / "file").symlink_to(outside / "data.bin")
    (study.root / ".study.json.x_y1").write_text("")  # left of an interrupted write
    assert run(["remove", "mine", "--yes"]) == 0
    assert not study.root.exists()
    assert (outside / "data.bin").read_text() == "precious"


@pytest.mark.parametrize(
    "name", ["cells", "report", "slurm", "study.json", "cells/CELL"]
)
def test_link_in_place_of_an_own_file_is_refused(name, study, working_folder, capsys):
    study.slurm.mkdir(exist_ok=True)
    study.report.mkdir(exist_ok=True)
    path = study.root / name.replace("CELL", study.cells()[0].slug)
    target = working_folder / "elsewhere"
    path.rename(target)
    path.symlink_to(target)
    assert "did not write" in refused(capsys, study, "mine", "--yes")
    assert target.exists()


def test_link_to_a_study_is_refused_and_its_folder_is_named(
    study, working_folder, capsys
):
    study.root.rename(working_folder / "moved")
    study.root.symlink_to(working_folder / "moved")
    assert run(["remove", "mine", "--yes"]) == 1
    assert f"is a link to {working_folder / 'moved'}" in capsys.readouterr().err
    assert study.cells()
    assert run(["remove", str(working_folder / "moved"), "--yes"]) == 0
    assert not (working_folder / "moved").exists()


def test_study_with_jobs_is_refused_with_the_command_that_cancels_them(slurm, capsys):
    assert run([*SUBMIT]) == 0
    slurm.set_output("squeue", squeue_line("101", "PENDING"))
    study = Study(Path("outputs") / "mine")
    shown = refused(capsys, study, "mine", "--yes")
    assert "study mine has jobs that are pending or running (101" in shown
    assert shown.endswith("hpml-jobs cancel mine\n")


def test_study_whose_jobs_are_unknown_is_refused(slurm, capsys):
    assert run([*SUBMIT]) == 0
    slurm.set_output("squeue", err="slurm_load_jobs error: Unable to contact", code=1)
    shown = refused(capsys, Study(Path("outputs") / "mine"), "mine", "--yes")
    assert "it is unknown whether 1 cell may run" in shown


def test_without_a_terminal_it_needs_yes(study, capsys):
    assert "there is no terminal to ask on; add --yes" in refused(
        capsys, study, "mine", code=2
    )


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("yes", 0), ("", 1), ("n", 1)])
def test_a_terminal_is_asked(answer, code, study, monkeypatch, capsys):
    questions = []
    monkeypatch.setattr(submit, "is_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", lambda text: questions.append(text) or answer)
    assert run(["remove", "mine"]) == code
    assert questions == ["remove it? [y/N] "]
    assert study.root.exists() is bool(code)
    if code:
        assert "nothing was removed" in capsys.readouterr().err


def test_study_must_be_named(study, capsys):
    assert "Missing argument 'STUDY'" in refused(capsys, study, "--yes", code=2)
    assert "no study nothing in" in refused(capsys, study, "nothing", "--yes")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_may_not_be_written_is_refused_before_anything_is_deleted(
    study, capsys
):
    study.cells_folder.chmod(0o555)
    assert "may not be written: nothing was removed" in refused(
        capsys, study, "mine", "--yes"
    )
    study.cells_folder.chmod(0o755)


def test_running_submission_is_waited_for_and_then_refused(study, monkeypatch, capsys):
    monkeypatch.setattr(removal, "PATIENCE_S", 0)
    with study.submitting():
        assert "a submission is running; nothing was removed" in refused(
            capsys, study, "mine", "--yes"
        )
