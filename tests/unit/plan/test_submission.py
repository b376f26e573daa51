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


def test_batch_of_a_script_is_the_given_one(folder: Path) -> None:
    [cell] = (planned.cell for planned in plan("gpus=2", "script=train.py", ARGS).cells)
    assert cell.batch == 128


def test_what_a_script_may_lack_is_said_before_it_runs(folder: Path) -> None:
    (folder / "alone.py").write_text("import torch\n")
    notes: list[str] = []
    plan("gpus=2", "script=alone.py", "batch=64", "args=--lr 1", notes=notes)
    text = " ".join(notes)
    assert "args has no {batch}: alone.py has to use batch 64 by itself" in text
    notes.clear()
    plan("gpus=2", "script=train.py", "batch=64", ARGS, notes=notes)
    assert "args has no {batch}" not in " ".join(notes)


SHARED = r"""
torch.save({}, 'snapshot.pt')
from torch import load; load("ck.pt")
import torch as t; t.load("ck.pt")
import torch.distributed.checkpoint as dcp; dcp.load({})
torch.distributed.checkpoint.load({})
from torch.distributed import checkpoint; checkpoint.save({})
model.save_pretrained("out")
accelerator.load_state("out")
engine.load_checkpoint("out")
from lightning import Trainer; Trainer(max_epochs=3)
import lightning as L; L.Trainer()
TrainingArguments("out")
SummaryWriter()
pd.DataFrame().to_csv("log.csv")
np.savez("a", x)
open(name, "a")
open(name, mode="w")
open(name, args.mode)
open(name, "ab" if more else "r")
Path("log").open("x")
(folder / "log").write_text(f"{loss}")
zipfile.ZipFile(name, "w")
shutil.copy(name, "best.pt")
profile.export_chrome_trace("t.json"); torch.onnx.export(model, x, "m.onnx")
cv2.imwrite("x.png", x)
print(\n  open(\n    name,\n    'w'\n  )\n)
"""
NOT_SHARED = r"""
# torch.save({}, "snapshot.pt")
print("then torch.save(x) and open(name, 'w')")
open("x.txt"); open(name, "rb"); Path("a").open()
np.load("data.npz"); json.load(open("x.json")); pickle.load(open("data.pkl", "rb"))
model.load_state_dict({}); ctx.save_for_backward(x); json.dumps({}); logging.getLogger("a")
datasets.CIFAR10(root, download=True); os.makedirs("out"); np.memmap("x.bin", mode="r")
class Trainer: ...\nTrainer()
"""


@pytest.mark.parametrize("text", SHARED.strip().splitlines())
@pytest.mark.parametrize("script", ["script=train.py", "script=-m train"])
def test_script_that_shares_files_is_refused(
    folder: Path, script: str, text: str
) -> None:
    source = text.replace(r"\n", "\n")
    (folder / "helper.py").write_text(f"import torch\n{source}\n")
    with pytest.raises(UsageError, match=r"\(helper.py, line [23]\), and args has no "):
        plan("batch=4,8", script, ARGS)
    plan("batch=4,8", script, f"{ARGS} --out {{folder}}")
    plan("batch=4,8", script, ARGS, "shared_files=true")


@pytest.mark.parametrize("text", NOT_SHARED.strip().splitlines())
def test_script_that_shares_no_files_is_not_refused(folder: Path, text: str) -> None:
    source = text.replace(r"\n", "\n")
    (folder / "train.py").write_text(f"import torch\n{source}\n")
    plan("batch=4,8", "script=train.py", ARGS)


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


STEP = "import torch\nloss.backward()\n"
PARALLEL = f"{STEP}from torch.nn.parallel import DistributedDataParallel\n"


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("import tensorflow as tf", "tensorflow"),
        ("import jax.numpy as np, torch", "jax"),
        ("from flax import linen", "flax"),
        ("def train():\n    import keras", "keras"),
        (f"{STEP}import horovod.torch as hvd", "horovod"),
        (f"{STEP}from ray import train", "ray"),
        (f"{STEP}import deepspeed", "deepspeed"),
        (f"{STEP}if 0:\n    import tensorflow", ""),
        (f"{PARALLEL}if 0:\n    import tensorflow, horovod, ray", ""),
        ('"""\nimport keras\nfrom ray tracing\n"""', ""),
        ("from .ray import trace", ""),
    ],
)
def test_script_of_another_library_is_refused(
    folder: Path, text: str, library: str
) -> None:
    (folder / "train.py").write_text(f"{text}\n")
    for gpus in ("gpus=1", "gpus=2"):
        try:
            plan("batch=4", gpus, "script=train.py", ARGS)
        except UsageError as refusal:
            assert f"train.py imports {library}: only" in str(refusal)
        else:
            assert not library
