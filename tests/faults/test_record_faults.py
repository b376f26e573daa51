"""Faults around a record: full disk, truncated file, wrong clock."""

from pathlib import Path

import pytest

from hpml_jobs.core.validation import InvalidRecordError
from tests.conftest import Program
from tests.faults.fault_study import FaultStudy

pytestmark = [pytest.mark.journey, pytest.mark.fault, pytest.mark.long]

ONE = ("gpus=1", "batch=16")
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def test_full_disk_writes_no_record_and_gives_reason(make_study, rig, record_fault):
    disk = rig.small_disk(4)
    case = make_study("full", *ONE, f"outputs={disk}", model="Blocking").submit()
    case.wait_until_blocked(1)
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))
    case.wait_until_finished()
    filler.unlink()
    assert case.state["outcome"] == "failed"
    assert not list(case.study.cells_folder.glob("**/record.json"))
    record_fault("disk full while the record is written", case, "1 failed")
    case.submit().wait_until_finished()
    record_fault("the same command after space was freed", case, "1 ok")


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
    return lambda name, *words, **options: FaultStudy(skewed_login, rig, name, *words, **options)


def test_clock_an_hour_ahead_changes_no_measurement(skewed_study, record_fault):
    case = skewed_study("skewed", "gpus=2", "nodes=2", "batch=16", "protocol=full", "probe_s=1")
    (slug,) = case.submit().wait_until_finished()
    record = case.study.cell(slug).read_record()
    assert record is not None
    assert len(record.attempt.hosts) == 2
    first, second = (rank.timed.epoch_s for rank in record.ranks)
    assert 0 < first < 600
    assert 0 < second < 600
    assert record.exchange is not None
    assert 0 <= record.exchange.skew_s < 600
    record_fault(
        "clock skew: rank 1 on another node an hour ahead", case, "1 ok", "no time is negative"
    )


def test_first_failing_rank_is_named_despite_clock_skew(skewed_study, record_fault):
    case = skewed_study("blame", "gpus=2", "nodes=2", "batch=16", model="RaisingRank1")
    case.submit().wait_until_finished()
    assert "rank 1: ValueError: this model cannot count" in case.state["reason"]
    record_fault("clock skew: rank 1 an hour ahead raises", case, "1 failed", "rank 1 is named")
