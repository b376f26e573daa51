"""doctor on the real SLURM: findings about the login node, the cluster and a node."""

import getpass
import json
import re

import pytest

from tests.conftest import Program
from tests.journeys.conftest import HERE

pytestmark = pytest.mark.journey

RIG = ("cluster=rig", "--config-dir", str(HERE / "conf"))


def run_doctor(login, *words):
    """Return the exit code and the findings by subject; of several findings, the last."""
    done = login("doctor", *words, *RIG, "workload=digits", "--json")
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    assert answer["ok"] is (done.returncode == 0)
    return done.returncode, {
        finding["about"]: finding for finding in answer["findings"]
    }


def test_doctor_working_cluster_reports_no_problem(login):
    """Neither the login node nor the diagnostic job on a node reports a problem."""
    code, findings = run_doctor(login)
    assert (code, [f for f in findings.values() if f["level"] == "problem"]) == (0, [])
    assert "2 nodes x 4 rtx8000, 1 node x 2 v100" in findings["nodes"]["seen"]
    assert "on gr00" in findings["request"]["seen"]
    assert findings["node"]["seen"].startswith("gr00")
    assert "26,154 parameters" in findings["node data"]["seen"]
    assert findings["clock"]["level"] == "ok"
    assert "seen.json" in {
        path.name for path in (login.folder / "outputs/doctor").iterdir()
    }


def test_init_profile_plans_the_first_study(rig, tmp_path):
    """The file that init writes on this cluster is enough to plan a study without other keys."""
    user = Program(tmp_path, rig.env)
    shown = user.ok("init")
    assert 'gpu_type: "rtx8000"  # GPUs: 8 rtx8000, 2 v100\n' in shown
    assert 'partition: "main"  # ' in shown
    assert 'account: "root"  # ' in shown
    plan = user.ok("plan", "-m", "gpus=1,2", "batch=32", "--all")
    assert "--gres=gpu:rtx8000:2" in plan
    assert "--account=root" in plan
    assert user("init").returncode == 1


def test_doctor_sbatch_refusal_reports_slurm_message(login):
    code, findings = run_doctor(login, "cluster.account=refused")
    assert code == 1
    assert "has no allocation here" in findings["request"]["seen"]
    assert findings["request"]["remedy"] == "set cluster.account="
    assert findings["account"]["level"] == "problem"
    assert "not submitted" in findings["job"]["seen"]


def test_doctor_failed_node_job_reports_end_of_log(login, rig):
    code, findings = run_doctor(
        login, 'cluster.setup=["echo the module is missing >&2","exit 3"]'
    )
    assert code == 1
    assert "FAILED" in findings["job"]["seen"]
    assert findings["job"]["seen"].endswith(
        "cluster.setup ended the job with exit code 3: exit 3"
    )
    assert rig.run("squeue", "-h", "-n", "hpml-doctor").stdout == ""


def test_doctor_pending_node_job_is_cancelled_at_time_limit(login, rig):
    begin = "+cluster.sbatch.begin=now+1hour"
    code, findings = run_doctor(login, begin, "--patience", "0.05")
    assert (code, findings["job"]["level"]) == (0, "warning")
    assert "BeginTime" in findings["job"]["seen"]
    assert rig.run("squeue", "-h", "-n", "hpml-doctor").stdout == ""


def test_doctor_node_that_does_not_share_the_folder_is_named(rig, tmp_path):
    """The folder of the files is absent on the node; then it is there, with other files."""
    login, folder = Program(tmp_path, rig.env), tmp_path / "outputs/doctor/slurm"
    with rig.hidden("gv001", tmp_path):
        for _ in range(2):
            code, findings = run_doctor(login, "gpu_type=v100")
            seen = findings["shared folder"]["seen"]
            assert (code, seen) == (1, f"gv001 does not see {folder}")
            rig.run(
                "srun", "-w", "gv001", "mkdir", "-p", str(folder)
            ).check_returncode()


@pytest.mark.long
def test_doctor_validation_study_reports_data_quality_checks(login):
    words = ("strategy=allreduce_flat", "data.limit=1280", "probe_s=1")
    done = login("doctor", "--gpus", "2", *words, *RIG)
    block = done.stdout
    failed = set(re.findall(r"^  fail  (\S+)", block, re.MULTILINE))
    assert failed <= {"disturbed"}, block  # this machine may be busy
    assert done.returncode == len(failed), done.stderr
    assert block.startswith("==== hpml_jobs")
    assert "1 node x 2 rtx8000" in block
    assert "1 of 1 cell measured" in block
    for check in ("closure", "messages", "replicas"):
        assert f"  pass  {check} " in block
    private = [getpass.getuser(), str(login.folder), "gr001", "gr002"]
    assert [word for word in private if word in block] == []
