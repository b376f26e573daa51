"""Facts never fail a run; those that cannot be read are listed with the reason."""

import json
import sys

import pytest

from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.worker.instruments import facts

from .conftest import cpu_cell


def test_facts_on_cpu_have_environment_and_versions(monkeypatch):
    monkeypatch.setenv("HPML_JOBS_SLURM", json.dumps({"SLURM_JOB_ID": "17", "SLURM_NNODES": "1"}))
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("APPTAINER_CONTAINER", "/images/torch.sif")
    conditions = facts.read_facts(cpu_cell(), "gloo", 25.0, ["trace: no"])
    assert conditions.slurm == {"SLURM_JOB_ID": "17", "SLURM_NNODES": "1"}
    assert conditions.nccl_environment == {"NCCL_DEBUG": "INFO"}
    assert conditions.container == "/images/torch.sif"
    assert conditions.backend == "gloo"
    assert conditions.link_gb_per_s == 25.0
    assert conditions.missing == ("trace: no",)
    assert conditions.torch
    assert conditions.torchvision
    assert conditions.cpu_model
    assert conditions.tf32_matmul is False
    assert conditions.driver is None  # not read on a CPU


def test_unreadable_facts_are_missing_with_reason(monkeypatch):
    monkeypatch.setenv("HPML_JOBS_SLURM", "{half")
    monkeypatch.setenv("PATH", "/nowhere")
    cell = cpu_cell(strategy=Strategy.SINGLE, device=Device.CUDA)
    conditions = facts.read_facts(cell, None, None)
    missing = dict(line.split(": ", 1) for line in conditions.missing)
    assert {"slurm", "commit", "dirty", "topology"} <= set(missing)
    assert "git" in missing["commit"]
    assert conditions.commit is None
    assert conditions.slurm == {}


def test_commit_of_enclosing_checkout_is_not_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(facts.hpml_jobs, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(RuntimeError, match="no checkout of hpml_jobs"):
        facts._commit()


class FakeCard:
    """pynvml with one card whose driver knows no power limit."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = "sm", "memory", "gpu"

    def __getattr__(self, name):
        answers = {
            "nvmlDeviceGetHandleByUUID": "card",
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
            "nvmlDeviceGetComputeRunningProcesses": ["this"],
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetTemperature": 60,
            "nvmlDeviceGetPowerUsage": 650_000,
            "nvmlInit": None,
            "nvmlShutdown": None,
        }
        return lambda *_: answers[name]

    def nvmlDeviceGetClockInfo(self, _, kind):  # noqa: N802 -- NVML's names
        return {"sm": 1755, "memory": 3201}[kind]

    def nvmlDeviceGetEnforcedPowerLimit(self, _):  # noqa: N802
        raise RuntimeError("Not Supported")


def test_card_without_power_limit_keeps_its_other_values(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeCard())
    card = facts._read_card("GPU-0")
    assert (card.sm_clock_mhz, card.memory_clock_mhz, card.power_limit_w) == (1755, 3201, None)
    assert (card.power_w, card.throttle_reasons) == (650.0, ("sw_power_cap",))
