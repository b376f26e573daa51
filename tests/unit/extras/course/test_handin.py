"""hpml-jobs report --handin: lab.py repeats the cells, and the notebook runs."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from PIL import Image

from hpml_jobs import __version__
from hpml_jobs.cli.main import run
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.extras.course import handin, questions
from hpml_jobs.worker import models
from hpml_jobs.worker.data import datasets
from tests.unit.builders import lab_cell, lab_record
from tests.unit.study_builder import StudyBuilder

LOCAL = (
    "cluster=local",
    "device=cpu",
    "workload=digits",
    "protocol=lab",
    "data.limit=512",
)


def run_notebook(folder, monkeypatch):
    """Run the code of the notebook's cells in order; return the names that they define."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names = {}
    for cell in json.loads(Path("tables.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(cell["source"], names)  # noqa: S102 -- as Jupyter does it
    names["plt"].close("all")
    return names


def test_script_and_notebook_repeat_a_local_study(program, monkeypatch):
    """The losses agree to 2e-6, which are the digits of the README."""
    program.ok("-m", "gpus=1,2", "batch=64", "loader_workers=1", "seed=3", *LOCAL)
    program.ok("report", "--handin", "hand")
    folder = program.folder / "hand"
    commands = re.findall(
        r"`((?:python|torchrun) .*)` \| .* \| (\S+) \|",
        (folder / "README.md").read_text(),
    )
    assert len(commands) == 2
    assert "gpus=1,2" in (folder / "README.md").read_text()
    if any(map(shutil.which, handin.BROWSERS)):
        assert (folder / handin.PDF).read_bytes().startswith(b"%PDF")
    for command, shown in commands:
        name, *words = shlex.split(command)
        start = (
            [sys.executable]
            if name == "python"
            else [Path(sys.executable).with_name(name)]
        )
        done = subprocess.run(
            [*start, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        loss = float(re.search(r"timed epoch: .* loss (\S+),", done.stdout)[1])
        assert loss == pytest.approx(float(shown), rel=2e-6)
    names = run_notebook(folder, monkeypatch)
    assert names["scaling"]["gpus"].tolist() == [1, 2]
    assert len(names["table1"]) == 2


@pytest.fixture
def handed_in(tmp_path, monkeypatch, capsys):
    """Hand in a study of one cell with other fields; return the folder and the output."""
    monkeypatch.setattr("hpml_jobs.report.pictures.pictures", lambda report: {})
    monkeypatch.setenv("PATH", "")

    def hand_in(workload=None, **fields):
        cell = lab_cell(4, 32)
        workload = msgspec.structs.replace(cell.workload, **(workload or {}))
        cell = msgspec.structs.replace(cell, workload=workload, **fields)
        study = (
            StudyBuilder(tmp_path / "outputs" / "lab")
            .with_record(lab_record(cell, 9.0))
            .study
        )
        words = ["report", "lab", "--outputs", str(study.root.parent)]
        assert run([*words, "--handin", str(tmp_path / "hand")]) == 0
        return tmp_path / "hand", capsys.readouterr().out

    return hand_in


@pytest.mark.parametrize(
    ("model", "data"),
    [("resnet18_cifar", "digits"), ("resnet18", "folder"), ("digits_cnn", "cifar10")],
)
def test_script_has_the_model_and_the_images_of_the_worker(
    handed_in, tmp_path, model, data, monkeypatch
):
    for number in range(2):
        file = tmp_path / "train" / str(number) / "0.png"
        file.parent.mkdir(parents=True)
        Image.effect_noise((40, 36), 60).convert("RGB").save(file)
    photo = Image.open(file).resize((32, 32))

    class Photos(list):
        def __init__(self, root, train=True, transform=None, download=False):
            if transform:
                super().__init__([(transform(photo), 0)])

    monkeypatch.setattr("torchvision.datasets.CIFAR10", Photos)
    classes = 2 if data == "folder" else 10
    workload = {"model": model, "data": data, "classes": classes, "parameters": None}
    folder, _ = handed_in(workload, device=Device.CPU)
    script = (folder / "lab.py").read_text()
    assert script.count("\n") <= 152
    assert "import hpml_jobs" not in script
    names = {"__name__": "lab"}
    exec(script, names)  # noqa: S102
    cell = msgspec.structs.replace(lab_cell(4, 32).workload, **workload)
    torch.manual_seed(0)
    image = datasets.open_data(cell, tmp_path).train[0][0]
    expected = models.build(cell)(image.expand(2, -1, -1, -1))
    torch.manual_seed(0)
    own_image = names["training_images"](str(tmp_path))[0][0]
    assert torch.equal(own_image, image)
    assert torch.equal(names["make_model"]()(own_image.expand(2, -1, -1, -1)), expected)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"workload": {"model": "vgg11_bn"}}, "workload.model=vgg11_bn"),
        ({"workload": {"optimizer": "adamw"}}, "workload.optimizer=adamw"),
        ({"strategy": Strategy.FSDP}, "strategy=fsdp on 4 GPUs"),
        ({"set_epoch": False}, "no set_epoch"),
    ],
)
def test_script_is_left_out_where_it_cannot_repeat(handed_in, fields, reason):
    folder, shown = handed_in(**fields)
    assert not (folder / "lab.py").exists()
    assert (
        f"lab.py does not repeat cells with {reason}."
        in (folder / "README.md").read_text()
    )
    assert (
        "no lab.py: it repeats no cell of this study; README.md has the reason" in shown
    )


def test_folder_with_other_files_is_refused(handed_in, tmp_path, capsys):
    folder, _ = handed_in()
    words = ["report", "lab", "--outputs", str(tmp_path / "outputs"), "--handin"]
    for name in (handin.PDF, "data/quantization.csv"):
        (folder / name).write_text("of an earlier report")
    assert run([*words, str(folder)]) == 0
    assert not (folder / handin.PDF).exists()
    assert not (folder / "data/quantization.csv").exists()
    assert run([*words, str(folder / "data")]) == 2
    assert (
        "data has other files: name an empty or a new folder" in capsys.readouterr().err
    )
    assert run([*words, str(folder), "--to", str(folder)]) == 2


def test_path_through_a_folder_that_is_missing_hides_no_files(
    handed_in, tmp_path, capsys
):
    handed_in()
    mine = tmp_path / "notes" / "report.md"
    mine.parent.mkdir()
    mine.write_text("mine")
    words = ["report", "lab", "--outputs", str(tmp_path / "outputs")]
    around = f"{tmp_path}/none/../notes"
    assert run([*words, "--handin", around]) == 2
    assert "notes has other files" in capsys.readouterr().err
    assert run([*words, "--to", around]) == 2
    assert "report.md would be written over" in capsys.readouterr().err
    assert run([*words, "--handin", str(mine)]) == 2
    assert "report.md is a file: name an empty" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert not (tmp_path / "none").exists()


def test_page_without_a_browser_is_printed_by_hand(handed_in):
    folder, shown = handed_in()
    assert "no report.pdf: Chromium is not here; open report.html in a browser" in shown
    assert {path.name for path in folder.iterdir()} == {
        *("report.html", "report.md", "README.md", "lab.py", "tables.ipynb", "data"),
        handin.EARLIER,
    }


def test_name_and_number_are_in_every_text(handed_in, tmp_path):
    folder, _ = handed_in()
    blank = "Name: (to be filled in), number: (to be filled in)"
    texts = ("report.html", "report.md", "README.md", "lab.py", "tables.ipynb")
    for name in texts:
        assert (folder / name).read_text().count(blank) == 1, name
    assert (
        f"# {blank}\n# Written by hpml_jobs {__version__}"
        in (folder / "lab.py").read_text()
    )
    shutil.rmtree(folder)
    words = [
        "report",
        "lab",
        "--outputs",
        str(tmp_path / "outputs"),
        "--handin",
        str(folder),
    ]
    assert run([*words, "--name", 'Ada\n"""Lovelace', "--number", "N12345678"]) == 0
    line = 'Name: Ada """Lovelace, number: N12345678'
    for name in ("report.md", "README.md", "lab.py"):
        assert line in (folder / name).read_text(), name
    assert line.replace('"', "&#34;") in (folder / "report.html").read_text()
    title = json.loads((folder / "tables.ipynb").read_text())["cells"][0]["source"]
    assert title == f"# Study lab\n\n{line}"
    compile((folder / "lab.py").read_text(), "lab.py", "exec")


def test_text_has_its_pictures_and_a_place_below_each_answer(program):
    program.ok("-m", "gpus=1,2", "batch=64", "loader_workers=1", *LOCAL)
    program.ok("report", "--handin", "hand")
    text = (program.folder / "hand" / "report.md").read_text()
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert pictures
    for picture in pictures:
        assert (program.folder / "hand" / picture).read_bytes().startswith(b"\x89PNG")
    answers = (
        text.partition("## Questions of the lab")[2]
        .partition("\n## ")[0]
        .split("\n### ")
    )
    assert len(answers) == 1 + len(questions.QUESTIONS)
    assert all(answer.rstrip().endswith(handin.OWN_WORDS) for answer in answers[1:])
    html = (program.folder / "hand" / "report.html").read_text()
    assert handin.OWN_WORDS not in html
    assert "<summary>Table" not in html
    assert '<section id="questions"' in html


@pytest.fixture
def hand_in(handed_in, tmp_path, capsys):
    """Hand in the study of `handed_in` again, with other options; return the output."""
    handed_in()

    def again(*options):
        words = ["report", "lab", "--outputs", str(tmp_path / "outputs")]
        assert run([*words, "--handin", str(tmp_path / "hand"), *options]) == 0
        return capsys.readouterr().out

    return again


def test_texts_that_nobody_edited_are_written_anew(hand_in, tmp_path):
    """Page and text have the same number of cells: the text was only the program's."""
    cell = lab_cell(1, 32)
    StudyBuilder(tmp_path / "outputs" / "lab").with_record(lab_record(cell, 30.0))
    assert "kept:" not in hand_in()
    for name in ("report.html", "report.md"):
        assert "30.00" in (tmp_path / "hand" / name).read_text(), name


@pytest.mark.parametrize("name", ["report.md", "README.md", "lab.py", "tables.ipynb"])
def test_edited_text_is_kept(hand_in, tmp_path, name):
    folder = tmp_path / "hand"
    (folder / name).write_text("my own words")
    unchanged = f"kept: {name}, which was edited; it has the study's newest numbers"
    assert unchanged in hand_in()
    stem, suffix = name.split(".")
    for number, student in ((2, "Ada"), (3, "Grace")):
        beside = f"{stem}-{number}.{suffix}"
        shown = hand_in("--name", student)
        kept = (
            f"kept: {name}, which was edited; the new text, with your name, is {beside}"
        )
        assert kept in shown
        assert f"Name: {student}" in (folder / beside).read_text()
        (folder / beside).write_text("more words")
    assert (folder / name).read_text() == "my own words"
    (folder / beside).write_bytes(b"")


def test_new_text_beside_an_edited_one_goes_with_it(hand_in, tmp_path):
    folder = tmp_path / "hand"
    (folder / "README.md").write_text("my own words")
    hand_in("--name", "Ada")
    (folder / "README.md").unlink()
    assert "kept:" not in hand_in()
    assert "Name: Ada" in (folder / "README.md").read_text()
    assert not (folder / "README-2.md").exists()


def test_name_and_number_are_those_of_the_latest_call(hand_in, tmp_path):
    hand_in("--name", "Ada", "--number", "N1")
    assert "kept:" not in hand_in("--number", "N2")
    for name in ("report.html", "report.md", "README.md", "lab.py", "tables.ipynb"):
        text = (tmp_path / "hand" / name).read_text()
        assert "Name: Ada, number: N2" in text, name


def test_folder_with_another_study_is_refused(handed_in, tmp_path, capsys):
    folder, _ = handed_in()
    (tmp_path / "outputs" / "lab").rename(tmp_path / "outputs" / "lab2")
    text = (folder / "report.md").read_text()
    words = ["report", "lab2", "--outputs", str(tmp_path / "outputs")]
    assert run([*words, "--handin", str(folder)]) == 2
    error = capsys.readouterr().err
    assert "has study lab, not lab2: name another folder" in error
    assert (folder / "report.md").read_text() == text
