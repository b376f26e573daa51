"""What this machine knows to be wrong with jobs, on real outputs of SLURM commands."""

import pytest

from hpml_jobs.core.answers import Severity
from hpml_jobs.core.cluster import Cluster, Container, Rule
from hpml_jobs.doctor import before_queue
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand
from hpml_jobs.slurm.commands import Association
from tests.unit.plans import requests_of


def test_account_that_a_cluster_requires_is_a_problem():
    needs = Cluster(name="torch", account_rule=Rule.REQUIRED)
    finding = before_queue.check_account(needs, [Association("lab", ("normal",))])
    assert (finding.level, "add cluster.account=lab" in finding.remedy) == (
        Severity.PROBLEM,
        True,
    )


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
