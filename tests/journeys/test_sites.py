"""Habits of sites and shells on the real SLURM: SBATCH_* variables, --export=NONE, setup lines."""

import json
import shutil

import pytest

from hpml_jobs.slurm.jobs import array_ids
from tests.conftest import Program
from tests.journeys.conftest import SubmittedStudy
from tests.journeys.test_doctor_journey import RIG

pytestmark = pytest.mark.journey

CELLS = (
    "batch=16",
    "workload=digits",
    "data.limit=256",
    "protocol=lab",
    "cluster.isolate=off",
    "loader_workers=0",
    "gpus=1",
    "repeats=2",
    "minutes=20",
    "cluster.partition=main",
)
LOUD = 'cluster.setup=["export NCCL_DEBUG=INFO"]'

VARIABLES = {
    "SBATCH_EXPORT": "NONE",
    "SBATCH_TIMELIMIT": "1:0",
    "SBATCH_PARTITION": "preempt",
    "SBATCH_GRES": "gpu:v100:1",
    "SBATCH_ARRAY_INX": "0-0",
    "SBATCH_JOB_NAME": "other",
    "SBATCH_QOS": "normal",
    "SLURM_CLUSTERS": "rig",
}


@pytest.fixture(scope="module")
def studies(rig, tmp_path_factory):
    """Studies of a shell with such variables, on a site whose sbatch prints a banner, or dies."""
    folder = tmp_path_factory.mktemp("site")
    real = shutil.which("sbatch", path=rig.env["PATH"])
    (folder / "sbatch").write_text(
        "#!/bin/sh\n"
        'case "$*" in *--*) ;; *) echo "NOTE: your last job 4711 ran over its limit" ;; esac\n'
        f'case "$1" in */doctor/*) {real} "$@" > /dev/null; kill -9 $$ ;; esac\n'
        f'exec {real} "$@"\n'
    )
    (folder / "sbatch").chmod(0o755)
    environment = rig.env | VARIABLES | {"PATH": f"{folder}:{rig.env['PATH']}"}
    shell = Program(folder, environment)
    words = {
        "array": (*CELLS, LOUD, "collect_after=true"),
        "pack": (*CELLS, LOUD, "pack=true"),
        "gone": (*CELLS, "pack=true", "cluster.setup=[cd .,module load nosuch]"),
    }
    return {
        name: SubmittedStudy(shell, rig, name, *of_it) for name, of_it in words.items()
    }


@pytest.mark.parametrize("name", ["array", "pack"])
def test_variables_replace_nothing_and_steps_get_the_environment(studies, rig, name):
    study = studies[name]
    states = study.wait_until_finished()
    assert {state["outcome"] for state in states.values()} == {"ok"}, states
    records = study.records()
    assert {slug: record.attempt.job for slug, record in records.items()} == study.jobs
    facts = [record.facts for record in records.values() if record.facts]
    assert [each.nccl_environment for each in facts] == [{"NCCL_DEBUG": "INFO"}] * 2
    (job,) = array_ids(study.jobs.values())
    jobs = rig.sacct(job, "Partition", "TimelimitRaw", "AllocTRES", "JobName", "QOS")
    for job in jobs:
        assert (job["Partition"], job["JobName"], job["QOS"]) == (
            "main",
            f"hpml-{name}",
            "normal",
        )
        assert job["TimelimitRaw"] == ("20" if name == "array" else "42")
        assert "gres/gpu:rtx8000=1" in job["AllocTRES"].split(",")


def test_followup_job_runs_with_export_none(studies, rig):
    study = studies["array"]
    closing = study.answer["closing"]
    assert rig.wait_for_state(closing, {"COMPLETED"}) == ["COMPLETED"]
    assert (study.study.report / "report.md").exists()


def test_failing_line_of_setup_fails_the_cells(studies):
    study = studies["gone"]
    line = (
        "a line of cluster.setup ended the job with exit code 127: module load nosuch"
    )
    for state in study.wait_until_finished().values():
        assert (state["outcome"], state["reason"]) == (
            "failed",
            f"{line}; FAILED, exit code 127:0, job {study.jobs[state['slug']]}",
        )
    assert line in study.login.ok("logs", study.name)


def test_doctor_of_a_shell_with_export_none(studies):
    done = studies["array"].login(
        "doctor", *RIG, "workload=digits", "--json", "collect_after=true"
    )
    levels = {f["about"]: f["level"] for f in json.loads(done.stdout)["findings"]}
    assert (done.returncode, levels["node"], levels["follow-up"]) == (0, "ok", "ok")
