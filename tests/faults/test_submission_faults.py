"""Faults at submission: sbatch says no, the login process dies, two people send at once."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_jobs.study.manifest import ManifestEvent
from tests.faults.conftest import desk_for
from tests.faults.fault_study import Case, stand_in, wait_until
from tests.rig import Accounting, Rig, missing

pytestmark = [pytest.mark.journey, pytest.mark.fault]

DYING = Path(__file__).with_name("killed_login.py")
ONE = ("gpus=1", "batch=16")


def happenings(case: Case) -> list[str]:
    lines = case.study.manifest.read_text().splitlines()
    return [json.loads(line)["happening"] for line in lines]


@pytest.mark.long
def test_refused_sbatch_reports_slurm_message(make, ledger) -> None:
    case: Case = make("refused", *ONE)
    done = case.desk(*case.words, "cluster.account=refused")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "sbatch refused 1 cell (1 node x 1 rtx8000" in last
    assert "has no allocation here" in last
    assert happenings(case) == [ManifestEvent.SENDING, ManifestEvent.REFUSED]
    assert "has no allocation here" in case.state["reason"]
    ledger("sbatch refuses the account", case, "1 missing", "SLURM's message, exit code 1")
    assert list(case.asked().values()) == ["not sent yet"]  # without the fault it would be


def test_login_killed_before_manifest_line_loses_no_cell(make, ledger) -> None:
    case: Case = make("orphan", *ONE, model="Held")
    command = [case.desk.python, str(DYING), *case.words]
    killed = subprocess.run(
        command,
        cwd=case.desk.folder,
        env=case.desk.environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert happenings(case) == [ManifestEvent.SENDING]
    case.wait_held(1)  # SLURM has the job, the manifest has not
    assert case.state["outcome"] == "running"  # its attempt names the job
    assert list(case.asked().values()) == ["left out: running"]
    case.finish()
    ledger("login process killed between sbatch and the manifest's line", case, "1 ok")


@pytest.mark.long
def test_login_killed_during_sbatch_loses_no_cell(make, rig: Rig, ledger) -> None:
    case: Case = make("halfway", *ONE)
    folder = case.desk.folder / "killer"
    real = shutil.which("sbatch", path=rig.env["PATH"])
    stand_in(folder, f'{real} "$@" && kill -9 $PPID')
    sending = case.begin(PATH=f"{folder}:{rig.env['PATH']}")
    sending.communicate(timeout=60)
    assert sending.returncode == -signal.SIGKILL
    assert case.state["outcome"] in ("pending", "running")  # found by where it writes
    assert {why.partition(":")[0] for why in case.asked().values()} == {"left out"}
    case.finish()  # the job gives up: what it was to run was never laid down
    ledger("login process killed inside sbatch", case, "1 failed", "the job id is recovered")
    case.send().finish()
    ledger("the same command after sbatch was interrupted", case, "1 ok")


@pytest.mark.long
def test_concurrent_submit_and_collect_of_one_study_succeed(make, ledger) -> None:
    case: Case = make("shared", "-m", "gpus=1", "batch=16,32")
    both = [case.begin(), case.begin()]
    told = [person.communicate(timeout=120) for person in both]
    assert [person.returncode for person in both] == [0, 0], told
    case.finish()
    collecting = [
        subprocess.Popen(
            [case.desk.python, "-m", "hpml_jobs", "collect", case.name, "--json"],
            cwd=case.desk.folder,
            env=case.desk.environment,
            stdout=subprocess.PIPE,
        )
        for _ in both
    ]
    reports = [json.loads(person.communicate(timeout=120)[0]) for person in collecting]
    assert reports[0] == reports[1]
    ledger(
        "two users submit and collect one study at the same time",
        case,
        "2 ok",
        "both reports are equal",
    )
    attempts = [len(list(cell.attempts.glob("*.r*"))) for cell in case.study.cells()]
    assert attempts == [1, 1]  # no cell is measured twice


@pytest.mark.long
def test_submit_from_inside_a_job_succeeds(make, rig: Rig, ledger) -> None:
    case: Case = make("inside", "gpus=2", "batch=16")
    words = " ".join(f"'{word}'" for word in [case.desk.python, "-m", "hpml_jobs", *case.words])
    outer = rig.sbatch(
        f"--chdir={case.desk.folder}",
        *("--gres=gpu:v100:1", "--cpus-per-task=1", "--mem=2G"),
        script=f"export SLURM_CPU_BIND=cores MASTER_PORT=1 WORLD_SIZE=7; {words}",
    )
    assert rig.wait_for_state(outer, {"COMPLETED", "FAILED"}, 120) == ["COMPLETED"]
    (slug,) = case.finish()
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert record.facts is not None
    assert record.attempt.job != outer
    assert "cores" not in record.facts.slurm.values()
    assert record.facts.slurm["SLURM_JOB_ID"] != outer
    ledger("submission from inside a job", case, "1 ok", "the outer job has no effect")


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory):
    """A study on a SLURM that lets a user have two jobs under qos=tight."""
    if reason := missing():
        pytest.skip(reason)
    with Rig(accounting=Accounting.ENFORCED) as cluster:
        for words in (
            ("add", "qos", "tight", "MaxSubmitJobsPerUser=2"),
            ("modify", "user", "root", "set", "qos+=tight"),
        ):
            cluster.run("sacctmgr", "-i", *words).check_returncode()
        there = desk_for(cluster, tmp_path_factory.mktemp("limited"))
        yield lambda name, *words, **options: Case(there, cluster, name, *words, **options)


@pytest.mark.long
def test_qos_submit_limit_refused_cells_can_be_resubmitted(limited, ledger) -> None:
    words = ("-m", "gpus=1,2", "batch=16,32", "cluster.qos=tight")
    case: Case = limited("tight", *words, model="Held")
    done = case.desk(*case.words)
    assert done.returncode == 1
    assert "QOSMaxSubmitJobPerUserLimit" in done.stderr
    wait_until(lambda: happenings(case)[-1] == ManifestEvent.REFUSED, "it is written down")
    first = case.finish()
    assert sorted(s["outcome"] for s in first.values()) == ["missing", "missing", "ok", "ok"]
    assert [s["reason"] for s in first.values() if s["outcome"] == "missing"] == [
        s["reason"] for s in first.values() if "QOSMaxSubmitJobPerUserLimit" in s["reason"]
    ]
    ledger("sbatch refuses: QOS submit limit", case, "2 missing, 2 ok", "SLURM's message")
    case.send().finish()
    ledger("the same command after the QOS submit limit", case, "4 ok")


@pytest.mark.long
def test_missing_or_inactive_partition_is_refused(limited, ledger) -> None:
    case: Case = limited("nowhere", *ONE)
    done = case.desk(*case.words, "cluster.partition=nowhere")
    assert done.returncode == 2
    assert "partition nowhere does not exist here: main, preempt" in done.stderr
    assert not case.study.root.exists()
    closed = ("scontrol", "update", "PartitionName=preempt")
    case.rig.run(*closed, "State=INACTIVE").check_returncode()
    done = case.desk(*case.words, "cluster.partition=preempt")
    case.rig.run(*closed, "State=UP").check_returncode()
    assert done.returncode == 1
    assert "sbatch refused 1 cell" in done.stderr
    assert "artition" in case.state["reason"]
    ledger("sbatch refuses: bad partition", case, "1 missing", "exit code 2, or SLURM's message")


@pytest.mark.long
def test_array_above_cluster_limit_is_refused_or_split(limited, ledger) -> None:
    case: Case = limited("large", "-m", "gpus=1", "batch=range(1,67)")
    done = case.desk(*case.words, "cluster.max_array_size=100")
    assert done.returncode == 1
    assert "sbatch refused 66 cells" in done.stderr
    assert "Invalid job array specification" in done.stderr
    ledger("sbatch refuses: array too large", case, "66 missing", "SLURM's message")
    case.desk.ok(*case.words, "+cluster.sbatch.hold=true")  # split at the cluster's own limit
    assert {state["outcome"] for state in case.states().values()} == {"pending"}
    case.rig.run("scancel", "--me").check_returncode()
