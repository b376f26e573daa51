"""What this machine knows to be wrong with jobs, on real outputs of SLURM commands."""

from hpml_jobs.core.answers import Severity
from hpml_jobs.core.cluster import Cluster, Container, Rule
from hpml_jobs.doctor import before_queue
from hpml_jobs.slurm.commands import Association


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
