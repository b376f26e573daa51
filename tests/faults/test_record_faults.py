"""Faults around a record: full disk, truncated files, lost folders, wrong clock."""

import shutil
import subprocess
from pathlib import Path

import pytest

from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.faults.fault_study import FaultStudy
from tests.patience import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.fault, pytest.mark.long]

ONE = ("gpus=1", "batch=16")
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def test_full_disk_writes_no_record_and_gives_reason(make_study, disk, record_fault):
    case = make_study("full", *ONE, f"outputs={disk}", model="Blocking").submit()
    case.wait_until_blocked(1)
    filler = disk / "filler"
    with (
        pytest.raises(OSError, match="No space"),
        filler.open("wb", buffering=0) as file,
    ):
        while True:
            file.write(bytes(512))
    case.wait_until_finished()
    filler.unlink()
    assert case.state["outcome"] == "failed"
    assert "No space left on device: " in case.state["reason"]
    assert not list(case.study.cells_folder.glob("**/record.json"))
    record_fault(
        "disk full while the record is written",
        case,
        "1 failed",
        "the disk is the reason",
    )
    case.submit().wait_until_finished()
    record_fault("the same command after space was freed", case, "1 ok")


def remove_during_run(case, remove):
    """Remove the folder of a study while its only cell runs; return when its job has failed."""
    case.submit().wait_until_blocked(1)
    job = case.job
    remove(case.study.root)  # with it the file that the rank waits for
    assert case.rig.wait_for_state(job, {"FAILED"}) == ["FAILED"]
    assert not case.study.root.exists()  # the job has not made it again


def test_renamed_study_folder_is_not_made_again(make_study, record_fault):
    case = make_study("before", *ONE, model="Blocking")
    after = Study(case.study.root.with_name("after"))
    remove_during_run(case, lambda root: root.rename(after.root))
    assert "was deleted or renamed while the cell ran" in case.login.ok("logs", "after")
    case.study, case.name = after, "after"
    record_fault(
        "study folder renamed during the run", case, "1 failed", "it is not made again"
    )


def test_deleted_study_folder_is_not_made_again(make_study, record_fault):
    case = make_study("deleted", *ONE, model="Blocking")
    remove_during_run(case, shutil.rmtree)
    case.submit().wait_until_finished()
    record_fault(
        "study folder deleted during the run",
        case,
        "1 ok",
        "it is not made again; the same command measures the cell",
    )


def test_truncated_record_is_invalid_and_rerun(make_study, record_fault):
    case = make_study("truncated", *ONE).submit()
    (slug,) = case.wait_until_finished()
    path = case.study.cell(slug).record_json
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InvalidRecordError):
        case.study.cell(slug).read_record()
    assert "is not a whole record" in case.state["reason"]
    record_fault("record truncated", case, "1 invalid", "its numbers are in no table")
    case.submit().wait_until_finished()
    record_fault("the same command after a truncated record", case, "1 ok")


def test_lost_files_cost_their_own_cell(make_study, record_fault):
    case = make_study("lost", "-m", "gpus=1", "batch=16,32").submit()
    slug, _ = sorted(case.wait_until_finished())
    folder = case.study.cell(slug)
    folder.record_json.unlink()
    record_fault("record.json deleted", case, "2 ok", "restored from its attempt")
    _collect_read_only(case)
    record_fault("the study is read-only", case, "2 ok", "collect prints the tables")
    shutil.rmtree(folder.root)
    # for a minute after its job, a file system may not show its record yet
    wait_until(lambda: case.states()[slug]["outcome"] == "missing", "it is missing")
    record_fault(
        "a cell's folder deleted",
        case,
        "1 missing, 1 ok",
        "the cell stays in the tables",
    )
    case.login.ok("resubmit", case.name, "--missing")
    case.wait_until_finished()
    record_fault("resubmit after a cell's folder was deleted", case, "2 ok")


def _collect_read_only(case):
    """Print the tables of the study while its file system is read-only."""
    root = case.study.root
    collect = f"{case.login.python} -m hpml_jobs collect {case.name}"
    mount = f"mount --bind {root} {root} && mount -o remount,bind,ro {root}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{mount} && {collect}"],
        cwd=case.login.folder,
        env=case.login.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Read-only file system; --to FOLDER writes elsewhere" in done.stderr
    assert "of 2 cells" in done.stdout


@pytest.fixture
def skewed_study(login, rig, tmp_path):
    """Return a function that makes a study whose rank 1 has a clock one hour ahead."""
    if FAKETIME is None:
        pytest.skip("clock skew needs libfaketime: apt-get install -y faketime")
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        f'[ "$RANK" = 1 ] && export LD_PRELOAD={FAKETIME} FAKETIME=+3600s DONT_FAKE_MONOTONIC=1\n'
        f'exec {login.python} "$@"\n'
    )
    python.chmod(0o755)
    ahead = {"PYTHON_EXEC": str(python)}  # torchrun starts the workers with it
    skewed_login = Program(login.folder, login.environment | ahead, login.python)
    return lambda name, *words, **options: FaultStudy(
        skewed_login, rig, name, *words, **options
    )


def test_clock_an_hour_ahead_changes_no_measurement(skewed_study, record_fault):
    case = skewed_study(
        "skewed", "gpus=2", "nodes=2", "batch=16", "protocol=full", "probe_s=1"
    )
    ((slug, state),) = case.submit().wait_until_finished().items()
    assert state["outcome"] == "ok", state["reason"]
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert len(record.attempt.hosts) == 2
    first, second = (rank.timed.epoch_s for rank in record.ranks)
    assert 0 < first < 600
    assert 0 < second < 600
    assert record.exchange is not None
    assert 0 <= record.exchange.skew_s < 600
    record_fault(
        "clock skew: rank 1 on another node an hour ahead",
        case,
        "1 ok",
        "no time is negative",
    )


def test_first_failing_rank_is_named_despite_clock_skew(skewed_study, record_fault):
    case = skewed_study("blame", "gpus=2", "nodes=2", "batch=16", model="RaisingRank1")
    case.submit().wait_until_finished()
    assert "rank 1: ValueError: this model cannot count" in case.state["reason"]
    record_fault(
        "clock skew: rank 1 an hour ahead raises", case, "1 failed", "rank 1 is named"
    )
