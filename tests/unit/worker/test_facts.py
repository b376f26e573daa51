"""Facts never fail a run; those that cannot be read are listed with the reason."""

import json
from types import SimpleNamespace

import pytest
import torch

from hpml_jobs.core.cell import CellFile
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.worker.instruments import facts

from .conftest import cpu_cell


def file_of(cell, **fields):
    return CellFile(cell=cell, data_root="/nowhere", code_root="/nowhere", **fields)


def test_facts_on_cpu_have_environment_and_versions(monkeypatch):
    monkeypatch.setenv(
        "HPML_JOBS_SLURM", json.dumps({"SLURM_JOB_ID": "17", "SLURM_NNODES": "1"})
    )
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("APPTAINER_CONTAINER", "/images/torch.sif")
    conditions = facts.read_facts(file_of(cpu_cell()), "gloo")
    assert conditions.slurm == {"SLURM_JOB_ID": "17", "SLURM_NNODES": "1"}
    assert conditions.nccl_environment == {"NCCL_DEBUG": "INFO"}
    assert conditions.container == "/images/torch.sif"
    assert conditions.backend == "gloo"
    assert conditions.torch
    assert conditions.torchvision
    assert conditions.cpu_model
    assert conditions.tf32_matmul is False
    assert conditions.driver is None  # not read on a CPU


def test_unreadable_facts_are_missing_with_reason(monkeypatch):
    monkeypatch.setenv("HPML_JOBS_SLURM", "{half")
    monkeypatch.setenv("PATH", "/nowhere")
    cell = cpu_cell(strategy=Strategy.SINGLE, device=Device.CUDA)
    conditions = facts.read_facts(file_of(cell), None)
    missing = dict(line.split(": ", 1) for line in conditions.missing)
    assert {"slurm", "commit", "dirty", "topology"} <= set(missing)
    assert "git" in missing["commit"]
    assert conditions.commit is None
    assert conditions.slurm == {}


def test_commit_of_enclosing_checkout_is_not_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(facts, "OWN_CODE", tmp_path)
    with pytest.raises(RuntimeError, match="no checkout of hpml_jobs"):
        facts._commit()


def test_environment_is_kept_by_prefix_without_secrets(monkeypatch):
    for name, value in {
        "CUDA_MODULE_LOADING": "EAGER",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "NVIDIA_TF32_OVERRIDE": "0",
        "TORCH_HUB_TOKEN": "hf_1",
        "NCCL_AUTH_SECRET": "x",
        "NVIDIA_REQUIRE_CUDA": "x" * 999,
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/torchinductor_alice",
        "EDITOR": "vi",
    }.items():
        monkeypatch.setenv(name, value)
    cell_facts = facts.read_facts(file_of(cpu_cell()), "gloo")
    kept = cell_facts.environment
    assert kept["CUDA_MODULE_LOADING"] == "EAGER"
    assert kept["NVIDIA_TF32_OVERRIDE"] == "0"
    assert len(kept["NVIDIA_REQUIRE_CUDA"]) == 200
    assert (
        not {"TORCH_HUB_TOKEN", "EDITOR", "NCCL_DEBUG", "TORCHINDUCTOR_CACHE_DIR"}
        & kept.keys()
    )
    assert "NCCL_AUTH_SECRET" not in cell_facts.nccl_environment


def test_mig_instance_has_a_uuid_of_its_own(monkeypatch):
    names = {0: "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 1: "NVIDIA A100-SXM4-40GB"}

    def properties(device):
        return SimpleNamespace(name=names[device.index], uuid=device.index)

    monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
    devices = (torch.device("cuda", 0), torch.device("cuda", 1))
    assert facts.device_uuids(devices) == ("MIG-0", "GPU-1")
