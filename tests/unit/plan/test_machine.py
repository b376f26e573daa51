"""What this machine is; on something that looks like a cluster nothing is trained by mistake."""

import sys

import pytest

from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.plan import machine
from hpml_jobs.slurm import commands
from tests.unit.fake_nvml import FakeGpu, FakeNvml
from tests.unit.plans import plan_of

PROFILES = ("auto", "local", "slurm", "ssh", "greene", "torch")


def test_no_sbatch_and_no_slurm_conf_is_local(laptop):
    assert machine.detect_cluster(PROFILES)[0] == "local"


@pytest.mark.parametrize("inside", [False, True])
def test_no_sbatch_with_slurm_conf_is_refused_outside_jobs(laptop, monkeypatch, inside):
    monkeypatch.setattr(machine, "cluster_sign", lambda: "SLURM_CONF")
    if inside:
        monkeypatch.setenv("SLURM_JOB_ID", "17")
        assert machine.detect_cluster(PROFILES)[0] == "local"
    else:
        with pytest.raises(
            UsageError, match=r"sbatch is not on PATH, but SLURM_CONF shows"
        ):
            machine.detect_cluster(PROFILES)


def test_sbatch_without_controller_is_local(slurm, monkeypatch):
    slurm.set_output("scontrol", err="Unable to contact slurm controller", code=1)
    monkeypatch.setattr(machine, "cluster_sign", lambda: None)
    cluster, reason = machine.detect_cluster(PROFILES)
    assert cluster == "local"
    assert "is in no SLURM cluster" in reason


@pytest.mark.parametrize(
    ("name", "profile"),
    [("greene", "greene"), ("TORCH", "torch"), ("hal", "slurm")],
)
def test_cluster_name_selects_profile(slurm, name, profile):
    slurm.set_cluster_name(name)
    cluster, reason = machine.detect_cluster(PROFILES)
    assert cluster == profile
    assert name in reason


def test_hosts_come_from_script_or_scontrol(slurm, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gr[001-002]")
    slurm.set_output("scontrol", "gr001\ngr002\n")
    assert commands.hosts_of_job() == ["gr001", "gr002"]
    assert slurm.calls("scontrol") == ["show hostnames gr[001-002]"]
    monkeypatch.setenv("HPML_JOBS_HOSTS", "gv001 gv002 ")
    assert commands.hosts_of_job() == ["gv001", "gv002"]


def test_unknown_hosts_are_an_error(slurm, monkeypatch):
    with pytest.raises(HpmlError, match=r"the job's hosts are unknown"):
        commands.hosts_of_job()
    monkeypatch.setenv("HPML_JOBS_HOSTS", "gr001;reboot")
    with pytest.raises(HpmlError, match=r"these are not host names"):
        commands.hosts_of_job()


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        (None, ("A100", "A100", "T4")),
        ("2", ("T4",)),
        ("GPU-2,0", ("T4", "A100")),
    ],
)
def test_local_gpus_are_those_that_cuda_sees(monkeypatch, setting, names):
    gpus = [FakeGpu(uuid=f"GPU-{n}", name="A100" if n < 2 else "T4") for n in range(3)]
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(*gpus))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert machine.local_gpus.__wrapped__() == names


@pytest.mark.parametrize(
    ("variable", "gpus", "is_refused"),
    [
        ("TORCH_DISTRIBUTED_DEBUG=DETAIL", 1, False),
        ("TORCH_DISTRIBUTED_DEBUG=detail", 2, True),
    ],
)
def test_local_cells_refuse_variables_that_slow_them(
    laptop, monkeypatch, variable, gpus, is_refused
):
    name, _, value = variable.partition("=")
    monkeypatch.setenv(name, value)
    if is_refused:
        with pytest.raises(
            UsageError, match=f"{variable}: every collective .* unset it"
        ):
            plan_of("cluster=local", f"gpus={gpus}")
    else:
        plan_of("cluster=local", f"gpus={gpus}")
