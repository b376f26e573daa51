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


def test_windows_of_a_script_are_of_its_cell() -> None:
    (planned,) = plan("batch=4", "script=train.py", ARGS, "window=5,10").cells
    assert planned.cell.script is not None
    assert planned.cell.script.window == (5, 10)


def test_another_text_or_another_argument_is_another_cell(folder: Path) -> None:
    first = plan("batch=4", "script=train.py", ARGS).cells[0].slug
    assert plan("batch=4", "script=train.py", f"{ARGS} --lr 1").cells[0].slug != first
    (folder / "helper.py").write_text("x = 2\n")
    assert plan("batch=4", "script=train.py", ARGS).cells[0].slug != first


@pytest.mark.parametrize(
    ("word", "args"),
    [
        ("args='-b {batch} --lr 1'", ["-b {batch} --lr 1"]),
        ("args='-b {batch} --name \\'a b\\''", ["-b {batch} --name 'a b'"]),
        ("args=\"-b {batch} --name 'a, b'\"", ["-b {batch} --name 'a, b'"]),
        ("args='-b {batch}', \"--lr 2\"", ["-b {batch}", "--lr 2"]),
        ("args=-b {batch} --name 'a, b'", ["-b {batch} --name 'a, b'"]),
    ],
)
def test_quotes_around_the_whole_value_are_those_of_hydra(
    word: str, args: list[str]
) -> None:
    sweep = expand(["cluster=local", "script='train.py'", word], multirun=True)
    assert [(settings.script, settings.args) for settings in sweep.settings] == [
        ("train.py", text) for text in args
    ]


SHARED = r"""
torch.save({}, 'snapshot.pt')
from torch import load; load("ck.pt")
import torch.distributed.checkpoint as dcp; dcp.load({})
model.save_pretrained("out")
from lightning import Trainer; Trainer(max_epochs=3)
TrainingArguments("out")
pd.DataFrame().to_csv("log.csv")
open(name, mode="w")
(folder / "log").write_text(f"{loss}")
shutil.copy(name, "best.pt")
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
def test_script_that_shares_files_is_refused(folder: Path, text: str) -> None:
    source = text.replace(r"\n", "\n")
    (folder / "helper.py").write_text(f"import torch\n{source}\n")
    with pytest.raises(UsageError, match=r"\(helper.py, line [23]\), and args has no "):
        plan("batch=4,8", "script=train.py", ARGS)
    plan("batch=4,8", "script=train.py", f"{ARGS} --out {{folder}}")
    plan("batch=4,8", "script=train.py", ARGS, "shared_files=true")


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
        ("--configs cfg.json,conf/more.yaml", ["cfg.json", "conf/more.yaml"]),
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


STEP = "import torch\nloss.backward()\n"
PARALLEL = f"{STEP}from torch.nn.parallel import DistributedDataParallel\n"


@pytest.mark.parametrize(
    ("text", "library"),
    [
        ("import tensorflow as tf", "tensorflow"),
        ("def train():\n    import keras", "keras"),
        (f"{STEP}import horovod.torch as hvd", "horovod"),
        (f"{PARALLEL}if 0:\n    import tensorflow, horovod, ray", ""),
        ('"""\nimport keras\nfrom ray tracing\n"""', ""),
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
