"""Scripts of users, unchanged: every shape of training is measured, and faults have a reason."""

import re
import shutil
from pathlib import Path

import pytest

from hpml_jobs.core.measurements import Role
from hpml_jobs.study.study import Study
from tests.journeys.conftest import SubmittedStudy

SCRIPTS = Path(__file__).parents[1] / "scripts"
ONE, TWO = ("gpus=1", "launcher=python"), ("gpus=2", "launcher=torchrun")
ARGS = {"spawn": "--gpus {gpus}", "trainer": "--out {folder}"}
SPLIT = [Role.WARMUP, Role.TIMED, Role.INSTRUMENTED]


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.long)


def start(program, script, words):
    """Return the command that ended, and the folder of its cell."""
    shutil.copytree(SCRIPTS, program.folder, dirs_exist_ok=True)
    keys = (
        "batch=32",
        "device=cpu",
        "cluster=local",
        f"study={script}",
        f"script={script}.py",
    )
    done = program(*keys, f"args=--batch-size {{batch}} {ARGS.get(script, '')}", *words)
    (cell,) = Study(program.folder / "outputs" / script).cells()
    return done, cell


@pytest.mark.parametrize(
    ("script", "words", "roles"),
    [
        ("ddp_torchrun", TWO, SPLIT),
        slow("spawn", ("gpus=2", "launcher=python"), SPLIT),
        slow("srun_procid", ("gpus=1", "launcher=srun"), SPLIT),
        ("trainer", ONE, SPLIT),
        slow("prepared", TWO, SPLIT),
        slow("gan", TWO, SPLIT[:2]),
        slow("amp", TWO, SPLIT),
        slow("single", ONE, SPLIT),
        slow("fsdp", (*TWO, "strategy=fsdp"), SPLIT[:2]),
        slow("os_exit", TWO, SPLIT),
        slow("swallows", TWO, SPLIT),
    ],
)
def test_epochs_of_script_are_measured(program, script, words, roles):
    done, cell = start(program, script, words)
    assert done.returncode == 0, done.stdout
    record = cell.read_record()
    logs = [
        path.read_text()
        for path in cell.root.rglob("*.*")
        if path.suffix in (".txt", ".log")
    ]
    lines = re.findall(r"epoch (\d+) ([\d.]+)$", "".join(logs), re.M)
    printed = {int(number): float(seconds) for number, seconds in lines}
    assert len(printed) == len(lines)  # each is kept once
    is_split = Role.INSTRUMENTED in roles
    # one that is not split is ended with its timed epoch
    assert not is_split or record.ranks[0].timed.epoch_s < printed[1]
    reason = "by FSDP" if script == "fsdp" else "several optimizers step"
    assert is_split or reason in record.facts.missing[0]
    assert is_split == (not record.facts.missing)
    gpus = len(record.ranks)
    for rank in record.ranks:
        assert [epoch.role for epoch in rank.epochs] == roles
        shares = {(epoch.iterations, epoch.samples) for epoch in rank.epochs}
        assert shares == {(64 // gpus, 2048 // gpus)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "samples"), [("own_get_batch", 4 * 10 * 32), ("endless", 10 * 32)]
)
def test_iterations_of_script_are_measured(program, script, samples):
    done, cell = start(program, script, (*ONE, "window=5,10"))
    assert done.returncode == 0, done.stdout
    (rank,) = cell.read_record().ranks
    assert [epoch.role for epoch in rank.epochs] == SPLIT
    assert (rank.timed.iterations, rank.timed.samples) == (10, samples)


@pytest.mark.parametrize(
    ("script", "words", "reason"),
    [
        (
            "never_steps",
            ONE,
            "no step of an optimizer of torch was seen in never_steps.py",
        ),
        slow(
            "batch_changes",
            ONE,
            "4 whole epochs of batch_changes.py seen (64, 32, 16, 8 batches)",
        ),
        slow(
            "single",
            TWO,
            "the 2 processes of single.py do not train together",
        ),
        slow(
            "one_trains", TWO, "1 process of one_trains.py trained, 2 of gpus=2 are to"
        ),
        slow("raises", TWO, "ValueError: this loss is not a number"),
        slow(
            "own_get_batch", ONE, "100 iterations of own_get_batch.py were seen; window"
        ),
    ],
)
def test_script_without_times_has_a_reason(program, script, words, reason):
    done, cell = start(program, script, words)
    assert done.returncode == 1
    assert reason in done.stdout
    assert not cell.record_json.exists()


@pytest.mark.journey
def test_tasks_of_a_script_on_two_nodes_of_slurm(login, rig):
    for name in ("common.py", "srun_procid.py"):
        shutil.copy(SCRIPTS / name, login.folder)
    words = ("gpus=2", "nodes=2", "batch=32", "script=srun_procid.py", "launcher=srun")
    study = SubmittedStudy(login, rig, "tasks", *words, "args=--batch-size {batch}")
    study.wait_until_finished()
    (record,) = study.records().values()
    assert [rank.host for rank in record.ranks] == ["gr001", "gr002"]
    for rank in record.ranks:
        assert [epoch.role for epoch in rank.epochs] == SPLIT
        assert (rank.timed.iterations, rank.timed.samples) == (32, 1024)
    assert record.exchange.collectives > 0
