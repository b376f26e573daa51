"""What is sent: arrays by shape, the scripts' text, a clean environment, an honest manifest."""

from pathlib import Path

import msgspec
import pytest

from hpml_jobs.errors import HpmlError
from hpml_jobs.study.manifest import ManifestEvent
from hpml_jobs.study.study import Study
from hpml_jobs.submit.sbatch import RefusedError, clean_environment
from hpml_jobs.submit.selection import select
from tests.unit.plans import plan_with_folder, requests_of, script_of, send_cells
from tests.unit.slurm_output import squeue_line


def sbatch_lines(text):
    return {line[10:] for line in text.splitlines() if line.startswith("#SBATCH --")}


def test_cells_of_one_shape_form_one_array(slurm):
    made = plan_with_folder("gpus=1,2,4", "batch=32,128,512")
    found = requests_of(made)
    assert [array.shape.gpus_per_node for array in found] == [1, 2, 4]
    assert [len(array.cells) for array in found] == [3, 3, 3]
    assert all(one.shape == array.shape for array in found for one in array.cells)


def test_array_order_is_random_but_seeded(slurm):
    words = ("gpus=2", "batch=1,2,4,8,16,32,64,128")
    made = plan_with_folder(*words)
    first, again = ([one.cell.batch for one in requests_of(made)[0].cells] for _ in range(2))
    assert first == again != sorted(first)
    other = plan_with_folder(*words, "seed=1")
    assert [one.cell.batch for one in requests_of(other)[0].cells] != first
    assert sorted(first) == [1, 2, 4, 8, 16, 32, 64, 128]


def test_array_is_split_at_max_array_size(slurm):
    slurm.set_cluster_name("greene", max_array_size=3)
    made = plan_with_folder("gpus=2", "repeats=8")
    assert [len(array.cells) for array in requests_of(made)] == [3, 3, 2]
    given = made._replace(cluster=msgspec.structs.replace(made.cluster, max_array_size=4))
    assert [len(array.cells) for array in requests_of(given)] == [4, 4]


def test_max_array_size_not_reported_uses_default(slurm):
    slurm.set_output("scontrol", code=1)
    made = plan_with_folder("cluster=greene", "gpus=1", "repeats=1003")
    assert [len(array.cells) for array in requests_of(made)] == [1001, 2]


def test_greene_script_requests_resources_of_cells(slurm):
    made = plan_with_folder("gpus=4", "batch=32,64", "gpu_type=v100", "study=mine")
    (array,) = requests_of(made)
    asked = sbatch_lines(script_of(made, array))
    assert {
        *("job-name=hpml-mine", "gres=gpu:v100:4", "nodes=1", "ntasks-per-node=1", "time=30"),
        *("cpus-per-task=12", "mem=128G", "requeue", "array=0-1%2", "signal=USR2@90"),
    } <= asked
    assert not {line for line in asked if line.startswith(("partition", "account", "wckey"))}
    assert f"output={made.study.slurm}/%A_%a_0_log.out" in asked


def test_srun_step_has_cpus_and_kill_on_bad_exit(slurm):
    made = plan_with_folder("gpus=2")
    (array,) = requests_of(made)
    (step,) = [line for line in script_of(made, array).splitlines() if line.startswith("srun ")]
    assert "--cpus-per-task=6 --kill-on-bad-exit=1" in step
    assert "-u -m submitit.core._submit" in step


def test_torch_and_burst_scripts_use_their_own_options(slurm):
    slurm.set_output("sinfo")
    made = plan_with_folder("cluster=torch", "cluster.account=mine", "gpus=4", "gpu_type=h200")
    (array,) = requests_of(made)
    asked = sbatch_lines(script_of(made, array))
    assert {"account=mine", "gres=gpu:4", "constraint=h200"} <= asked
    assert "comment='preemption=yes;requeue=true'" in asked
    made = plan_with_folder("cluster=burst", "cluster.account=mine", "gpus=2")
    (array,) = requests_of(made)
    asked = sbatch_lines(script_of(made, array))
    assert {"account=mine", "partition=g2-standard-24", "gres=gpu:2", "requeue"} <= asked


def test_isolated_study_uses_one_job_name_and_singleton(slurm):
    made = plan_with_folder("gpus=1,2", "repeats=2", "cluster.isolate=serial", "study=mine")
    for array in requests_of(made):
        asked = sbatch_lines(script_of(made, array))
        assert {"job-name=hpml-mine", "dependency=singleton", "array=0-1%1"} <= asked


def test_multi_node_hosts_are_resolved_outside_container(slurm):
    made = plan_with_folder(
        "gpus=8", "cluster.container.image=/i.sif", "cluster.container.overlay=/o.ext3"
    )
    (array,) = requests_of(made)
    lines = script_of(made, array).splitlines()
    hosts = 'export HPML_JOBS_HOSTS="$(scontrol show hostnames | tr "\\n" " ")"'
    step = next(line for line in lines if line.startswith("srun "))
    assert lines.index("unset PYTHONPATH") < lines.index(hosts) < lines.index(step)
    assert "singularity exec --nv --overlay /o.ext3:ro /i.sif /bin/bash -c" in step


def test_send_writes_manifest_before_and_after_sbatch(slurm):
    made = plan_with_folder("gpus=1,2", "repeats=2", "study=mine")
    jobs = send_cells(made)
    assert sorted(jobs.values()) == ["101_0", "101_1", "102_0", "102_1"]
    lines = list(made.study.lines())
    assert [line.happening for line in lines] == [ManifestEvent.SENDING, ManifestEvent.SENT] * 2
    assert lines[0].batch == lines[1].batch != lines[2].batch
    assert lines[1].jobs == ("101_0", "101_1")
    assert made.study.history().jobs == jobs
    assert len(slurm.scripts) == 2
    for folder in made.study.cells():
        assert folder.read().cell.slug == folder.slug


def test_single_cell_is_a_plain_job(slurm):
    made = plan_with_folder("gpus=2")
    assert list(send_cells(made).values()) == ["101"]
    assert not any(line.startswith("array=") for line in sbatch_lines(slurm.scripts[0]))


def test_sent_script_equals_planned_script(slurm):
    made = plan_with_folder("gpus=4", "repeats=3", "study=mine")
    (array,) = requests_of(made)
    planned = script_of(made, array)
    send_cells(made)
    assert slurm.scripts[0] == planned


def test_refusal_has_slurm_message_and_keeps_earlier_jobs(slurm):
    slurm.accept_then_refuse(
        1, "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job refused"
    )
    made = plan_with_folder("gpus=1,2,4", "repeats=2", "study=mine")
    with pytest.raises(RefusedError) as refused:
        send_cells(made)
    words = str(refused.value)
    assert words.startswith("sbatch refused 2 cells (1 node x 2 rtx8000")
    assert "AssocMaxSubmitJobLimit; error: Batch job refused; submitted before it: 2 cells" in words
    assert "Traceback" not in words
    assert [line.happening.value for line in made.study.lines()] == [
        *("sending", "sent", "sending", "refused"),
    ]
    assert len(made.study.history().jobs) == 2
    under_way = squeue_line("101_0", "PENDING", "Priority") + squeue_line(
        "101_1", "RUNNING", node="gr001"
    )
    slurm.set_output("squeue", under_way)
    again = select(made)
    assert len(again.left_out) == 2
    assert set(again.reasons.values()) == {"not submitted yet"}


def test_nothing_to_send_runs_no_sbatch(slurm):
    made = plan_with_folder("gpus=1")
    assert send_cells(made, []) == {}
    assert slurm.scripts == []
    assert not made.study.manifest.exists()


@pytest.mark.parametrize("inside", [False, True])
def test_surrounding_job_environment_is_not_inherited(slurm, monkeypatch, inside):
    leaking = {"SLURM_CPU_BIND": "x", "RANK": "3", "MASTER_ADDR": "h", "PET_NNODES": "2"}
    kept = {"SLURM_CONF": "/c", "SBATCH_ACCOUNT": "mine", "MY_OWN": "1"}
    for name, value in (leaking | kept).items():
        monkeypatch.setenv(name, value)
    if inside:
        monkeypatch.setenv("SLURM_JOB_ID", "17")
    made = plan_with_folder("gpus=1", "cluster=greene")
    send_cells(made)
    seen = slurm.environment_of_call()
    assert not (leaking.keys() | {"SLURM_JOB_ID"}) & seen.keys()
    expected = kept.keys() - ({"SBATCH_ACCOUNT"} if inside else set())
    assert expected <= seen.keys()
    assert ("SBATCH_ACCOUNT" in seen) is not inside


def test_environment_is_restored_after_a_failure(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(RuntimeError), clean_environment():
        raise RuntimeError
    with monkeypatch.context() as unchanged:
        unchanged.delenv("SLURM_JOB_ID")  # raises unless it is there again


def test_folder_unusable_for_slurm_logs_is_refused(slurm):
    made = plan_with_folder("gpus=1", "outputs=100%")
    with pytest.raises(HpmlError, match=r"SLURM cannot write logs to a path with %"):
        send_cells(made)
    other = made._replace(study=Study(Path("a\\b").resolve()))
    other.study.create()
    with pytest.raises(HpmlError, match=r"choose another outputs="):
        send_cells(other)
    assert slurm.scripts == []


def test_folder_writable_by_others_is_refused(slurm):
    made = plan_with_folder("gpus=1")
    made.study.slurm.chmod(0o777)
    with pytest.raises(HpmlError, match=r"other users can write there, .* chmod 700 it"):
        send_cells(made)
    assert slurm.scripts == []
