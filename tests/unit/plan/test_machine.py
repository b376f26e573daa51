"""What this machine is; on something that looks like a cluster nothing is trained by mistake."""

import pytest

from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.plan import machine
from hpml_jobs.slurm import commands

PROFILES = {"greene": ("greene",), "torch": ("torch",)}


def test_no_sbatch_and_no_slurm_conf_is_local(laptop):
    assert machine.detect_cluster(PROFILES)[0] == "local"


@pytest.mark.parametrize("inside", [False, True])
def test_no_sbatch_with_slurm_conf_is_refused_outside_jobs(laptop, monkeypatch, inside):
    monkeypatch.setattr(machine, "cluster_sign", lambda: "SLURM_CONF")
    if inside:
        monkeypatch.setenv("SLURM_JOB_ID", "17")
        assert machine.detect_cluster(PROFILES)[0] == "local"
    else:
        with pytest.raises(UsageError, match=r"sbatch is not on PATH, but SLURM_CONF shows"):
            machine.detect_cluster(PROFILES)


def test_slurm_conf_indicates_a_cluster(working_folder, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
    assert machine.cluster_sign() == "SLURM_CONF"


def test_sbatch_without_controller_is_local(slurm, monkeypatch):
    slurm.set_output("scontrol", err="Unable to contact slurm controller", code=1)
    monkeypatch.setattr(machine, "cluster_sign", lambda: None)
    cluster, reason = machine.detect_cluster(PROFILES)
    assert cluster == "local"
    assert "no cluster behind it" in reason


@pytest.mark.parametrize(
    ("name", "profile"), [("greene", "greene"), ("TORCH", "torch"), ("hal", "slurm")]
)
def test_cluster_name_selects_profile(slurm, name, profile):
    slurm.set_cluster_name(name)
    cluster, reason = machine.detect_cluster(PROFILES)
    assert cluster == profile
    assert name in reason


def test_cluster_without_name_is_generic(slurm, monkeypatch):
    slurm.set_output("scontrol", code=1)
    monkeypatch.setattr(machine, "cluster_sign", lambda: "SLURM_CONF")
    assert machine.detect_cluster(PROFILES) == (
        "slurm",
        "SLURM's ClusterName is not reported: cluster=slurm (generic)",
    )


def test_slurm_command_failed_or_missing_gives_no_answer(slurm):
    slurm.set_output("sinfo", err="down", code=1)
    assert commands.ask_slurm("sinfo") == (1, "", "down", False)
    slurm.remove_command("sinfo")
    assert commands.ask_slurm("sinfo") == (1, "", "not on PATH", True)
    assert commands.inventory() == ()


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
