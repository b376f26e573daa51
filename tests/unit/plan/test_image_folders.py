"""Any folder of images: classes and parameters follow from it, and bad files are named at login."""

import json
import shutil

import pytest
from PIL import Image

from hpml_jobs.cli.main import run
from hpml_jobs.results.conditions import requested_conditions
from hpml_jobs.study.study import Study
from tests.unit.slurm_output import squeue_line

WORDS = [
    "workload=resnet18_torchvision",
    "workload.data=folder",
    "data.root=pictures",
    "batch=2",
]


def save(path, ending="jpg"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((40, 36), 60).convert("RGB").save(path.with_suffix(f".{ending}"))


@pytest.fixture
def pictures(slurm, working_folder):
    """A data set of three classes with four training images and one test image each."""
    root = working_folder / "pictures"
    for name in ("cat", "dog", "zebra"):
        for number in range(4):
            save(root / "train" / name / str(number), "png" if number == 1 else "jpg")
        save(root / "test" / name / "5")
    return root


def values_of(*words, capsys):
    """The values that a plan shows, with the origin of each."""
    assert run(["plan", *WORDS, *words, "--json"]) == 0, capsys.readouterr().err
    shown = json.loads(capsys.readouterr().out)
    return {value["key"]: (value["value"], value["from"]) for value in shown["values"]}


def refusal(*words, code, capsys):
    """The error of a submission that is refused before anything is sent."""
    assert run([*WORDS, *words]) == code
    return capsys.readouterr().err.splitlines()[-1]


def test_three_classes_need_no_classes_or_parameters(pictures, capsys):
    derived = "derived from data and model"
    values = values_of(capsys=capsys)
    assert values["workload.classes"] == ("3", derived)
    assert values["workload.parameters"] == ("11178051", derived)
    assert values["workload.images"] == ("12", derived)


def test_given_numbers_that_disagree_are_refused(pictures, slurm, capsys):
    message = "train has 3 (cat, dog, zebra); leave workload.classes= out"
    assert message in refusal("workload.classes=10", code=2, capsys=capsys)
    assert slurm.scripts == []


def cut(path):
    path.write_bytes(path.read_bytes()[:-400])


@pytest.mark.parametrize(
    ("name", "damage", "fault"),
    [
        ("train/cat/2.jpg", cut, "truncated image file"),
        (
            "train/dog/3.jpg",
            lambda path: path.write_text("<html>"),
            "no image (it begins with",
        ),
        ("train/dog/gone.jpg", lambda path: path.symlink_to("nowhere"), "No such file"),
    ],
)
def test_bad_image_is_named_before_submission(name, damage, fault, pictures, capsys):
    damage(pictures / name)
    message = refusal(code=1, capsys=capsys)
    files = 16 if "gone" in name else 15
    assert f"{name}: {fault}" in message
    assert f"(scanned {files} of {files} files): replace or remove them" in message


def test_other_classes_in_test_are_named_before_submission(pictures, capsys):
    (pictures / "test" / "dog").rename(pictures / "test" / "wolf")
    assert "(dog only in train; wolf only in test)" in refusal(code=1, capsys=capsys)


def test_other_files_are_other_cells_and_a_copy_is_not(pictures, slurm, capsys):
    """Names, sizes and contents are the data; their times and their place are not."""
    words = ["-m", *WORDS, "gpus=1,2", "study=own", "cluster=greene", "--json"]
    assert run(words) == 0
    slugs = [cell["cell"] for cell in json.loads(capsys.readouterr().out)["cells"]]
    slurm.set_output(
        "squeue", "".join(squeue_line(str(job), "PENDING") for job in (101, 102))
    )
    shutil.copytree(pictures, pictures.parent / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(pictures)
    (pictures.parent / "copy").rename(pictures)
    assert run(words) == 0
    again = json.loads(capsys.readouterr().out)["cells"]
    pending = dict.fromkeys(slugs, "left out: pending")
    assert {cell["cell"]: cell["why"] for cell in again} == pending
    Image.effect_noise((90, 90), 60).convert("RGB").save(pictures / "train/cat/0.jpg")
    assert run(words) == 0
    shown = capsys.readouterr()
    changed = {cell["cell"]: cell["why"] for cell in json.loads(shown.out)["cells"]}
    assert {*changed.values()} == {"new"}
    assert not {*changed} & {*slugs}
    assert (
        f"the data changed since {slugs[0]} and 1 other were sent: 2 cells are new"
        in shown.err
    )
    cells = [
        folder.read().cell for folder in Study(pictures.parent / "outputs/own").cells()
    ]
    named = {dict(requested_conditions(cell))["files of the data"] for cell in cells}
    assert named == {str(cell.workload.data_sha256)[:12] for cell in cells}
    assert len(named) == 2
