"""Python's start in a script: nothing of ours and nothing of the script's replaces the other."""

import os
import re
import subprocess
import sys

import msgspec
import pytest

from hpml_jobs.core.stack_files import HOST_VARIABLE
from hpml_jobs.job.script import SITE
from hpml_jobs.study.cell_folder import OBSERVE_VARIABLE, AttemptFolder
from hpml_jobs.worker.observer.refusals import Observed
from tests.unit.worker.observer.conftest import script_cell

TRAINING = """
def train(epochs=3):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(epochs):
        for batch in torch.utils.data.DataLoader(torch.zeros(8, 2), 2):
            model(batch).sum().backward()
            optimizer.step()
"""

SEES = f"""
import os, signal, sys
print(sys.path, sys.argv, os.environ.get("CHAINED"), sys.modules["sitecustomize"].__file__)
print([name for name in sys.modules if name.startswith(("hpml", "torch"))])
print([name for name in os.listdir("/proc/self/fd") if int(name) < 512])
import statistics, msgspec  # its own
import importlib.util; importlib.util.find_spec("torch"); import torch
print([signal.getsignal(number) for number in (10, 12, 15, 18)])
{TRAINING}
def show(moment):
    print(moment, *sorted(name for name in sys.modules if name[0] != "_"))

show("torch")
import shlex, resource
train()
show("trained")
sys.path.insert(0, sys.argv[1])
import decimal, fractions, hpml_jobs
for module in statistics, msgspec, shlex, resource, decimal, fractions, hpml_jobs:
    print(module.__name__, getattr(module, "OWN", False))
import zipfile
print(zipfile.ZipFile, sys.modules["zipfile"] is zipfile)
raise torch.cuda.OutOfMemoryError("CUDA out of memory")
"""
BESIDE = ("statistics", "msgspec", "shlex", "resource")
LATER = ("fractions", "hpml_jobs")

DOES = f"""
import os, sys, signal, resource
import torch, torch._dynamo
{TRAINING}
CHANGE
train()
print(sorted({{*os.environ}} - {{{OBSERVE_VARIABLE!r}}}), sys.path)
"""

CHANGES = {
    "everything": "if not os.fork(): train(1); os._exit(0)\nos.wait()\n"
    "os.environ.clear(); sys.path.clear(); os.chdir('/'); os.closerange(3, 4096)\n"
    "sys.meta_path.clear(); sys.path_hooks.clear(); sys.path_importer_cache.clear()",
    "other values": "os.environ.update(RANK='', LOCAL_RANK='a', HPML_JOBS_OBSERVE='/', HOME='/x')\n"
    "sys.path = None; sys.modules['statistics'] = None; sys.modules['msgspec'] = object()\n"
    "sys.excepthook = None; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
}


@pytest.fixture
def start(write_cell, tmp_path):
    """Start a script alone and observed; return what each printed, and what was seen."""

    def run(text, *words, paths=(), code=0):
        script = tmp_path / "sub" / "train.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text(text)
        cell = script_cell("train.py", "", gpus=1, batch=2, stop=False)
        attempt = write_cell(cell).attempt("17_0")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
        outputs = []
        for variables in (
            {"PYTHONPATH": os.pathsep.join(paths or [str(SITE)])},
            {
                "PYTHONPATH": os.pathsep.join([str(SITE), *paths]),
                OBSERVE_VARIABLE: str(attempt.root),
            },
        ):
            ended = subprocess.run(
                [sys.executable, str(script), *words],
                env=environment | variables,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ended.returncode == code, ended.stderr
            outputs.append(ended.stdout.splitlines())
        assert [*attempt.observed.glob("fault*")] == []
        files = attempt.observed.glob("rank0-*.json")
        observed = [
            msgspec.json.decode(path.read_bytes(), type=Observed) for path in files
        ]
        return outputs, observed, attempt

    return run


def test_script_sees_what_it_sees_without_us(start, tmp_path):
    """A sitecustomize and modules of its own are run, too; our file for stacks has a high number.

    Its modules and ours do not replace each other.
    """
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nos.environ['CHAINED'] = __name__\n"
    )
    for folder, names in (("sub", BESIDE), ("lib", LATER)):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.py").write_text("OWN = True\n")
    words = (str(tmp_path / "lib"), "word")
    (alone, watched), (observed,), attempt = start(
        SEES, *words, paths=[str(tmp_path)], code=1
    )
    assert watched == alone
    assert "'word'] sitecustomize " in alone[0]
    assert [(error.oom, error.rank) for error in attempt.rank_errors()] == [(True, 0)]
    assert (observed.steps, len(observed.rank.epochs)) == (12, 3)


@pytest.mark.parametrize("change", CHANGES)
def test_script_may_change_all_that_python_has(start, change):
    (alone, watched), observed, _ = start(DOES.replace("CHANGE", CHANGES[change]))
    assert watched == alone
    assert max(of_process.steps for of_process in observed) == 12


ASK = "import signal, os, sys, time\n\n\ndef f():\n    signal.raise_signal(signal.SIGUSR2)\n\n\n"
HANGS = {
    "after torch": ("import torch\nf()\n", {"RANK": "1"}, r"rank 1 was in PLACE"),
    "task of srun": ("f()\n", {"SLURM_PROCID": "3"}, r"rank 3 was in PLACE"),
    "a launcher": ("f()\n", {}, r"process \d+ on here was in PLACE"),
    "a program that a rank starts": (
        "import subprocess\nif len(sys.argv) == 1:\n    f()\n"
        "    subprocess.run([sys.executable, __file__, '-'])\nelse:\n    time.sleep(0)\n    f()\n",
        {"RANK": "1"},
        r"rank 1 was in PLACE",
    ),
    "forks": (
        "for _ in range(2):\n    if not os.fork():\n        f()\n        os._exit(0)\n"
        "    os.wait()\nf()\n",
        {},
        r"process \d+ on here was in PLACE; process \d+ on here was in PLACE",
    ),
}


@pytest.mark.parametrize(("text", "given", "activity"), HANGS.values(), ids=HANGS)
def test_stacks_are_written_before_the_first_training(tmp_path, text, given, activity):
    """Of each rank, of processes that have none, and of a launcher where it has started none."""
    script, attempt = tmp_path / "train.py", AttemptFolder(tmp_path / "attempt")
    script.write_text(ASK + text)
    environment = os.environ | {
        OBSERVE_VARIABLE: str(attempt.root),
        "PYTHONPATH": str(SITE),
    }
    environment |= {HOST_VARIABLE: "here"} | given
    subprocess.run([sys.executable, str(script)], env=environment, check=True)
    place = re.escape(f"{script}, line 5, in f")
    assert re.fullmatch(activity.replace("PLACE", place), attempt.activity())
