"""Ranks as processes: single, under torchrun, with user code, and failing."""

import gc
import json
import os
import signal
import subprocess
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from hpml_jobs.core.cell import Outcome, Protocol
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import Device, Strategy, SyncBuffers
from hpml_jobs.core.workload import SourceFile, Workload
from hpml_jobs.worker import loop
from tests.patience import PATIENCE_S, wait_until

from .conftest import SMALL_DIGITS, change_workload, command_for, cpu_cell

OWN = Workload(
    name="own", model="mycode:build", data="mycode:dataset", images=4096, lr=0.05
)

DIGITS_FLOP = 14_613_504
"""FLOP of one sample's forward and backward; test_flop_counter.py counts them by hand."""


def test_single_process_writes_record(run_cell, monkeypatch):
    monkeypatch.setenv("HPML_JOBS_SLURM", json.dumps({"SLURM_JOB_ID": "17"}))
    finished = run_cell(cpu_cell(), cancel_below_utilization={"*": 10})
    assert (finished.code, finished.stderr) == (0, "")
    record = finished.record
    assert record.outcome is Outcome.OK
    assert record.attempt.ended
    assert record.attempt.hosts == (record.ranks[0].host,)
    rank = record.ranks[0]
    assert [epoch.role for epoch in rank.epochs] == ["warmup", "timed"]
    assert (rank.timed.iterations, rank.timed.samples) == (8, 512)
    assert 0 < rank.timed.stall_s < rank.timed.epoch_s
    assert rank.timed.loss < rank.epochs[0].loss
    assert rank.test_samples == 102
    assert rank.devices == ("cpu",)
    assert rank.threads == 1
    assert record.model is not None
    assert (record.model.parameters, record.model.gradient_bytes) == (
        26_154,
        4 * 26_154,
    )
    assert record.facts is not None
    assert record.facts.slurm == {"SLURM_JOB_ID": "17"}
    assert record.facts.cancel_below_percent == 10
    assert record.facts.cpu_count == os.cpu_count()
    progress = json.loads(finished.attempt.progress.read_bytes())
    assert (progress["epoch"], progress["epochs"], progress["role"]) == (2, 2, "test")
    assert progress["since"]
    # of the epoch before the timed one
    assert progress["last_s"] == rank.epochs[0].epoch_s
    with np.load(finished.attempt.iterations) as arrays:
        assert {name: arrays[name].shape for name in arrays} == {
            "step_s": (1, 8),
            "stall_s": (1, 8),
            "last_stall_s": (1,),
            "loss": (1, 8),
            "curve_loss": (1, 16),
            "curve_step_s": (1, 16),
            "curve_lr": (1, 16),
        }
        assert (arrays["curve_loss"][:, 8:] == arrays["loss"]).all()
        assert (arrays["curve_lr"] == SMALL_DIGITS.lr).all()
        assert (arrays["stall_s"] <= arrays["step_s"]).all()
        assert arrays["step_s"].sum() <= rank.timed.epoch_s
        stall_s = arrays["stall_s"].sum() + arrays["last_stall_s"][0]
        assert stall_s == pytest.approx(rank.timed.stall_s, rel=1e-12)
        assert rank.timed.steps.full_median_s == pytest.approx(
            np.median(arrays["step_s"])
        )
        assert float(arrays["loss"].mean()) == pytest.approx(rank.timed.loss, rel=1e-6)


def test_two_processes_split_images_and_end_equal(run_cell):
    finished = run_cell(
        cpu_cell(
            change_workload(SMALL_DIGITS, images=513, limit=513), gpus=2, batch=128
        )
    )
    assert finished.code == 0, finished.stderr
    assert "Warning" not in finished.stderr
    record = finished.record
    assert [rank.timed.samples for rank in record.ranks] == [257, 257]  # padded by one
    assert [rank.timed.iterations for rank in record.ranks] == [3, 3]
    assert [rank.timed.energy for rank in record.ranks] == [None, None]
    assert record.joules is None
    assert record.model.flop_per_sample == DIGITS_FLOP
    assert not [reason for reason in record.facts.missing if "energy" in reason]
    first, second = record.ranks
    assert first.timed.loss != second.timed.loss
    assert first.test_loss == second.test_loss
    assert record.facts is not None
    assert record.facts.backend == "gloo"
    with np.load(finished.attempt.iterations) as arrays:
        assert arrays["loss"].shape == (2, 3)


def test_evaluation_does_not_change_training(run_here):
    plain, tested = (
        run_here(cpu_cell(evaluate=evaluate)).record for evaluate in (False, True)
    )
    ranks = [record.ranks[0] for record in (plain, tested)]
    assert ranks[0].parameters_hash == ranks[1].parameters_hash
    assert ranks[0].buffers_hash == ranks[1].buffers_hash
    assert [epoch.share for epoch in ranks[0].epochs] == [None, None]
    last = ranks[1].epochs[-1].share
    assert last.samples == ranks[1].test_samples == 102
    assert last.correct / 102 == ranks[1].test_accuracy
    assert last.loss_sum / 102 == pytest.approx(ranks[1].test_loss, rel=1e-6)
    orders = [epoch.order for epoch in ranks[1].epochs]
    assert len({*orders}) == 2
    assert orders == [epoch.order for epoch in ranks[0].epochs]


def test_no_set_epoch_and_no_buffer_sync_show_in_record(run_cell):
    """Without set_epoch all epochs have one order; without buffer sync each rank keeps its own."""
    recipe = Recipe(name="warmup", scaled=True, reference_batch=64, warmup_epochs=2)
    settings = {"set_epoch": False, "sync_buffers": SyncBuffers.OFF}
    cell = cpu_cell(
        gpus=2, batch=64, epochs=3, evaluate=True, recipe=recipe, **settings
    )
    finished = run_cell(cell)
    assert finished.code == 0, finished.stderr
    ranks = finished.record.ranks
    orders = [{epoch.order for epoch in rank.epochs} for rank in ranks]
    assert [len(hashes) for hashes in orders] == [1, 1]
    assert orders[0] != orders[1]
    for number in range(3):
        shares = [rank.epochs[number].share for rank in ranks]
        assert [share.samples for share in shares] == [51, 51]
    assert len({rank.parameters_hash for rank in ranks}) == 1
    assert len({rank.buffers_hash for rank in ranks}) == 2
    first, last = ranks[0].epochs[0].lr[0], ranks[0].epochs[-1].lr[1]
    assert (first, last) == (SMALL_DIGITS.lr, pytest.approx(2 * SMALL_DIGITS.lr))


def test_process_group_is_alive_when_a_rank_leaves(run_cell, tmp_path):
    """Its end waits for gloo's threads, and these for the lock that the ending rank has."""
    (tmp_path / "mycode.py").write_text(
        "import os, sys, weakref\n"
        "import torch.distributed as dist\n"
        "from torch import nn\n"
        "group, rank, leave = weakref.ref(dist.group.WORLD), os.getpid(), os._exit\n"
        "def report_and_leave(code):\n"
        "    if os.getpid() == rank:\n"  # no loader worker
        "        print(dist.is_initialized(), bool(group()), file=sys.stderr, flush=True)\n"
        "    leave(code)\n"
        "os._exit = report_and_leave\n"
        "def build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))\n"
    )
    workload = change_workload(SMALL_DIGITS, model="mycode:build", parameters=None)
    finished = run_cell(cpu_cell(workload, gpus=2))
    assert (finished.code, finished.stderr) == (0, "False True\n" * 2)


def test_raising_rank_reports_error_and_torchrun_ends_others(write_cell, tmp_path):
    (tmp_path / "mycode.py").write_text(
        "import os\n"
        "from torch import nn\n"
        "def build():\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise ValueError('no such layer')\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))\n"
    )
    workload = change_workload(SMALL_DIGITS, model="mycode:build", parameters=None)
    cell = cpu_cell(workload, gpus=2)
    folder = write_cell(cell)
    ended = subprocess.run(command_for(folder, cell), check=False, timeout=PATIENCE_S)
    assert ended.returncode == 1
    attempt = folder.attempt("17_0")
    assert not attempt.record.exists()
    (error, *_) = attempt.rank_errors()
    assert (error.rank, error.oom, error.reason) == (
        1,
        False,
        "ValueError: no such layer",
    )
    assert "mycode.py" in error.traceback
    assert error.time_ns > 0


def test_parameter_without_gradient_is_named_under_ddp(run_cell, tmp_path):
    (tmp_path / "mycode.py").write_text(
        "from torch import nn\n"
        "class Lazy(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.used, self.idle = nn.Linear(3 * 32 * 32, 10), nn.Linear(1, 1)\n"
        "    def forward(self, images):\n"
        "        return self.used(images.flatten(1))\n"
        "def build():\n"
        "    return Lazy()\n"
    )
    workload = change_workload(SMALL_DIGITS, model="mycode:build", parameters=None)
    reason = run_cell(cpu_cell(workload, gpus=2)).error.reason
    assert "some parameters get no gradient in backward(): freeze them" in reason
    assert "2 3" in reason


def test_user_model_with_state_and_no_test_set_runs(run_cell, tmp_path):
    (tmp_path / "mycode.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "from torch.utils.data import TensorDataset\n"
        "class Keeps(nn.Linear):\n"
        "    def forward(self, images):\n"
        "        self.kept = super().forward(images.flatten(1))\n"  # no leaf: cannot be copied
        "        return self.kept\n"
        "def build():\n"
        "    return Keeps(12, 10)\n"
        "def dataset(train):\n"
        "    if train:\n"
        "        return TensorDataset(torch.randn(64, 3, 2, 2), torch.arange(64) % 10)\n"
    )
    workload = Workload(
        name="own", model="mycode:build", data="mycode:dataset", images=64, lr=0.01
    )
    full = {"protocol": Protocol.FULL, "epochs": 4, "strategy": Strategy.ALLREDUCE}
    finished = run_cell(cpu_cell(workload, gpus=2, batch=4, **full))
    assert finished.code == 0, finished.stderr
    record = finished.record
    assert record.ranks[0].test_accuracy is None
    assert [epoch.role for epoch in record.ranks[0].epochs][-2:] == [
        "plain",
        "unsynced",
    ]
    assert record.facts is not None
    assert record.facts.precision == "unknown"


def test_outputs_without_classes_have_loss_and_no_accuracy(run_here, tmp_path):
    (tmp_path / "mycode.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "from torch.utils.data import TensorDataset\n"
        "def build(): return nn.Linear(3, 1)\n"
        "def dataset(train): return TensorDataset(torch.ones(16, 3), torch.ones(16, 1))\n"
        "def loss(outputs, wanted): return ((outputs - wanted) ** 2).mean()\n"
    )
    workload = change_workload(OWN, loss="mycode:loss", images=16, lr=0.01)
    record = run_here(
        cpu_cell(workload, batch=4, evaluate=True, loader_workers=0)
    ).record
    (rank,) = record.ranks
    assert (record.accuracy, rank.test_accuracy) == (None, None)
    assert 0 < rank.test_loss < rank.epochs[0].loss
    assert [(epoch.share.correct, epoch.share.samples) for epoch in rank.epochs] == [
        (None, 16)
    ] * 2


def test_out_of_memory_is_distinguished_from_a_bug(run_here, tmp_path):
    (tmp_path / "mycode.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Greedy(nn.Linear):\n"
        "    def forward(self, images):\n"
        "        torch.empty(10**15)\n"
        "def build():\n"
        "    return Greedy(1, 1)\n"
    )
    error = run_here(
        cpu_cell(change_workload(SMALL_DIGITS, model="mycode:build", parameters=None))
    ).error
    assert error.oom
    assert "10**15" in error.traceback
    assert "\n" not in error.reason


def test_missing_cuda_is_one_line_error_without_cpu_fallback(run_cell, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    finished = run_cell(cpu_cell(device=Device.CUDA))
    assert not finished.error.oom
    assert finished.error.reason.startswith(
        "device=cuda, but torch sees no CUDA device: "
    )
    assert finished.stderr.strip() == f"rank 0: {finished.error.reason}"


def test_non_finite_loss_error_names_the_fix(run_here):
    finished = run_here(cpu_cell(change_workload(SMALL_DIGITS, lr=1e30)))
    assert not finished.error.oom
    assert "of the warmup epoch" in finished.error.reason
    assert "batch=64 x gpus=1, lr=1e+30" in finished.error.reason
    assert "workload.lr=1e+29" in finished.error.reason


@pytest.mark.parametrize("lr", [0.05, 1e30], ids=["measured", "failed"])
def test_what_holds_the_process_group_lives_until_the_process_leaves(
    run_here, monkeypatch, lr
):
    """Dropped before, it waits for gloo's thread, which waits for the interpreter (torch 2.11)."""
    trainings = []
    make = loop.make_training

    def make_training(*arguments):
        training = make(*arguments)
        trainings.append(weakref.ref(training.model))
        return training

    monkeypatch.setattr(loop, "make_training", make_training)
    run_here(cpu_cell(change_workload(SMALL_DIGITS, lr=lr)))
    gc.collect()
    assert [reference() is not None for reference in trainings] == [True]


def test_loader_workers_die_with_killed_parent(write_cell):
    cell = cpu_cell(change_workload(SMALL_DIGITS, images=20_480, limit=None), batch=32)
    folder = write_cell(cell)
    with subprocess.Popen(command_for(folder, cell)) as worker:
        tree = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
        wait_until(
            tree.read_text,
            "a loader worker",
            has_ended=lambda: worker.poll() is not None,
        )
        children = tree.read_text().split()
        # submitit's signal, which the worker ignores
        worker.send_signal(signal.SIGUSR2)
        time.sleep(0.2)
        assert worker.poll() is None
        worker.kill()
    wait_until(
        lambda: not any(Path(f"/proc/{child}").exists() for child in children),
        "every loader worker ends",
    )


def test_code_changed_after_submission_is_not_run(run_cell, tmp_path):
    (tmp_path / "mycode.py").write_text("raise RuntimeError('must not be imported')\n")
    code = (
        SourceFile(name="mycode.py", sha256="0"),
        SourceFile(name="parts.py", sha256="0"),
    )
    error = run_cell(cpu_cell(change_workload(OWN, code=code))).error
    assert error.reason == (
        "your code changed since submission: mycode.py, parts.py (missing); submit again, or "
        "restore it and use resubmit"
    )


def test_other_code_imported_by_the_job_is_recorded_or_refused(run_cell, tmp_path):
    """Code of a folder that is not on sys.path at submission, and the packages that it imports."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper.py").write_text("import numpy\n")
    (tmp_path / "mycode.py").write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'lib')!r})\nimport helper\n"
        "from torch import nn\n"
        "def build(): return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))\n"
    )
    workload = change_workload(SMALL_DIGITS, model="mycode:build", parameters=None)
    facts = run_cell(cpu_cell(workload, batch=32)).record.facts
    assert [file.name for file in facts.imported] == ["helper.py", "mycode.py"]
    assert "numpy" in facts.packages
    imported = (SourceFile(name="helper.py", sha256="0"),)
    error = run_cell(
        cpu_cell(change_workload(workload, imported=imported), batch=32)
    ).error
    assert error.reason.startswith(
        "your code changed since submission: helper.py; submit again"
    )
