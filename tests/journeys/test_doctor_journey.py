"""doctor on the real SLURM: it sees what is right, what is wrong, and what a node tells."""

import getpass
import json
from typing import Any

import pytest

from tests.conftest import Program
from tests.journeys.conftest import HERE
from tests.rig import Rig

pytestmark = pytest.mark.journey

RIG = ("cluster=rig", "--config-dir", str(HERE / "conf"))


def examined(desk: Program, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit code and findings by name; of several with one name the last."""
    done = desk("doctor", *words, *RIG, "workload=digits", "--json")
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] is (done.returncode == 0)
    return done.returncode, {one["about"]: one for one in told["findings"]}


def test_doctor_working_cluster_reports_no_problem(desk: Program) -> None:
    """Neither the login node nor the diagnostic job on a node reports a problem."""
    code, found = examined(desk)
    assert (code, [one for one in found.values() if one["level"] == "problem"]) == (0, [])
    assert "2 nodes x 4 rtx8000, 1 node x 2 v100" in found["nodes"]["seen"]
    assert "MaxArraySize 64" in found["limits"]["seen"]
    assert "on gr00" in found["request"]["seen"]
    assert found["node"]["seen"].startswith("gr00")
    assert "26,154 parameters" in found["node data"]["seen"]
    assert found["clock"]["level"] == "ok"
    assert "seen.json" in {path.name for path in (desk.folder / "outputs/doctor").iterdir()}


def test_doctor_sbatch_refusal_reports_slurm_message(desk: Program) -> None:
    code, found = examined(desk, "cluster.account=refused")
    assert code == 1
    assert "has no allocation here" in found["request"]["seen"]
    assert found["request"]["remedy"] == "cluster.account=…"
    assert found["account"]["level"] == "problem"
    assert "not sent" in found["job"]["seen"]


def test_doctor_failed_node_job_reports_end_of_log(desk: Program, rig: Rig) -> None:
    code, found = examined(desk, 'cluster.setup=["echo the module is missing >&2","exit 3"]')
    assert code == 1
    assert "FAILED" in found["job"]["seen"]
    assert found["job"]["seen"].endswith("the module is missing")
    assert rig.run("squeue", "-h", "-n", "hpml-doctor").stdout == ""


def test_doctor_pending_node_job_is_cancelled_at_time_limit(desk: Program, rig: Rig) -> None:
    begin = "+cluster.sbatch.begin=now+1hour"
    code, found = examined(desk, begin, "--patience", "0.05")
    assert (code, found["job"]["level"]) == (0, "warning")
    assert "BeginTime" in found["job"]["seen"]
    assert rig.run("squeue", "-h", "-n", "hpml-doctor").stdout == ""


def test_doctor_drained_gpu_type_is_reported(desk: Program, rig: Rig) -> None:
    rig.run("scontrol", "update", "NodeName=gv001", "State=DRAIN", "Reason=bad fan")
    try:
        code, found = examined(desk, "gpu_type=v100", "--no-job")
    finally:
        rig.run("scontrol", "update", "NodeName=gv001", "State=RESUME")
    assert code == 1
    assert "gv001 drained (bad fan)" in found["nodes out"]["seen"]
    assert "no v100 is left" in found["nodes out"]["seen"]


@pytest.mark.long
def test_doctor_validation_study_reports_data_quality_checks(desk: Program) -> None:
    words = ("strategy=allreduce_flat", "data.limit=1280", "probe_s=1")
    block = desk.ok("doctor", "--gpus", "2", *words, *RIG)
    assert block.startswith("==== hpml_jobs")
    assert "1 node x 2 rtx8000" in block
    assert "1 of 1 cell measured" in block
    for check in ("closure", "counts", "messages", "profiler-messages", "replicas"):
        assert f"  pass  {check} " in block
    private = [getpass.getuser(), str(desk.folder), "gr001", "gr002"]
    assert [word for word in private if word in block] == []
