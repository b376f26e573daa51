"""A script of the user before submission: its checks, its files, its cells."""

from pathlib import Path

import pytest

from hpml_jobs.core.errors import UsageError
from hpml_jobs.plan.cells import Plan
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand

TRAIN = (
    "import helper\nimport torch\n\nprint('never at submission')\nraise SystemExit(3)\n"
)
ARGS = "args=--batch-size {batch}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "helper.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(*words: str, notes: list[str] | None = None) -> Plan:
    notify = notes.append if notes is not None else (lambda _: None)
    sweep = expand(["cluster=local", "device=cpu", *words], multirun=True)
    return make_plan(sweep, notify=notify)


def test_cells_hold_the_script_and_its_local_modules(
    capfd: pytest.CaptureFixture[str],
) -> None:
    cells = [
        planned.cell
        for planned in plan("gpus=1,2", "batch=4,8", "script=train.py", ARGS).cells
    ]
    assert [cell.slug.rpartition("-")[0] for cell in cells] == [
        *("single-1proc-b4-train", "single-1proc-b8-train"),
        *("ddp-2proc-b4-train", "ddp-2proc-b8-train"),
    ]
    assert {file.name for cell in cells for file in cell.workload.code} == {
        "train.py",
        "helper.py",
    }
    assert "never" not in "".join(capfd.readouterr())


def test_a_study_has_a_name_also_if_the_script_has_a_strange_one(folder: Path) -> None:
    (folder / "my train.py").write_text("import torch\n")
    assert plan("batch=4", "script=my train.py", ARGS).study.name == "my_train-local"


def test_another_text_or_another_argument_is_another_cell(folder: Path) -> None:
    first = plan("batch=4", "script=train.py", ARGS).cells[0].slug
    assert plan("batch=4", "script=train.py", f"{ARGS} --lr 1").cells[0].slug != first
    (folder / "helper.py").write_text("x = 2\n")
    assert plan("batch=4", "script=train.py", ARGS).cells[0].slug != first


@pytest.mark.parametrize(
    ("word", "args"),
    [
        ("args='-b {batch} --lr 1'", ["-b {batch} --lr 1"]),
        ('args="-b {batch} --lr 1"', ["-b {batch} --lr 1"]),
        ("args='-b {batch} --name \\'a b\\''", ["-b {batch} --name 'a b'"]),
        ("args=\"-b {batch} --name 'a, b'\"", ["-b {batch} --name 'a, b'"]),
        ("args='-b {batch}','-b {batch} --lr 2'", ["-b {batch}", "-b {batch} --lr 2"]),
        ("args='-b {batch}', \"--lr 2\"", ["-b {batch}", "--lr 2"]),
        ("args='a' 'b' {batch}", ["'a' 'b' {batch}"]),
        ("args=-b {batch} --name 'a, b'", ["-b {batch} --name 'a, b'"]),
        ("args='a',{batch},x=\"y\"", ["'a',{batch},x=\"y\""]),
    ],
)
def test_quotes_around_the_whole_value_are_those_of_hydra(
    word: str, args: list[str]
) -> None:
    sweep = expand(["cluster=local", "script='train.py'", word], multirun=True)
    assert [(settings.script, settings.args) for settings in sweep.settings] == [
        ("train.py", text) for text in args
    ]


def test_the_files_of_a_module_and_of_a_script_in_the_arguments_count(
    folder: Path,
) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").touch()
    (folder / "pkg" / "train.py").write_text("from pkg import parts\n")
    (folder / "pkg" / "parts.py").touch()
    [cell] = (p.cell for p in plan("batch=4", "script=-m pkg.train", ARGS).cells)
    assert cell.workload.name == "train"
    assert [file.name for file in cell.workload.code] == [
        *("pkg/__init__.py", "pkg/parts.py", "pkg/train.py"),
    ]
    launched = (
        "launcher=python",
        "script=-m accelerate.commands.launch",
        f"{ARGS} train.py",
    )
    with pytest.raises(UsageError, match=r"no module accelerate in .* or installed"):
        plan("batch=4", *launched)
    [cell] = (
        p.cell for p in plan("batch=4", "script=-m json.tool", f"{ARGS} train.py").cells
    )
    assert [file.name for file in cell.workload.code] == ["helper.py", "train.py"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["script=train.py", "args=--b {batch} --key ***"],
            "type the secret in place of",
        ),
        (
            ["script=trian.py"],
            "script=trian.py: no such file; .* has helper.py, train.py",
        ),
        (["script=wrong.py"], "script=wrong.py: .* in line 1: correct it first"),
        (
            ["script=run.sh"],
            "script=run.sh is not Python: name the Python file that trains",
        ),
        (["script=-m nothere.train"], "no module nothere in .* or installed"),
        (
            ["args=--batch {batc}"],
            "args has {batc}, which nothing fills: use {batch} {gpus}",
        ),
        (["args=--name 'x"], "no closing quotation"),
        (
            ["args=--epochs 4"],
            "batch=4,8, but args has no {batch}: all cells would be equal",
        ),
        (["script=folder"], "script=folder is a folder: name the file in it"),
        (
            ["script=real.ipynb"],
            "script=real.ipynb is a notebook: jupyter nbconvert --to script",
        ),
        (
            ["script=train.py --epochs 3"],
            "arguments belong in args=: script=train.py args='--ep",
        ),
        (["script=train.py,wrong.py"], "train.py,wrong.py: one script at a time"),
        (
            ["script=-m folder.missing"],
            "script=-m folder.missing: neither .*/folder/missing.py nor",
        ),
        (
            ["script=deepspeed train.py"],
            "deepspeed is not supported: name the Python file that tra",
        ),
        (
            ["script=horovodrun -np 2 train.py"],
            "horovodrun is not supported: name the Python file",
        ),
        (
            ["script=-m deepspeed.launcher.runner"],
            "this launcher is not supported: name the Pyth",
        ),
        (
            ["script=hvd.py", "gpus=1,2"],
            "hvd.py exchanges by Horovod, which is not seen: for gpus=2",
        ),
        (
            ["script=calls.py", "gpus=2"],
            "calls.py exchanges by Horovod, which is not seen",
        ),
        (["script=mpi.py", "gpus=2"], "mpi.py exchanges by MPI, which is not seen"),
        (
            ["script=/usr/bin/mpirun -n 2 train.py"],
            "mpirun is not supported: name the Python fil",
        ),
        (["window=50"], "window=50: give two whole numbers, the iterations to warm up"),
        (["window=1,50"], "window=1,50: give 2 or more iterations each"),
        (["launcher=bash"], "launcher=bash: choose one of torchrun, srun, python"),
        (
            ["launcher=python", "gpus=2"],
            "launcher=python starts one process, which does not learn",
        ),
        (
            ["launcher=python", "gpus=2", "nodes=2"],
            "nodes=2: launcher=python starts one process",
        ),
        (
            ["precision=bf16"],
            "precision= with script=train.py: the script decides it by itself",
        ),
        (["workload=digits"], "workload= with script=train.py: the script decides it"),
        (["grid=shuffling"], "with script=train.py: the script decides it"),
        (["seed=1,2"], "seed=1,2, but args has no {seed}"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(
    folder: Path, words: list[str], message: str
) -> None:
    (folder / "wrong.py").write_text("def f(:\n")
    (folder / "folder").mkdir()
    (folder / "folder" / "__init__.py").touch()
    if "Horovod" in message:
        (folder / "hvd.py").write_text("import torch\nimport horovod.torch as hvd\n")
        (folder / "calls.py").write_text("import torch, hvd\n")
    if "MPI" in message:
        (folder / "mpi.py").write_text("import torch\nfrom mpi4py import MPI\n")
    (folder / "real.ipynb").write_text('{"cells": []}')
    (folder / "run.sh").write_text("#!/bin/bash\npython train.py\n")
    base = {"script": "script=train.py", "args": ARGS, "batch": "batch=4,8"}
    words = [*({key: w for key, w in base.items() if not any(x.startswith(key) for x in words)}
               .values()), *words]  # fmt: skip
    with pytest.raises(UsageError, match=message) as refused:
        plan(*words)
    assert "\n" not in str(refused.value)


def test_a_script_gets_no_batch_that_nobody_gave(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"script=train.py needs batch=, the samp"):
        plan("gpus=2", "script=train.py", "args=--lr 1")
    [cell] = (planned.cell for planned in plan("gpus=2", "script=train.py", ARGS).cells)
    assert cell.batch == 128


def test_what_a_script_may_lack_is_said_before_it_runs(folder: Path) -> None:
    (folder / "alone.py").write_text("import torch\n")
    notes: list[str] = []
    plan("gpus=2", "script=alone.py", "batch=64", "args=--lr 1", notes=notes)
    text = " ".join(notes)
    assert "args has no {batch}: alone.py has to use batch 64 by itself" in text
    assert "alone.py and the files that it imports here do not name Distributed" in text
    notes.clear()
    plan("gpus=2", "script=train.py", "batch=64", ARGS, notes=notes)
    assert "args has no {batch}" not in " ".join(notes)


def test_keys_of_scripts_need_one() -> None:
    with pytest.raises(
        UsageError, match="launcher= without script=: only a script has it"
    ):
        plan("batch=4", "launcher=srun", "workload=digits")


def test_files_that_all_cells_would_write_are_named_once(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\ntorch.save({}, 'snapshot.pt')\n")
    notes: list[str] = []
    plan("batch=4,8", "script=train.py", ARGS, notes=notes)
    [note] = [note for note in notes if "writes files" in note]
    assert note.startswith(
        "train.py writes files (line 2), and args has no {folder}: every cell"
    )
    notes.clear()
    plan("batch=4,8", "script=train.py", f"{ARGS} --out {{folder}}", notes=notes)
    assert not [note for note in notes if "writes files" in note]


def code_of(*words: str, notes: list[str] | None = None) -> dict[str, str]:
    [cell] = (planned.cell for planned in plan("batch=4", *words, notes=notes).cells)
    return {file.name: file.sha256 for file in cell.workload.code}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("--config cfg.json", ["cfg.json"]),
        ("--config=cfg.json", ["cfg.json"]),
        ("config=conf/more.yaml", ["conf/more.yaml"]),
        ("--config ./conf/../cfg.json", ["cfg.json"]),
        ("--configs cfg.json,conf/more.yaml", ["cfg.json", "conf/more.yaml"]),
        ("@cfg.json", ["cfg.json"]),
        ("'my settings.txt'", ["my settings.txt"]),
        ("--root conf --weights large.bin --missing not.json", []),
        ("--config {seed}.json", []),
    ],
)
def test_files_that_arguments_name_are_part_of_the_cell(
    folder: Path, words: str, names: list[str]
) -> None:
    (folder / "conf").mkdir()
    for name in ("cfg.json", "conf/more.yaml", "my settings.txt", "0.json"):
        (folder / name).write_text("1\n")
    (folder / "large.bin").write_bytes(bytes(1_000_000))
    notes: list[str] = []
    before = code_of("script=train.py", f"{ARGS} {words}", notes=notes)
    assert [*before] == sorted(["helper.py", "train.py", *names])
    assert len([note for note in notes if "named in args=:" in note]) == bool(names)
    for name in names:
        (folder / name).write_text("2\n")
        assert code_of("script=train.py", f"{ARGS} {words}")[name] != before[name]


def test_file_beside_the_script_is_found_by_its_own_name(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "train.py").write_text("import torch\n")
    (folder / "sub" / "cfg.json").write_text("1\n")
    (folder / "here.json").write_text("1\n")
    code = code_of("script=sub/train.py", f"{ARGS} --x cfg.json --y here.json")
    assert sorted(code) == ["../here.json", "cfg.json", "train.py"]


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("import horovod.torch as hvd", "gpus=1"),
        (
            "import torch.distributed as dist\ntry:\n    import horovod\nexcept ImportError: pass",
            "gpus=2",
        ),
        ("import deepspeed", "gpus=2"),
    ],
)
def test_script_that_may_use_horovod_is_not_refused(
    folder: Path, text: str, gpus: str
) -> None:
    (folder / "train.py").write_text(f"{text}\n")
    assert plan("batch=4", gpus, "script=train.py", ARGS).cells
