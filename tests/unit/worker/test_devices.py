"""GPU types and device names, torch builds and GPUs, and what a rank refuses."""

import json
import subprocess
import sys
from functools import partial

import pytest
import torch

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError, NodeFaultError
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.worker import devices
from hpml_jobs.worker.devices import await_free, devices_for, matches_gpu_type

from .conftest import SMALL_DIGITS


@pytest.mark.parametrize(
    ("gpu_type", "name"),
    [
        ("rtx_8000", "Quadro RTX 8000"),
        ("v100", "Tesla V100-SXM2-32GB"),
        ("a100-80gb", "NVIDIA A100-SXM4-80GB"),
        ("l40s", "NVIDIA L40S"),
        ("2080_ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("mi250", "AMD Instinct MI250X"),
        ("volta", "Tesla V100-SXM2-32GB"),
    ],
)
def test_gpu_type_matches_device_name(gpu_type, name):
    assert matches_gpu_type(gpu_type, name)


@pytest.mark.parametrize(
    ("gpu_type", "name"),
    [
        ("l4", "NVIDIA L40S"),
        ("h200", "NVIDIA GH200 480GB"),
        ("a40", "NVIDIA RTX A4000"),
        ("a100-40gb", "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_gpu_type_differs_from_device_name(gpu_type, name):
    assert not matches_gpu_type(gpu_type, name)


class FakeCuda:
    """torch.cuda on a node with GPUs."""

    def __init__(self, name="Quadro RTX 8000", capability=(7, 5), count=4):
        self.name, self.capability, self.count = name, capability, count
        self.current = None

    def install(self, monkeypatch):
        for name, value in {
            "is_available": lambda: True,
            "device_count": lambda: self.count,
            "get_device_name": lambda _: self.name,
            "get_device_capability": lambda _: self.capability,
            "mem_get_info": lambda _: (47 * 10**9, 48 * 10**9),
            "set_device": lambda number: setattr(self, "current", number),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        return self


def gpu_cell(gpus=2, strategy=Strategy.DDP, gpu_type="rtx8000"):
    return Cell(
        gpus=gpus, batch=32, strategy=strategy, workload=SMALL_DIGITS, gpu_type=gpu_type
    )


def test_ddp_uses_its_own_gpu_and_dp_all(monkeypatch):
    fake = FakeCuda().install(monkeypatch)
    assert devices_for(gpu_cell(), 1) == (torch.device("cuda", 1),)
    assert fake.current == 1
    both = (torch.device("cuda", 0), torch.device("cuda", 1))
    assert devices_for(gpu_cell(strategy=Strategy.DP), 0) == both


def test_fewer_gpus_than_requested_shows_both_numbers(monkeypatch):
    FakeCuda(count=1).install(monkeypatch)
    for strategy in (Strategy.DDP, Strategy.DP):
        with pytest.raises(
            HpmlError, match=r"needs 2 GPU\(s\) on this node, but torch sees 1"
        ):
            devices_for(gpu_cell(strategy=strategy), 0)


def test_other_gpu_type_is_refused(monkeypatch):
    FakeCuda(name="NVIDIA L40S", capability=(8, 9)).install(monkeypatch)
    with pytest.raises(
        HpmlError, match="GPU 0 is a NVIDIA L40S, but the cell needs gpu_type=l4"
    ):
        devices_for(gpu_cell(gpu_type="l4"), 0)


def test_gpu_still_held_by_previous_cell_is_awaited():
    memory = iter([(4 * 10**9, 48 * 10**9), (47 * 10**9, 48 * 10**9)])
    await_free(0, lambda _: next(memory), timeout_s=0.01)
    assert list(memory) == []


BUSY = "CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might"


def test_gpu_of_one_process_is_awaited_then_refused():
    def held(_):
        raise RuntimeError(BUSY)

    with pytest.raises(
        NodeFaultError, match=r"hold GPU 3 \(CUDA error: .* unavailable\), still"
    ):
        await_free(3, held, timeout_s=0)
    memory = iter([RuntimeError(BUSY), (47 * 10**9, 48 * 10**9)])

    def free_later(_):
        answer = next(memory)
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    await_free(3, free_later, timeout_s=0.01)
    assert list(memory) == []

    def broken(_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        await_free(3, broken, timeout_s=0)


def allocated(monkeypatch, **variables):
    monkeypatch.setenv("HPML_JOBS_SLURM", json.dumps(variables))


def test_gpus_of_others_are_refused(monkeypatch):
    FakeCuda(count=4).install(monkeypatch)
    allocated(monkeypatch, SLURM_GPUS_ON_NODE="2", SLURM_JOB_GPUS="2,3")
    with pytest.raises(
        HpmlError, match=r"SLURM gave GPU 2,3 .* sees 4, .* use 0 to 1; add clu"
    ):
        devices_for(gpu_cell(), 0)
    allocated(monkeypatch, SLURM_GPUS_ON_NODE="2", SLURM_JOB_GPUS="0,1")
    assert devices_for(gpu_cell(), 1) == (torch.device("cuda", 1),)


def test_fewer_gpus_given_than_needed_are_refused(monkeypatch):
    FakeCuda(count=4).install(monkeypatch)
    allocated(monkeypatch, SLURM_GPUS_ON_NODE="1")
    with pytest.raises(HpmlError, match=r"needs 2 GPU\(s\) .* SLURM gave 1 of the 4"):
        devices_for(gpu_cell(), 0)


@pytest.mark.parametrize("text", ["{half", '{"SLURM_GPUS_ON_NODE": "gpu:2"}'])
def test_allocation_that_says_nothing_is_no_refusal(monkeypatch, text):
    FakeCuda().install(monkeypatch)
    monkeypatch.setenv("HPML_JOBS_SLURM", text)
    assert devices_for(gpu_cell(), 0) == (torch.device("cuda", 0),)


def test_mig_instance_is_refused_for_several_gpus(monkeypatch):
    name = "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    FakeCuda(name=name, capability=(8, 0), count=1).install(monkeypatch)
    with pytest.raises(HpmlError, match=r"a divided one \(.*MIG 1g.*\), .* use gpus=1"):
        devices_for(gpu_cell(gpu_type="a100"), 0)
    single = gpu_cell(gpus=1, strategy=Strategy.SINGLE, gpu_type="a100")
    assert devices_for(single, 0) == (torch.device("cuda", 0),)


def test_variable_that_slows_a_cell_is_refused(monkeypatch):
    FakeCuda().install(monkeypatch)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    with pytest.raises(HpmlError, match=r"CUDA_LAUNCH_BLOCKING=1: every .* unset it"):
        devices_for(gpu_cell(), 0)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    devices_for(gpu_cell(), 0)


def test_gpu_in_use_is_reported_instead_of_the_script(monkeypatch, write_cell, capsys):
    fake = FakeCuda().install(monkeypatch)
    monkeypatch.setattr(devices, "await_free", partial(await_free, timeout_s=0))
    of_others = {2: 3 * 10**9, 3: 44 * 10**9}
    memory = lambda number: (48 * 10**9 - of_others.get(number, 0), 48 * 10**9)  # noqa: E731
    monkeypatch.setattr(torch.cuda, "mem_get_info", memory)
    folder = write_cell(gpu_cell(gpus=4))
    with pytest.raises(SystemExit, match="1"):
        devices.main(str(folder.root), "17_0", "4", "/bin/false")
    (report,) = folder.attempt("17_0").rank_errors()
    assert (report.rank, report.node_fault) == (4, True)
    assert report.reason.startswith("other processes use 3.0 GB of GPU 2, still after")
    assert capsys.readouterr().err.startswith(
        "rank 4: other processes use 3.0 GB of GPU 2"
    )
    assert fake.current is None  # no device of the script is chosen for it


def test_script_gets_the_place_of_the_check(write_cell):
    """It has the same process, and no file of the check's."""
    cell = Cell(
        gpus=1,
        batch=8,
        strategy=Strategy.SINGLE,
        workload=SMALL_DIGITS,
        device=Device.CPU,
    )
    code = "import os; print(os.getpid(), len(os.listdir('/proc/self/fd')))"
    words = [str(write_cell(cell).root), "17_0", "0", sys.executable, "-c", code]
    check = [sys.executable, "-m", "hpml_jobs.worker.devices", *words]
    with subprocess.Popen(check, stdout=subprocess.PIPE, text=True) as process:
        # 0 to 2, and the folder
        assert process.stdout.read().split() == [
            str(process.pid),
            "4",
        ]
