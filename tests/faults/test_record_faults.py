"""Faults around a record: full disk, truncated or hostile files, lost folders, wrong clock."""

import io
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hpml_jobs.core.validation import InvalidRecordError
from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.faults.fault_study import FaultStudy

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
    assert case.rig.wait_for_state(job, {"FAILED"}, timeout_s=120) == ["FAILED"]
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


def test_cell_that_others_can_change_runs_no_code(make_study, record_fault):
    case = make_study("exchanged", *ONE, "+cluster.sbatch.hold=true").submit()
    (slug,) = case.states()
    # as a file that the group has replaced
    case.study.cell(slug).cell_json.chmod(0o666)
    case.rig.run("scontrol", "release", case.job).check_returncode()
    case.wait_until_finished()
    assert "cell.json: other users can write there" in case.state["reason"]
    record_fault(
        "others can write a cell.json", case, "1 failed", "no code of the cell is run"
    )


def test_record_of_another_study_is_not_believed(make_study, record_fault):
    case, other = (make_study(name, *ONE).submit() for name in ("believed", "foreign"))
    (slug,) = case.wait_until_finished()
    other.wait_until_finished()
    shutil.copy(other.study.cell(slug).record_json, case.study.cell(slug).record_json)
    assert "which this cell does not have" in case.state["reason"]
    record_fault(
        "record.json is that of another study",
        case,
        "1 invalid",
        "its attempt is named",
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


def link_to_zeros(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def make_fifo(path):
    path.unlink()
    os.mkfifo(path)


def lie_in_header(path):
    """Give every array a header of 8 TB."""
    header = io.BytesIO()
    facts = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, facts)
    with zipfile.ZipFile(path, "w") as file:
        for name in ("curve_loss", "curve_step_s", "curve_lr"):
            file.writestr(f"{name}.npy", header.getvalue())


def write_bomb(path):
    """Write 1 GB of zeros as 1 MB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name in ("curve_loss", "curve_step_s", "curve_lr"):
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                for _ in range(340):
                    member.write(bytes(2**20))


HOSTILE_RECORDS = {
    "a FIFO": make_fifo,
    "a link to /dev/zero": link_to_zeros,
    "nested 100,000 deep": lambda path: path.write_bytes(b'{"a":' * 100_000),
}
HOSTILE_ARRAYS = {"a lying header": lie_in_header, "a zip bomb": write_bomb}


def test_hostile_and_lost_files_cost_their_own_cell(make_study, record_fault):
    case = make_study("hostile", "-m", "gpus=1", "batch=16,32").submit()
    slug, _ = sorted(case.wait_until_finished())
    folder = case.study.cell(slug)
    for what, damage in HOSTILE_RECORDS.items():
        damage(folder.record_json)
        record_fault(
            f"record.json is {what}",
            case,
            "1 invalid, 1 ok",
            "its numbers are in no table",
        )
        folder.record_json.unlink()
        case.collect()  # it restores the record from its attempt
    folder.record_json.unlink()
    record_fault("record.json deleted", case, "2 ok", "restored from its attempt")
    for what, damage in HOSTILE_ARRAYS.items():
        damage(folder.iterations)
        record_fault(
            f"iterations.npz has {what}", case, "2 ok", "the tables are complete"
        )
    _collect_read_only(case)
    record_fault("the study is read-only", case, "2 ok", "collect prints the tables")
    shutil.rmtree(folder.root)
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
    assert "Read-only file system; hpml-jobs collect hostile --to FOLDER" in done.stderr
    assert "1-process" in done.stdout


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
