"""Facts never fail a run; what cannot be read is named with its reason."""

import json

import pytest

from hpml_jobs.core.cell import Device, Strategy
from hpml_jobs.worker.instruments import facts

from .conftest import cpu_cell


def test_facts_on_cpu_have_environment_and_versions(monkeypatch):
    monkeypatch.setenv("HPML_JOBS_SLURM", json.dumps({"SLURM_JOB_ID": "17", "SLURM_NNODES": "1"}))
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("APPTAINER_CONTAINER", "/images/torch.sif")
    found = facts.gather(cpu_cell(), "gloo", 25.0, ["trace: no"])
    assert found.slurm == {"SLURM_JOB_ID": "17", "SLURM_NNODES": "1"}
    assert found.nccl_environment == {"NCCL_DEBUG": "INFO"}
    assert found.container == "/images/torch.sif"
    assert found.backend == "gloo"
    assert found.link_gb_per_s == 25.0
    assert found.missing == ("trace: no",)
    assert found.torch
    assert found.torchvision
    assert found.cpu_model
    assert found.tf32_matmul is False
    assert found.driver is None  # not asked for on a CPU


def test_unreadable_facts_are_missing_with_reason(monkeypatch):
    monkeypatch.setenv("HPML_JOBS_SLURM", "{half")
    monkeypatch.setenv("PATH", "/nowhere")
    cell = cpu_cell(strategy=Strategy.SINGLE, device=Device.CUDA)
    found = facts.gather(cell, None, None)
    missing = dict(line.split(": ", 1) for line in found.missing)
    assert {"slurm", "commit", "dirty", "topology"} <= set(missing)
    assert "git" in missing["commit"]
    assert found.commit is None
    assert found.slurm == {}


def test_commit_of_enclosing_checkout_is_not_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(facts.hpml_jobs, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(RuntimeError, match="no checkout of hpml_jobs"):
        facts._commit()
