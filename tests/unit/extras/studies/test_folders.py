"""The studies in folders of a course: owner, size, whether they are ready, speedup."""

import json
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from tests.unit.builders import a_cell, a_record
from tests.unit.study_builder import StudyBuilder


def output_of(capsys, *words):
    assert run([*words]) == 0
    return capsys.readouterr().out


def test_list_of_folders_shows_owner_size_and_whether_each_study_is_ready(
    laptop, capsys
):
    StudyBuilder(Path("course/ada/lab")).with_record(a_record(a_cell(), "1_0.r0"))
    StudyBuilder(Path("course/bob/lab")).with_batches(32, 64)
    Path("course/eve").mkdir()
    out = output_of(capsys, "list", "course/ada", "course/bob/lab", "course/eve")
    ada, bob = (line.split() for line in out.splitlines()[1:])
    assert ada[:2] == ["course/ada", Path("course").owner()]
    assert (ada[3:7], bob[4:7]) == (["MB", "yes", "–", "lab"], ["2", "unfinished", "–"])
    assert run(["list", "--json", "course/ada", "course/eve"]) == 0
    out, err = capsys.readouterr()
    (one,) = json.loads(out)["studies"]
    assert (one["folder"], one["unfinished"], err) == (
        "course/ada",
        0,
        "no study in course/eve\n",
    )
    files = [path for path in Path("course/ada").rglob("*") if path.is_file()]
    assert one["bytes"] >= 512 * len(files)
    Path("notes").touch()
    assert run(["list", "notes"]) == 1
    assert capsys.readouterr().err == (
        "hpml-jobs: notes is not a folder: name studies, or folders of studies\n"
    )
    assert run(["list", "course/ada", "--outputs", "outputs"]) == 2


def test_list_of_a_course_shows_the_speedup_of_the_layout_that_the_program_makes(
    laptop, capsys
):
    StudyBuilder(Path("course/ada/hw4")).with_published_study()
    StudyBuilder(Path("course/ada/outputs/hw5")).with_record(
        a_record(a_cell(), "1_0.r0")
    )
    out = output_of(capsys, "list", "course/ada")
    hw4, hw5 = (line.split() for line in out.splitlines()[1:])
    assert hw4[0] == "course/ada"
    assert hw4[4:9] == ["yes", "1.72", "on", "4,", "b512"]
    assert (hw5[0], hw5[6]) == ("course/ada/outputs", "hw5")
    studies = json.loads(output_of(capsys, "list", "--json", "course/ada"))["studies"]
    speedup = studies[0]["speedup"]
    assert (speedup["gpus"], speedup["batch_per_gpu"], speedup["is_doubtful"]) == (
        4,
        512,
        False,
    )
    assert studies[1]["speedup"] is None


@pytest.mark.whole
def test_list_marks_impossible_speedups(laptop, capsys):
    Path("times.csv").write_text("run,gpus,batch,epoch_s\na,1,128,40\nb,4,128,8\n")
    words = ("study=times", "--outputs", "bob")
    output_of(capsys, "import", "times.csv", *words)
    assert "!5.00 on 4, b128" in output_of(capsys, "list", "bob")


def test_study_without_a_usable_number_is_not_ready(laptop, capsys):
    StudyBuilder(Path("course/ada/lab")).with_out_of_memory(a_cell())
    assert "no usable number" in output_of(capsys, "list", "course/ada")
