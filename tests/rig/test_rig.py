"""Tests of the test SLURM: it behaves like a real one and leaves no process or file."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.rig.configuration import Accounting, create_empty_database
from tests.rig.processes import alive_processes_of, is_alive
from tests.rig.slurm import Rig

_ROOT = Path(__file__).parents[2]
_DETACHED = "setsid --fork sleep 300; trap '' TERM; sleep 300"


def test_gpus_are_allocated_and_accounted(rig, tmp_path):
    seen = tmp_path / "seen"
    job = rig.sbatch(
        "--gres=gpu:rtx8000:2", script=f"echo $CUDA_VISIBLE_DEVICES > {seen}"
    )
    assert rig.wait_for_state(job, {"COMPLETED"}) == ["COMPLETED"]
    assert "gres/gpu:rtx8000=2" in rig.sacct(job, "AllocTRES")[0]["AllocTRES"].split(
        ","
    )
    # Not which two: the job of a test before may still hold the first ones.
    assert len(set(seen.read_text().strip().split(",")) & set("0123")) == 2


def test_array_runs_every_task(rig, tmp_path):
    job = rig.sbatch("--array=0-2", script=f"touch {tmp_path}/$SLURM_ARRAY_TASK_ID")
    assert rig.wait_for_state(job, {"COMPLETED"}) == ["COMPLETED"] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]


def test_sbatch_refusal_carries_slurm_message(rig):
    beyond = rig.run("sbatch", "--array=0-64", "--wrap=true")
    assert beyond.returncode == 1
    assert "Invalid job array specification" in beyond.stderr
    unwelcome = rig.run("sbatch", "--account=refused", "--wrap=true")
    assert unwelcome.returncode == 1
    assert "Account 'refused' has no allocation here" in unwelcome.stderr


def test_preempted_job_is_requeued(rig, tmp_path):
    starts = tmp_path / "starts"
    script = f"echo ${{SLURM_RESTART_COUNT:-0}} >> {starts}; [ $SLURM_RESTART_COUNT ] || sleep 300"
    low = rig.sbatch(
        "--partition=preempt", "--gres=gpu:v100:2", "--requeue", script=script
    )
    rig.wait_for_state(low, {"RUNNING"})
    # With a grace time SLURM checks only every 30 s.
    rig.run(
        "scontrol", "update", "PartitionName=preempt", "GraceTime=0"
    ).check_returncode()
    high = rig.sbatch("--gres=gpu:v100:2", script="true")
    rig.wait_for_state(high, {"COMPLETED"})
    rig.run(
        "scontrol", "update", "PartitionName=preempt", "GraceTime=2"
    ).check_returncode()
    rig.wait_for_state(low, {"COMPLETED"})
    assert starts.read_text().split() == ["0", "1"]
    attempts = [row["State"] for row in rig.sacct(low, "State", duplicates=True)]
    assert attempts == ["PREEMPTED", "COMPLETED"]


def test_restarted_daemon_keeps_its_state(tmp_path):
    with Rig(accounting=Accounting.ENFORCED) as cluster:
        job = cluster.sbatch(
            "--nodelist=gr001", script=f"sleep 3; touch {tmp_path}/ended"
        )
        cluster.wait_for_state(job, {"RUNNING"})
        for name in ("mariadbd", "slurmdbd", "slurmctld", "gr001"):
            cluster.stop_daemon(name)
            assert name not in cluster.pids
            cluster.start_daemon(name)
        assert cluster.wait_for_state(job, {"COMPLETED"}) == ["COMPLETED"]
        assert (tmp_path / "ended").exists()
        limits = cluster.run(
            "sacctmgr", "-i", "add", "qos", "tight", "MaxSubmitJobsPerUser=1"
        )
        limits.check_returncode()
        cluster.run("sacctmgr", "-i", "modify", "user", "root", "set", "qos+=tight")
        cluster.drain("gr001", "gr002", "gv001")
        held = ("sbatch", "--qos=tight", "--wrap=true")
        assert cluster.run(*held).returncode == 0
        assert "QOSMaxSubmitJobPerUserLimit" in cluster.run(*held).stderr


def test_databases_created_at_the_same_time_are_whole(tmp_path):
    """A starting mariadbd removes what another one has in a temporary folder of both."""
    folders = [tmp_path / str(number) for number in range(8)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(len(folders)) as threads:
        list(threads.map(create_empty_database, folders))
    assert all(
        (folder / "database" / "mysql" / "user.frm").exists() for folder in folders
    )


def test_stop_without_accounting_with_small_disk_leaves_nothing():
    """Without accounting and with a small disk, too, no process or mount is left."""
    with Rig(accounting=Accounting.NONE) as cluster:
        disk = cluster.small_disk(1)
        job = cluster.sbatch(script=f"head -c 2M /dev/zero > {disk}/file")
        assert cluster.wait_for_state(job, {"COMPLETED", "FAILED"}) == ["FAILED"]
        assert cluster.run("sacct").returncode == 1
    assert not cluster.folder.exists()
    assert str(disk) not in Path("/proc/mounts").read_text()


def test_stop_leaves_no_process(rig):
    with Rig() as second:  # at the same time: no clash of ports or names
        job = second.sbatch("--partition=preempt", script=_DETACHED)
        second.wait_for_state(job, {"RUNNING"})
        assert second.alive_processes_of(str(second.folder))
    assert second.alive_processes_of(str(second.folder)) == []
    assert not [name for name, pid in second.pids.items() if is_alive(pid)]
    assert not second.folder.exists()
    assert rig.run("scontrol", "ping").stdout.strip().endswith("is UP")


def test_killed_owner_leaves_no_process(rig, tmp_path):
    started = tmp_path / "started"
    command = [sys.executable, "-m", "tests.rig"]
    with subprocess.Popen(
        command, cwd=_ROOT, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        configuration = Path(owner.stdout.readline().rpartition("=")[2].strip())
        subprocess.run(
            ["sbatch", "--output=/dev/null", "--wrap", f"touch {started}; {_DETACHED}"],
            env={**rig.env, "SLURM_CONF": str(configuration)},
            check=True,
        )
        _wait_until(started.exists)
        os.kill(owner.pid, signal.SIGKILL)
    _wait_until(lambda: not alive_processes_of(str(configuration.parent)))
    assert not configuration.parent.exists()


def _wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
