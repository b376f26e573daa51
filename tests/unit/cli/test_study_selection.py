"""Selection of a study and its cells by the arguments [STUDY] [PATTERN]."""

from typing import NamedTuple

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.cli.options import select_study
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


@pytest.mark.parametrize("word", ["mine", "study=mine", "outputs/mine"])
def test_study_is_named_as_other_commands_name_it(word, capsys):
    assert run(["status", word]) == 0
    assert select_study(word, None, None).study.name == "mine"


@pytest.mark.parametrize("words", [["status", "--watch"], ["collect", "--wait"]])
def test_interrupted_wait_leaves_the_jobs(words, slurm, monkeypatch, capsys):
    assert run(["workload=digits", "study=mine"]) == 0
    slurm.set_output("squeue", squeue_line("101", "PENDING"))

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "watch_study", interrupt)
    assert run([*words, "mine"]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
    assert slurm.calls("scancel") == []
