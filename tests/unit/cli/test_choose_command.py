"""Command choose on studies of records, as a user types them."""

import csv
import errno
import json
import os
from pathlib import Path

import pytest

from hpml_jobs.cli.main import run
from tests.unit.builders import a_cell
from tests.unit.study_builder import StudyBuilder


@pytest.fixture
def study(laptop):
    """A study of three sizes, of which two GPUs are efficient."""
    return StudyBuilder(Path("outputs") / "mine").with_three_sizes()


def output_of(capsys, *words):
    assert run([*words]) == 0
    return capsys.readouterr().out


def fault_of(capsys, *words):
    code = run([*words])
    return code, capsys.readouterr().err.strip()


def test_choose_prints_the_answer_first(study, capsys):
    lines = output_of(capsys, "choose", "mine").splitlines()
    answer = next(line for line in lines if "se 2 GPUs at batch 128" in line)
    assert lines.index(answer) < 4
    assert any("save !0.400 s" in line for line in lines)


def test_choose_json_has_every_cell_with_its_reason(study, capsys):
    document = json.loads(
        output_of(capsys, "choose", "mine", "min_efficiency=0.4", "--json")
    )
    (group,) = document["groups"]
    assert group["ask"]["gpus"] == 4
    assert document["wish"]["min_efficiency"] == 0.4
    assert all(cell["why"] for cell in group["cells"])
    assert [cell["gpus"] for cell in group["cells"]] == [4, 2, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["min_efficency=0.5"], "did you mean min_efficiency=?"),
        (["deadline_min=10"], "add epochs=N"),
        (["epochs=2.5", "deadline_min=10"], "epochs=2.5: must be a whole number"),
        (["min_efficiency=nan"], "min_efficiency=nan: use more than 0"),
        (["gpu_hours_budget=-1", "epochs=3"], "gpu_hours_budget=-1: use more than 0"),
        (["mine", "yours"], "choose is for one study"),
        (["gpus=4"], "deadline_min; gpus= belongs to a submission"),
    ],
)
def test_choose_refuses_bad_words_in_one_line(words, message, study, capsys):
    code, err = fault_of(capsys, "choose", *words)
    assert code == 2
    assert message in err
    assert "\n" not in err


def test_choose_without_numbers_says_so(laptop, capsys):
    StudyBuilder(Path("outputs") / "empty").with_cell(a_cell())
    code, err = fault_of(capsys, "choose", "empty")
    assert (code, "no cell of study empty has a number" in err) == (1, True)


@pytest.mark.whole
def test_imported_table_is_chosen_from(laptop, capsys):
    rows = [
        ("run", "gpus", "batch", "epoch_s"),
        ("a", 1, 512, 25.945),
        ("b", 2, 512, 15.664),
        ("c", 4, 512, 15.127),
    ]
    with Path("table.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    output_of(capsys, "import", "table.csv", "study=published")
    out = output_of(capsys, "choose", "published")
    assert "Use 2 GPUs at batch 512 per GPU (ddp): the most GPUs" in out


def test_next_cell_is_named_with_the_command_of_the_study(study, capsys):
    study.study.add_command(
        "hpml-jobs -m gpus=1,2,4 batch=128 workload=digits study=mine"
    )
    out = output_of(capsys, "choose", "mine", "min_efficiency=0.4")
    assert "hpml-jobs gpus=8 batch=128 workload=digits study=mine" in " ".join(
        out.split()
    )


def test_study_that_may_not_be_read_hides_itself_only(study, monkeypatch, capsys):
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
    assert "2 GPUs" in output_of(capsys, "collect", "mine")
    assert run(["collect", "private"]) == 1
    assert (
        "private/study.json cannot be read: Permission denied"
        in capsys.readouterr().err
    )
