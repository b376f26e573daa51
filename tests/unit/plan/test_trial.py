"""One batch of the user's code is tried at submission: what is refused, in which words."""

import contextlib
import io
import subprocess
import sys

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.worker import prepare

KEYS = {
    "gpus": "1",
    "batch": "8",
    "device": "cpu",
    "workload": "custom",
    "cluster": "greene",
}
CODE = """
import os, sys, time
import torch
from torch import nn
from torch.utils.data import Dataset

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(256, 8), nn.Linear(8, 256)
    def forward(self, tokens):
        return self.head(self.embedding(tokens))

class Tokens(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        tokens = torch.arange(65) % 256
        return tokens[:-1], tokens[1:]

def build():
    return GPT()
def dataset(train):
    return Tokens() if train else None
def loss(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
"""


def answer_prepare(monkeypatch, answer):
    """Let `answer` stand in for the jobs' Python; other programs are run."""
    really_run = subprocess.run

    def run_command(command, **options):
        is_prepare = "hpml_jobs.worker.prepare" in command
        return answer(command) if is_prepare else really_run(command, **options)

    monkeypatch.setattr(subprocess, "run", run_command)


@pytest.fixture
def try_code(slurm, working_folder, tmp_path, monkeypatch, request):
    """Submit the GPT with a change of its code; the jobs' Python is this process."""

    def run_here(command):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = prepare.main(
                command[command.index("hpml_jobs.worker.prepare") + 1 :]
            )
        return subprocess.CompletedProcess(
            command, code, out.getvalue(), err.getvalue()
        )

    name = "mygpt_" + "".join(filter(str.isalnum, request.node.name))[-40:]
    answer_prepare(monkeypatch, run_here)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def submit(change="", *words, model="build", function="dataset", loss="loss"):
        sys.modules.pop(name, None)
        (working_folder / f"{name}.py").write_text(CODE + change)
        functions = {"model": model, "data": function, "loss": loss}
        named = [
            f"workload.{key}={name}:{value}"
            for key, value in functions.items()
            if value
        ]
        given = {word.partition("=")[0] for word in words}
        defaults = [f"{key}={value}" for key, value in KEYS.items() if key not in given]
        return run([*defaults, "workload.name=gpt", *named, *words])

    submit.name, submit.folder = name, working_folder
    return submit


REFUSED = {
    "dict_items": (
        "class D(Tokens):\n    def __getitem__(self, i):\n        return {'ids': i, 'labels': i}\n"
        "def dataset(train):\n    return D()\n",
        ":dataset: item 0 of dataset(True) is a dict with ids, labels: return a pair",
    ),
    "triple_items": (
        "class D(Tokens):\n    def __getitem__(self, i):\n        return 1, 2, 3\n"
        "def dataset(train):\n    return D()\n",
        "item 0 of dataset(True) is a tuple of 3 (int, int, int): return a pair",
    ),
    "ragged_shapes": (
        "class D(Tokens):\n    def __getitem__(self, i):\n"
        "        return torch.zeros(64 - i % 5).long(), 1\n"
        "def dataset(train):\n    return D()\n",
        "the inputs of dataset(True) differ: item 0 has (64,) int64, item 4 has (60,) int64: pad,",
    ),
    "texts": (
        "class D(Tokens):\n    def __getitem__(self, i):\n        return 'text', 1\n"
        "def dataset(train):\n    return D()\n",
        "the inputs of dataset(True): each is a str: return one tensor",
    ),
    "objects": (
        "class D(Tokens):\n    def __getitem__(self, i):\n        return Tokens(), 1\n"
        "def dataset(train):\n    return D()\n",
        "each is a Tokens, which PyTorch cannot collate: return tensors",
    ),
    "raising_items": (
        "class D(Tokens):\n    def __getitem__(self, i):\n        raise KeyError('cat.jpg')\n"
        "def dataset(train):\n    return D()\n",
        "item 0 of dataset(True) raised KeyError: 'cat.jpg' (mygpt_",
    ),
    "test_items": (
        "class D(Tokens):\n    def __getitem__(self, i):\n        return {'ids': i}\n"
        "def dataset(train):\n    return Tokens() if train else D()\n",
        "item 0 of dataset(False) is a dict with ids: return a pair",
    ),
    "exit_in_dataset": (
        "def dataset(train):\n    sys.exit(0)\n",
        ":dataset called sys.exit: remove the call",
    ),
    "exit_in_forward": (
        "class GPT(GPT):\n    def forward(self, x):\n        sys.exit()\n",
        ":build: forward() with inputs (2, 64) int64 called sys.exit",
    ),
    "no_module": (
        "def build():\n    return 3\n",
        ":build returned int: return a torch.nn.Module",
    ),
    "raising_forward": (
        "class GPT(GPT):\n    def forward(self, x):\n        return self.tail(x)\n",
        "forward() with inputs (2, 64) int64 raised AttributeError: 'GPT' object has no attribute",
    ),
    "tuple_outputs": (
        "class GPT(GPT):\n    def forward(self, x):\n        return super().forward(x), None\n",
        "forward() returned a tuple of 2 ((2, 64, 256) float32, NoneType): return one tensor",
    ),
    "vector_loss": (
        "def loss(outputs, targets):\n    return (outputs.mean(2) - targets) ** 2\n",
        ":loss returned (2, 64) float32 for outputs (2, 64, 256) float32 and targets (2, 64) int64:"
        " return the mean over the batch",
    ),
    "number_loss": (
        "def loss(outputs, targets):\n    return outputs.sum().item()\n",
        ":loss returned a float for outputs",
    ),
    "wrong_targets": (
        "def loss(outputs, targets):\n"
        "    return nn.functional.cross_entropy(outputs, targets.flatten())\n",
        ":loss with outputs (2, 64, 256) float32 and targets (2, 64) int64 raised ValueError",
    ),
    "detached_loss": (
        "def loss(outputs, targets):\n    return outputs.detach().mean()\n",
        ":loss: the loss does not depend on a trainable parameter",
    ),
    "backward": (
        "class GPT(GPT):\n    def forward(self, x):\n"
        "        y = torch.sigmoid(self.embedding(x))\n        y.add_(1)\n"
        "        return self.head(y * y.clone())\n"
        "def loss(outputs, targets):\n    return outputs.mean()\n",
        ":build: the backward pass raised RuntimeError: one of the variables needed",
    ),
    "raising_optimizer": (
        "def build_optimizer(model):\n    return torch.optim.SGD([], 0.1)\n",
        ":build_optimizer raised ValueError: optimizer got an empty parameter list (mygpt_",
    ),
    "step_with_closure": (
        "def build_optimizer(model):\n    return torch.optim.LBFGS(model.parameters())\n",
        ":build_optimizer: step() raised TypeError: ",
    ),
    "replaced_step": (
        "def build_optimizer(model):\n"
        "    made = torch.optim.SGD(model.parameters(), 0.1)\n"
        "    made.step = lambda: None\n"
        "    return made\n",
        ":build_optimizer: step() raised AttributeError: ",
    ),
    "no_schedule": (
        "def build_schedule():\n    return 0.5\n",
        ":build_schedule returned float: return a function from the iteration (0, 1,",
    ),
    "raising_schedule": (
        "def build_schedule(iterations):\n    return lambda i: 1 / (i - iterations + 1)\n",
        ":build_schedule: its function, for iteration 0, returned -0.001001: the factor must be",
    ),
    "misspelt_arg": (
        "def build(depth=1):\n    return GPT()\n",
        "workload.args.deph: none of your functions takes deph; did you mean depth?",
    ),
    "missing_arg": (
        "def build(depth):\n    return GPT()\n",
        ":build gets no value for depth: add +workload.args.depth=VALUE, or give it a default",
    ),
}
OWN_KEYS = {
    "raising_optimizer": "workload.optimizer={}:build_optimizer",
    "step_with_closure": "workload.optimizer={}:build_optimizer",
    "replaced_step": "workload.optimizer={}:build_optimizer",
    "no_schedule": "workload.schedule={}:build_schedule",
    "raising_schedule": "workload.schedule={}:build_schedule",
    "misspelt_arg": "+workload.args.deph=2",
}
BEFORE_TRIAL = {*OWN_KEYS, "missing_arg"} - {"step_with_closure", "replaced_step"}
"""The keys that a case needs beside those of every case."""


@pytest.mark.parametrize("case", REFUSED)
def test_code_that_cannot_train_is_refused_at_submission(case, try_code, slurm, capsys):
    change, message = REFUSED[case]
    words = [OWN_KEYS[case].format(try_code.name)] if case in OWN_KEYS else []
    assert try_code(change, *words) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error
    assert error.startswith("hpml-jobs: gpt: ")
    assert ("try_batch=false" in error) == (
        "called sys.exit: " not in error
        and "Module" not in error
        and case not in BEFORE_TRIAL
    )
    assert slurm.scripts == []
    assert not (try_code.folder / "outputs").exists()


def test_default_loss_on_sequences_is_refused(try_code, capsys):
    assert try_code(loss=None) == 1
    assert (
        "workload.loss=cross_entropy does not fit outputs (2, 64, 256) float32 and targets (2, 64) "
        "int64: it takes (n, classes) and class numbers (n); for other shapes write a loss"
    ) in capsys.readouterr().err


def test_class_beyond_outputs_is_refused(try_code, capsys):
    change = "def dataset(train):\n    return [(torch.zeros(1).long(), 300)] * 64\n"
    change += "class GPT(GPT):\n    def forward(self, x):\n"
    change += "        return super().forward(x)[:, 0]\n"
    assert try_code(change, loss=None) == 1
    error = capsys.readouterr().err
    assert "a target is class 300, with outputs (2, 256) float32" in error
    assert "set workload.classes=" in error


def test_good_code_is_submitted_and_tried_once(try_code, slurm, monkeypatch, capsys):
    assert try_code() == 0
    assert len(slurm.scripts) == 1
    started = []
    run_here = subprocess.run
    answer_prepare(
        monkeypatch, lambda command: started.append(command) or run_here(command)
    )
    assert try_code("", "batch=16") == 0
    assert try_code("# changed\n", "batch=16") == 0
    assert ["--try-batch" in command for command in started] == [False, True]


@pytest.mark.parametrize(
    ("change", "keys", "message"),
    [
        (
            "",
            ["workload.context=99"],
            ":dataset has 64 tokens; leave workload.context= out, or use workload.context=64",
        ),
        (
            "class Tokens(Tokens):\n"
            "    def __getitem__(self, index):\n"
            "        return [part.view(8, 8) for part in super().__getitem__(index)]\n",
            ["try_batch=false"],
            "workload.unit=tokens: the number of tokens of a sample is not known; set "
            "workload.context=",
        ),
    ],
    ids=["other-number", "two-dimensions"],
)
def test_tokens_of_an_input_are_counted_and_compared(
    change, keys, message, try_code, capsys
):
    assert try_code(change, "workload.unit=tokens", *keys) == 2
    assert message in capsys.readouterr().err


def test_trial_is_skipped_by_key(try_code, slurm):
    change = REFUSED["vector_loss"][0]
    assert try_code(change) == 1
    assert try_code(change, "try_batch=false") == 0
    assert len(slurm.scripts) == 1


GPU_ONLY = {
    "build": "class GPT(GPT):\n    def __init__(self):\n        super().__init__()\n"
    "        raise RuntimeError('Found no NVIDIA driver on your system')\n",
    "forward": "class GPT(GPT):\n    def forward(self, x):\n"
    "        raise RuntimeError('Torch not compiled with CUDA enabled')\n",
}


@pytest.mark.parametrize("change", GPU_ONLY.values(), ids=GPU_ONLY.keys())
def test_model_that_needs_a_gpu_is_submitted_untried(change, try_code, slurm, capsys):
    assert try_code(change, "device=cpu") == 1
    assert try_code(change, "device=cuda") == 0
    assert len(slurm.scripts) == 1
    note = next(
        line for line in capsys.readouterr().err.splitlines() if "no batch" in line
    )
    assert note.startswith("gpt: no batch was tried here: workload.model=")
    assert " needs a GPU (RuntimeError: " in note
    assert note.endswith("hpml-jobs doctor tries one on a node")


def test_out_of_memory_of_login_node_is_no_refusal(try_code, slurm, capsys):
    change = "class GPT(GPT):\n    def forward(self, x):\n        return torch.empty(2**50)\n"
    assert try_code(change) == 0
    assert "needs more memory than this machine has" in capsys.readouterr().err


@pytest.mark.parametrize("code", [3, 127, 255])
def test_python_without_torch_is_a_note_with_given_images(
    code, try_code, monkeypatch, capsys
):
    ended = subprocess.CompletedProcess([], code, "", "No module named torch")
    answer_prepare(monkeypatch, lambda _: ended)
    assert try_code("", "batch=32") == 1
    assert "or give workload.images=" in capsys.readouterr().err
    assert try_code("", "batch=32", "workload.images=64") == 0
    assert (
        "your code was not tried: hpml-jobs doctor tries one" in capsys.readouterr().err
    )


def test_code_that_ends_the_process_is_refused(try_code, monkeypatch, capsys):
    answer_prepare(
        monkeypatch, lambda command: subprocess.CompletedProcess(command, 0, "", "")
    )
    assert try_code() == 1
    assert "your code ended the process before a job could train (os._exit?)" in (
        capsys.readouterr().err
    )


LIMITED = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from hpml_jobs.worker import prepare
prepare.LIMIT_S, prepare.LIMIT_BYTES = int(sys.argv.pop(1)), 300_000_000
sys.exit(prepare.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("act", "limit_s", "reason"),
    [
        (
            "time.sleep(600)",
            "1",
            "it took more than 1 s (mygpt.py line 29 in __getitem__)",
        ),
        (
            "self.kept = [bytes([1]) * 10**7 for _ in range(10**4)]",
            "90",
            "it took more than 0 GB of memory",
        ),
    ],
    ids=["time", "memory"],
)
def test_trial_is_bounded_in_time_and_memory(act, limit_s, reason, tmp_path):
    change = f"class D(Tokens):\n    def __getitem__(self, i):\n        {act}\n"
    (tmp_path / "mygpt.py").write_text(
        CODE + change + "def dataset(train):\n    return D()\n"
    )
    workload = '{"name":"gpt","model":"mygpt:build","data":"mygpt:dataset","loss":"mygpt:loss"}'
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-c",
                LIMITED,
                str(tmp_path),
                limit_s,
                "--workload",
                workload,
            ),
            *(
                "--data-root",
                str(tmp_path),
                "--code-root",
                str(tmp_path),
                "--try-batch",
                "2",
            ),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"parameters":4352' in done.stdout
    assert reason in done.stdout


@pytest.mark.whole
def test_own_data_that_is_no_tensor_is_refused_for_loader_device(try_code, capsys):
    assert try_code("", "loader=device") == 1
    assert "loader=device with workload.data=" in capsys.readouterr().err
    tensors = (
        "def rows(train):\n"
        "    tokens = torch.arange(65).repeat(64, 1)\n"
        "    return torch.utils.data.TensorDataset(tokens[:, :-1], tokens[:, 1:])\n"
    )
    assert try_code(tensors, "loader=device", function="rows") == 0
