"""The user's code is run at submission: what is counted, and what is refused."""

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
def try_code(slurm, working_folder, monkeypatch, request):
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
    "exit_in_dataset": (
        "def dataset(train):\n    sys.exit(0)\n",
        "SystemExit: 0",
    ),
    "missing_arg": (
        "def build(depth):\n    return GPT()\n",
        "build() missing 1 required positional argument: 'depth'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_code_that_gives_no_model_is_refused_at_submission(
    case, try_code, slurm, capsys
):
    change, message = REFUSED[case]
    assert try_code(change) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error
    assert error.startswith("hpml-jobs: gpt: ")
    assert slurm.scripts == []
    assert not (try_code.folder / "outputs").exists()


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
            [],
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


def test_model_that_this_machine_cannot_build_is_submitted(try_code, slurm):
    change = "def build():\n    raise RuntimeError('CUDA out of memory')\n"
    assert try_code(change) == 0
    assert len(slurm.scripts) == 1


def test_python_without_torch_is_a_note_with_given_images(
    try_code, monkeypatch, capsys
):
    ended = subprocess.CompletedProcess([], 3, "", "No module named torch")
    answer_prepare(monkeypatch, lambda _: ended)
    assert try_code("", "batch=32") == 1
    assert "or give workload.images=" in capsys.readouterr().err
    assert try_code("", "batch=32", "workload.images=64") == 0
    assert "your code was not run here: hpml-jobs doctor" in capsys.readouterr().err


def test_code_that_ends_the_process_is_refused(try_code, monkeypatch, capsys):
    answer_prepare(
        monkeypatch, lambda command: subprocess.CompletedProcess(command, 0, "", "")
    )
    assert try_code() == 1
    assert "your code ended the process before a job could train (os._exit?)" in (
        capsys.readouterr().err
    )
