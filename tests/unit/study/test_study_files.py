"""Locks and files of a study folder that cannot be read, written or locked."""

import errno
import fcntl

import pytest

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.errors import HpmlError
from hpml_jobs.study import study as study_module
from hpml_jobs.study.files import hold_lock
from hpml_jobs.study.reader import read_from
from hpml_jobs.study.study import Study


@pytest.fixture
def study(tmp_path):
    new_study = Study(tmp_path / "outputs" / "mine")
    new_study.create()
    return new_study


def test_lock_is_refused_while_held_and_free_afterwards(tmp_path):
    path = tmp_path / "lock"
    with hold_lock(path, 0), pytest.raises(TimeoutError, match=r"lock is held by another program"):
        hold_lock(path, 0).__enter__()
    with hold_lock(path, 0):
        pass


def test_lock_waits_until_it_is_free(tmp_path):
    path = tmp_path / "lock"
    first = hold_lock(path, 0)
    first.__enter__()
    attempts = []
    flock = fcntl.flock

    def release_on_second_try(handle, operation):
        attempts.append(operation)
        if len(attempts) == 2:
            first.__exit__(None, None, None)
        flock(handle, operation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", release_on_second_try)
        with hold_lock(path, 10):
            assert len(attempts) == 2


def test_file_system_without_locks_locks_nothing(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with hold_lock(tmp_path / "lock", 0), hold_lock(tmp_path / "lock", 0):
        assert (tmp_path / "lock").exists()


def test_concurrent_submission_is_refused_with_reason(study, monkeypatch):
    monkeypatch.setattr(study_module, "LOCK_S", 0)
    with (
        study.submitting(),
        pytest.raises(HpmlError, match=r"another submission to study mine is running"),
        study.submitting(),
    ):
        pass


def test_read_from_returns_rest_or_end_of_file(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    assert read_from(path, 7) == b"789"
    assert read_from(path, -4) == b"6789"
    assert read_from(path, -100) == b"0123456789"
    assert read_from(tmp_path / "absent", 0) == b""


@pytest.mark.parametrize("text", ["{", "[]"])
def test_damaged_study_json_is_named(study, text):
    study.about.write_text(text)
    with pytest.raises(HpmlError, match=r"study.json cannot be read"):
        study.check_schema()


def test_unreadable_study_json_is_named(study):
    study.about.unlink()
    study.about.mkdir()
    with pytest.raises(HpmlError, match=r"study.json cannot be read: Is a directory"):
        study.check_schema()


def test_cluster_of_last_submission_round_trips(study):
    cluster = Cluster(name="rig")
    study.write_cluster(cluster)
    assert study.read_cluster() == cluster


def test_unreadable_cluster_file_is_named(study):
    with pytest.raises(HpmlError, match=r"study mine was never submitted"):
        study.read_cluster()
    study.cluster.write_text("{")
    with pytest.raises(HpmlError, match=r"cluster.json cannot be read"):
        study.read_cluster()


def test_unwritable_cluster_file_is_named(study):
    study.cluster.mkdir()
    with pytest.raises(HpmlError, match=r"cluster.json cannot be written: Is a directory"):
        study.write_cluster(Cluster(name="rig"))
