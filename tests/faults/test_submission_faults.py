"""Faults at submission: sbatch refuses, the login process dies, two users submit at once."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from hpml_jobs.study.manifest import ManifestEvent
from tests.faults.conftest import login_program
from tests.faults.fault_study import FaultStudy, write_fake_sbatch
from tests.patience import PATIENCE_S, wait_until
from tests.rig import Accounting, Rig, missing_requirement

pytestmark = [pytest.mark.journey, pytest.mark.fault]

ONE = ("gpus=1", "batch=16")
TWO_ARRAYS = ("-m", "loader_workers=0,1", *ONE)  # their cells request other CPUs


def manifest_events(case):
    lines = case.study.manifest.read_text().splitlines()
    return [json.loads(line)["happening"] for line in lines]


@pytest.mark.long
def test_login_killed_during_sbatch_loses_no_cell(make_study, rig, record_fault):
    case = make_study("halfway", *ONE)
    folder = case.login.folder / "killer"
    real = shutil.which("sbatch", path=rig.env["PATH"])
    write_fake_sbatch(folder, f'{real} "$@" && kill -9 $PPID')
    sending = case.start_submit(PATH=f"{folder}:{rig.env['PATH']}")
    sending.communicate(timeout=PATIENCE_S)
    assert sending.returncode == -signal.SIGKILL
    # recovered from its script
    assert case.state["outcome"] in (
        "pending",
        "running",
    )
    assert {why.partition(":")[0] for why in case.planned_actions().values()} == {
        "left out"
    }
    case.wait_until_finished()
    record_fault(
        "login process killed inside sbatch",
        case,
        "1 ok",
        "the job id is recovered, and the job runs",
    )


def test_ctrl_c_during_submission_submits_no_cell_twice(make_study, rig, record_fault):
    case = make_study("interrupted", *TWO_ARRAYS)
    folder = case.login.folder / "slow-sbatch"
    real = shutil.which("sbatch", path=rig.env["PATH"])
    write_fake_sbatch(folder, f'touch {folder}/called; sleep 1; exec {real} "$@"')
    sending = case.start_submit(PATH=f"{folder}:{rig.env['PATH']}")
    wait_until((folder / "called").exists, "sbatch is called")
    os.killpg(sending.pid, signal.SIGINT)  # as a terminal does
    _, complaint = sending.communicate(timeout=PATIENCE_S)
    assert sending.returncode == 130
    last = complaint.strip().splitlines()[-1]
    assert last.startswith("hpml-jobs: interrupted; submitted: 1 cell (SLURM ")
    assert "not submitted: single-1proc-b16" in last
    assert "to submit the rest: hpml-jobs -m loader_workers=0,1" in last
    assert manifest_events(case) == [ManifestEvent.SENDING, ManifestEvent.SENT]
    case.submit().wait_until_finished()
    assert attempts_of(case) == [1, 1]
    record_fault(
        "Ctrl-C during sbatch", case, "2 ok", "the message says what was submitted"
    )


def attempts_of(case):
    """The number of attempts of each cell."""
    return [len(list(cell.attempts.glob("*.r*"))) for cell in case.study.cells()]


@pytest.mark.long
def test_full_disk_during_submission_loses_no_cell(make_study, rig, disk, record_fault):
    held = "+cluster.sbatch.hold=true"
    case = make_study("no-space", "-m", "gpus=1,2", "batch=16", held, f"outputs={disk}")
    folder, filler = case.login.folder / "filling-sbatch", disk / "filler"
    real = shutil.which("sbatch", path=rig.env["PATH"])
    write_fake_sbatch(
        folder, f'{real} "$@"; dd if=/dev/zero of={filler} bs=512 2> /dev/null; true'
    )
    sending = case.start_submit(PATH=f"{folder}:{rig.env['PATH']}")
    _, complaint = sending.communicate(timeout=PATIENCE_S)
    filler.unlink()
    assert sending.returncode == 1
    last = complaint.strip().splitlines()[-1]
    assert (
        "cannot be written: No space left on device; submitted: 1 cell (SLURM " in last
    )
    assert "not submitted: ddp-2proc-b16" in last
    assert manifest_events(case) == [ManifestEvent.SENDING, ManifestEvent.SENT]
    case.submit()
    for state in case.states().values():
        rig.run("scontrol", "release", state["job"]).check_returncode()
    case.wait_until_finished()
    assert attempts_of(case) == [1, 1]
    record_fault(
        "disk full during submission",
        case,
        "2 ok",
        "the message says what was submitted",
    )


def test_closed_pipe_during_submission_loses_no_cell(make_study, record_fault):
    case = make_study("piped", *TWO_ARRAYS)
    sending = case.start_submit()
    sending.stdout.close()  # as `| head -0` does
    assert sending.wait(PATIENCE_S) == 0, sending.stderr.read()
    sending.stderr.close()
    case.wait_until_finished()
    assert attempts_of(case) == [1, 1]
    record_fault("the reader of the output leaves during submission", case, "2 ok")


@pytest.mark.long
def test_sbatch_that_waits_longer_than_its_terminal_is_not_repeated(
    make_study, record_fault
):
    case = make_study("patient", *ONE)
    folder = case.login.folder / "busy-sbatch"
    real = shutil.which("sbatch", path=case.login.environment["PATH"])
    until_asked = f"until [ -e {folder}/asked ]; do sleep 0.1; done"
    write_fake_sbatch(folder, f'touch {folder}/called; {until_asked}; exec {real} "$@"')
    sending = case.start_submit(PATH=f"{folder}:{case.login.environment['PATH']}")
    wait_until((folder / "called").exists, "sbatch is called")
    os.kill(sending.pid, signal.SIGHUP)  # sbatch has a session of its own
    sending.communicate(timeout=PATIENCE_S)
    wait_until(
        lambda: "has waited for SLURM" in case.state["reason"], "more than LOCK_S"
    )
    case.submit()  # sends nothing
    assert manifest_events(case) == [ManifestEvent.SENDING]
    (folder / "asked").touch()
    wait_until(lambda: case.state["job"], "sbatch ends, and its job is found")
    case.wait_until_finished()
    assert attempts_of(case) == [1]
    record_fault(
        "terminal closed while sbatch waits for SLURM", case, "1 ok", "one job"
    )


WITHOUT_FLOCK = """\
import errno, fcntl, sys
def flock(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")
fcntl.flock = flock
from hpml_jobs.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.long
def test_concurrent_submissions_without_flock_send_each_cell_once(
    make_study, record_fault
):
    case = make_study("unlocked", "-m", "gpus=1,2", "batch=16")
    senders = [
        subprocess.Popen(
            [case.login.python, "-c", WITHOUT_FLOCK, *case.words],
            cwd=case.login.folder,
            env=case.login.environment,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    notes = [sender.communicate(timeout=PATIENCE_S)[1] for sender in senders]
    assert [sender.returncode for sender in senders] == [0, 0, 0], notes
    assert all(b"has no flock" in note for note in notes)
    case.wait_until_finished()
    assert attempts_of(case) == [1, 1]
    record_fault(
        "3 submissions at once on a file system without flock",
        case,
        "2 ok",
        "each cell is sent once",
    )


@pytest.mark.long
def test_job_of_another_name_is_not_the_cells(make_study, rig, record_fault):
    """As after a restart of the job ids, or in a study that was copied from another cluster."""
    case = make_study("copied", *ONE, model="Blocking").submit()
    case.wait_until_blocked(1)
    rig.run("scancel", case.job).check_returncode()
    case.wait_until_finished()
    other = rig.sbatch("--job-name=unrelated", script="sleep 3600")
    rig.wait_for_state(other, {"RUNNING"})
    manifest = case.study.manifest
    (old,) = case.study.history().sent
    text = manifest.read_text().replace(f'"jobs":["{old}"]', f'"jobs":["{other}"]')
    # ours was in another year
    manifest.write_text(re.sub(r'"time":"\d{4}', '"time":"2025', text))
    shutil.rmtree(next(case.study.cells_folder.iterdir()) / "attempts")
    assert case.state["outcome"] == "missing"
    assert f"job {other} is another job here" in case.state["reason"]
    case.login.ok("cancel", case.name)
    assert rig.wait_for_state(other, {"RUNNING"}) == ["RUNNING"]
    rig.run("scancel", other).check_returncode()
    record_fault(
        "the job id of a cell is another job's",
        case,
        "1 missing",
        "it is not cancelled",
    )


@pytest.mark.long
def test_concurrent_submit_and_collect_of_one_study_succeed(make_study, record_fault):
    case = make_study("shared", "-m", "gpus=1", "batch=16,32")
    both = [case.start_submit(), case.start_submit()]
    outputs = [process.communicate(timeout=PATIENCE_S) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    case.wait_until_finished()
    collecting = [
        subprocess.Popen(
            [case.login.python, "-m", "hpml_jobs", "collect", case.name, "--json"],
            cwd=case.login.folder,
            env=case.login.environment,
            stdout=subprocess.PIPE,
        )
        for _ in both
    ]
    reports = [
        json.loads(process.communicate(timeout=PATIENCE_S)[0]) for process in collecting
    ]
    assert reports[0] == reports[1]
    record_fault(
        "two users submit and collect one study at the same time",
        case,
        "2 ok",
        "both reports are equal",
    )
    assert attempts_of(case) == [1, 1]  # no cell is measured twice


@pytest.mark.long
def test_submit_from_inside_a_job_succeeds(make_study, rig, record_fault):
    case = make_study("inside", "gpus=2", "batch=16")
    words = " ".join(
        f"'{word}'" for word in [case.login.python, "-m", "hpml_jobs", *case.words]
    )
    outer = rig.sbatch(
        f"--chdir={case.login.folder}",
        *("--gres=gpu:v100:1", "--cpus-per-task=1", "--mem=2G"),
        script=f"export SLURM_CPU_BIND=cores MASTER_PORT=1 WORLD_SIZE=7; {words}",
    )
    assert rig.wait_for_state(outer, {"COMPLETED", "FAILED"}) == ["COMPLETED"]
    (slug,) = case.wait_until_finished()
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert record.facts is not None
    assert record.attempt.job != outer
    assert "cores" not in record.facts.slurm.values()
    assert record.facts.slurm["SLURM_JOB_ID"] != outer
    record_fault(
        "submission from inside a job", case, "1 ok", "the outer job has no effect"
    )


@pytest.fixture(scope="module")
def limited_study(tmp_path_factory):
    """Return a function that makes a study on a SLURM with a limit of two jobs for qos=tight."""
    if reason := missing_requirement():
        pytest.skip(reason)
    with Rig(accounting=Accounting.ENFORCED) as cluster:
        for words in (
            ("add", "qos", "tight", "MaxSubmitJobsPerUser=2"),
            ("modify", "user", "root", "set", "qos+=tight"),
        ):
            cluster.run("sacctmgr", "-i", *words).check_returncode()
        login = login_program(cluster, tmp_path_factory.mktemp("limited"))
        yield lambda name, *words, **options: FaultStudy(
            login, cluster, name, *words, **options
        )


@pytest.mark.long
def test_qos_submit_limit_refused_cells_can_be_resubmitted(limited_study, record_fault):
    words = ("-m", "gpus=1,2", "batch=16,32", "+cluster.sbatch.qos=tight")
    case = limited_study("tight", *words, model="Blocking")
    done = case.login(*case.words)
    assert done.returncode == 1
    assert "QOSMaxSubmitJobPerUserLimit" in done.stderr
    wait_until(
        lambda: manifest_events(case)[-1] == ManifestEvent.REFUSED,
        "the refusal is in the manifest",
    )
    first = case.wait_until_finished()
    assert sorted(s["outcome"] for s in first.values()) == [
        "missing",
        "missing",
        "ok",
        "ok",
    ]
    assert [s["reason"] for s in first.values() if s["outcome"] == "missing"] == [
        s["reason"]
        for s in first.values()
        if "QOSMaxSubmitJobPerUserLimit" in s["reason"]
    ]
    record_fault(
        "sbatch refuses: QOS submit limit", case, "2 missing, 2 ok", "SLURM's message"
    )
    case.submit().wait_until_finished()
    record_fault("the same command after the QOS submit limit", case, "4 ok")


@pytest.mark.long
def test_array_above_cluster_limit_is_split(limited_study):
    case = limited_study("large", "-m", "gpus=1", "batch=range(1,67)")
    case.login.ok(*case.words, "+cluster.sbatch.hold=true")
    assert {state["outcome"] for state in case.states().values()} == {"pending"}
    case.rig.run("scancel", "--me").check_returncode()
