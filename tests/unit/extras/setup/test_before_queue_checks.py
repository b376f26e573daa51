"""What this machine knows to be wrong with jobs, on real outputs of SLURM commands."""

import msgspec
import pytest

from hpml_jobs.core.answers import Severity
from hpml_jobs.core.cluster import Cluster, Container, Launcher
from hpml_jobs.extras.setup import before_queue
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand
from hpml_jobs.slurm.commands import Association
from tests.unit.plans import requests_of

GREENE = Cluster(name="greene", gpu_types={"rtx8000": 4, "v100": 4})
LAB = Association("lab", ("normal",), limits={"MaxJobs": "8", "MaxSubmit": "4"})


def by_name(findings):
    return {finding.about: finding for finding in findings}


def test_job_python_versions_are_checked(tmp_path):
    absent = str(tmp_path / "python")
    greene = Cluster(name="greene", python=absent)
    (finding,) = before_queue.check_python(greene, tmp_path)
    assert finding.level is Severity.PROBLEM
    with_setup = msgspec.structs.replace(greene, setup=("module load python",))
    (finding,) = before_queue.check_python(with_setup, tmp_path)
    assert (finding.level, finding.remedy) == (
        Severity.WARNING,
        before_queue.NODES_MAY_DIFFER,
    )
    local = Cluster(name="local", launcher=Launcher.LOCAL)
    ours = by_name(before_queue.check_python(local, tmp_path))
    assert ours["versions"].level is Severity.OK
    assert "torchvision" in ours["versions"].seen
    other_version = before_queue._check_versions(
        {"python": "3.12.1", "hpml-jobs": "0.0.1", "torch": "2.7.1"},
        "there",
        is_sure=True,
    )
    assert other_version.level is Severity.PROBLEM
    assert "0.0.1" in other_version.seen


def test_disk_of_this_machine_alone_proves_nothing_of_nodes(tmp_path, monkeypatch):
    """What only this machine lacks is a warning; on a shared file system it is a problem."""
    absent = Cluster(name="greene", container=Container(image="/opt/no.sif"))
    for place, type_name, level in (
        ("/opt", "xfs", Severity.WARNING),
        ("/opt", "nfs4", Severity.PROBLEM),
        ("/other", "xfs", Severity.PROBLEM),
    ):
        table = f"disk / ext4 rw 0 0\nhere {place} {type_name} rw 0 0\n"
        monkeypatch.setattr(before_queue, "mounts", lambda table=table: table)
        assert before_queue.check_container(absent, tmp_path)[0].level is level


@pytest.mark.parametrize("before_using", ["", " a", " on cluster rig a"])
def test_sbatch_test_only_answer_is_reported(slurm, before_using):
    """From 25.11 on sbatch prints an "a", and the cluster if it reports it."""
    words = ["cluster=greene", "workload=synthetic"]
    plan = make_plan(expand(words, multirun=False), fetch=False, notify=lambda _: None)
    (batch,) = requests_of(plan)
    slurm.set_output(
        "sbatch",
        err=f"sbatch: Job 9 to start at 2026-11-21T16:43:52{before_using} using 3 processors on "
        "nodes gr001 in partition main\n",
    )
    assert (
        "could start at 2026-11-21T16:43:52 on gr001 (main)"
        in before_queue.check_request(plan, batch).seen
    )
    slurm.set_output(
        "sbatch",
        err="allocation failure: Invalid account or account/partition combination specified\n",
        code=1,
    )
    refused = before_queue.check_request(plan, batch)
    assert (refused.level, refused.remedy) == (Severity.PROBLEM, "set cluster.account=")
