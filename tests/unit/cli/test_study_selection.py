"""Selection of a study and its cells by the arguments [STUDY] [PATTERN]."""

from typing import NamedTuple

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.cli.options import select_study, study_words
from hpml_jobs.status import watch
from hpml_jobs.study.study import Study
from tests.unit.slurm_output import squeue_line


class Named(NamedTuple):
    slug: str


CELLS = [Named("single-1gpu-b32-digits-1a2b3c"), Named("ddp-4gpu-b32-digits-4d5e6f")]


@pytest.fixture(autouse=True)
def outputs(working_folder):
    Study(working_folder / "outputs" / "mine").create()
    return working_folder / "outputs"


@pytest.mark.parametrize("words", [(None, None), ("mine", None)])
def test_no_pattern_selects_all_cells(words):
    selection = select_study(*words, None)
    assert (selection.study.name, selection.pattern) == ("mine", None)
    assert selection.chosen(CELLS) == CELLS


@pytest.mark.parametrize(
    "words",
    [("mine", "ddp-*"), ("*4gpu*", None), ("[d]dp-*", None), ("mine", CELLS[1].slug)],
)
def test_pattern_or_full_name_selects_cells(words):
    selection = select_study(*words, None)
    assert selection.study.name == "mine"
    assert selection.chosen(CELLS) == [CELLS[1]]


@pytest.mark.parametrize(
    "word", ["mine", "study=mine", "outputs/mine", "outputs/mine/"]
)
def test_study_is_named_as_other_commands_name_it(word, capsys):
    assert run(["status", word]) == 0
    assert select_study(word, None, None).study.name == "mine"


def folders_of_studies(folder):
    """A folder with outputs of its own, an empty one beside it, and a study in the first."""
    for name in ("first/outputs", "second"):
        (folder / name).mkdir(parents=True)
    Study(folder / "first" / "outputs" / "hw5").create()
    return folder / "first"


@pytest.mark.parametrize(
    "word", ["first/outputs/hw5", "first/hw5", "first/outputs/hw5/", "~/f/hw5"]
)
def test_study_of_another_folder_is_named_by_a_path(
    word, tmp_path, monkeypatch, capsys
):
    folders_of_studies(tmp_path).parent.joinpath("f").symlink_to(tmp_path / "first")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["status", word]) == 0
    assert select_study(word, None, None).study.name == "hw5"


@pytest.mark.parametrize(
    "here", ["second", ".", "first/outputs", "first/outputs/hw5/cells"]
)
def test_study_nearby_is_named_with_its_path(here, tmp_path, monkeypatch, capsys):
    home = tmp_path / "home"  # whose neighbours are not those of other tests
    folders_of_studies(home)
    monkeypatch.chdir(home / here)
    assert run(["status", "hw5", "--all"]) == 1
    message = capsys.readouterr().err.strip()
    assert f"no study hw5 in {home / here}/outputs (studies: none)" in message
    assert message.endswith(f"another folder: {home}/first/outputs/hw5")


def test_two_studies_nearby_are_not_named(tmp_path, monkeypatch, capsys):
    folders_of_studies(tmp_path)
    Study(tmp_path / "third" / "outputs" / "hw5").create()
    monkeypatch.chdir(tmp_path / "second")
    assert run(["status", "hw5"]) == 1
    assert "another folder" not in capsys.readouterr().err


def test_name_as_a_shell_completes_it_is_found(capsys):
    assert run(["status", "mine/"]) == 0


def test_folder_of_studies_names_them(outputs, capsys):
    assert run(["status", "./outputs"]) == 1
    assert (
        f"no study in {outputs}: it has no folder cells/; name a"
        in capsys.readouterr().err
    )


def test_in_the_folder_of_a_study_its_name_is_a_dot(outputs, monkeypatch, capsys):
    monkeypatch.chdir(outputs / "mine")
    assert run(["status"]) == 1
    assert "the current folder is a study: name it as ." in capsys.readouterr().err
    assert run(["status", "."]) == 0


def test_home_folder_that_does_not_exist_is_refused(capsys):
    assert run(["status", "~nobody-here/mine"]) == 2
    assert "there is no such home folder" in capsys.readouterr().err


def test_outputs_one_level_too_deep_are_the_study(outputs, tmp_path, capsys):
    assert run(["status", "--outputs", str(outputs / "mine")]) == 0
    outputs.rename(tmp_path / "elsewhere")
    selection = select_study(str(tmp_path / "elsewhere" / "mine"), None, None)
    assert study_words(selection.study) == f"mine --outputs {tmp_path / 'elsewhere'}"


@pytest.mark.parametrize("words", [["status", "--watch"], ["collect", "--wait"]])
def test_interrupted_wait_says_that_jobs_go_on(words, slurm, monkeypatch, capsys):
    assert run(["workload=digits", "study=mine"]) == 0
    slurm.set_output("squeue", squeue_line("101", "PENDING"))

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "watch_study", interrupt)
    assert run([*words, "mine"]) == 130
    shown = capsys.readouterr().err
    assert (
        "the jobs go on; to see them again, or to end them:\nhpml-jobs status mine --watch\n"
        in shown
    )
    assert shown.endswith("interrupted\n")
