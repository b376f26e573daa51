"""Invalid input: one line that names it, exit code 1 or 2, nothing submitted or changed.

The lines of most wrong commands are in tests/data/golden/refusals.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hpml_jobs
from hpml_jobs.cli.main import run
from hpml_jobs.core.answers import NO_TORCH_CODE
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.study.study import Study
from tests.unit.builders import a_record
from tests.unit.study_builder import write_record

DIGITS = "workload=digits"


def last_line(capsys):
    """The error: the last line, the only one that begins with the program's name."""
    shown = capsys.readouterr().err.splitlines()
    errors = [line for line in shown if line.startswith("hpml-jobs: ")]
    assert errors == shown[-1:]
    assert "Traceback" not in "".join(shown)
    return errors[0]


def with_workload(words):
    """The words of a row; the digits unless it names a workload."""
    return [*words.split(), *([] if "workload=" in words else [DIGITS])]


FLOATS = (
    *("probe_s", "workload.lr", "workload.momentum", "workload.weight_decay"),
    "recipe.warmup_epochs",
    *("cluster.gpu_hours_budget", "cluster.confirm_gpu_hours"),
)


@pytest.mark.parametrize("key", FLOATS)
def test_nan_is_refused_for_every_number(key, slurm, working_folder, capsys):
    assert run([DIGITS, f"{key}=nan"]) == 2
    assert last_line(capsys) == f"hpml-jobs: {key}=nan: must be a finite number"
    assert list(working_folder.iterdir()) == []


@pytest.mark.parametrize("words", ["gpus=0", "cluster=torch"])
def test_plan_usage_error_creates_no_folder(words, slurm, working_folder, capsys):
    assert run(["plan", *with_workload(words)]) == 2
    assert last_line(capsys)
    assert list(working_folder.iterdir()) == []


def test_cluster_on_laptop_is_planned_but_not_submitted(laptop, capsys):
    assert run([DIGITS, "cluster=greene"]) == 2
    assert (
        "cluster=greene: sbatch and srun not on PATH; submit from a login"
        in last_line(capsys)
    )
    assert run(["plan", DIGITS, "cluster=greene", "--all"]) == 0
    assert "#SBATCH --gres=gpu:rtx8000:1" in capsys.readouterr().out
    assert list(laptop.iterdir()) == []


# ---- data that is not there ----


def a_python(folder, words, code=1):
    """A job's Python that fails as the worker's `prepare` does: with its reason as last line."""
    path = folder.parent / "python"
    traceback = f"echo 'Traceback (most recent call last):' >&2\necho {shlex.quote(words)} >&2\n"
    path.write_text(f"#!/bin/sh\n{traceback}exit {code}\n")
    path.chmod(0o755)
    return f"cluster.python={path}"


@pytest.mark.parametrize(
    ("words", "python", "message"),
    [
        (
            "workload=resnet18_cifar10 data.root=images",
            ("URLError: no route to host",),
            "no route to host; without internet here, copy the data set into ",
        ),
        (
            "workload=resnet18_cifar10",
            ("ModuleNotFoundError: no such module", NO_TORCH_CODE),
            "this Python has no torch (set cluster.python= or a container to the jobs' Python)",
        ),
        (
            "workload=custom workload.model=nowhere:build workload.data=nowhere:data",
            ("ModuleNotFoundError: No module named 'nowhere'",),
            "custom: ModuleNotFoundError: No module named 'nowhere'",
        ),
    ],
    ids=["download", "no-torch", "own-code"],
)
def test_missing_data_or_code_is_named_with_exit_code_1(
    words,
    python,
    message,
    slurm,
    capsys,
):
    desk = Path.cwd()
    arguments = [*words.split(), a_python(desk, *python)] if python else words.split()
    assert run(arguments) == 1
    assert message in capsys.readouterr().err
    assert slurm.scripts == []
    assert list(desk.iterdir()) == []


# ---- folders ----


def test_unwritable_outputs_folder_is_named(slurm, working_folder, capsys):
    (working_folder / "outputs").write_text("a file stands here")
    assert run([DIGITS]) == 1
    assert (
        "cannot be written: Not a directory; give another with outputs=PATH"
        in last_line(capsys)
    )
    assert (working_folder / "outputs").read_text() == "a file stands here"
    assert slurm.scripts == []


@pytest.mark.parametrize(
    "words",
    [
        [DIGITS],
        ["status", "mine"],
        ["collect", "mine"],
    ],
    ids=lambda words: words[0].split("=")[0],
)
def test_study_of_newer_schema_is_refused_and_unchanged(
    words, slurm, working_folder, capsys
):
    study = Study(working_folder / "outputs" / "mine")
    study.create()
    study.about.write_text('{"schema": 7, "hpml_jobs": "9.9"}')
    before = sorted(study.root.rglob("*"))
    assert run([*words, "study=mine"] if DIGITS in words else words) == 1
    assert "has schema 7, this hpml_jobs" in (error := last_line(capsys))
    assert "use hpml_jobs 9.9" in error
    assert sorted(study.root.rglob("*")) == before
    assert slurm.scripts == []


# ---- a record that is half written ----


def test_truncated_record_is_shown_and_cell_resubmitted(slurm, working_folder, capsys):
    words = ["-m", "gpus=1,2", "batch=512", DIGITS, "study=mine"]
    assert run(words) == 0
    study = Study(working_folder / "outputs" / "mine")
    whole, half = study.cells()
    write_record(whole, a_record(whole.read().cell))
    text = encode(a_record(half.read().cell))
    half.record_json.write_bytes(text[: len(text) // 2])
    capsys.readouterr()

    assert run(words) == 0
    shown = capsys.readouterr().out
    assert "invalid before" in shown
    assert "submitted 1 cell" in shown
    assert len(slurm.scripts) == 3
    assert list(study.history().jobs) == [whole.slug, half.slug]


@pytest.mark.parametrize("name", ["random.py", "select/__init__.py"])
def test_file_named_as_a_module_of_python_is_refused(name, laptop, capsys):
    write_whole(laptop / name, b"")
    assert run([DIGITS, "cluster=local"]) == 2
    assert (
        f"{laptop}/{name.partition('/')[0]} has the name of a module of Python"
        in last_line(capsys)
    )


def test_full_device_for_the_output_is_one_line(laptop):
    program = (
        "import sys; from hpml_jobs.cli.main import run; sys.exit(run(['--help']))"
    )
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", program],
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(hpml_jobs.__file__).parents[1])},
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (
        1,
        "hpml-jobs: the output: No space left on device\n",
    )
