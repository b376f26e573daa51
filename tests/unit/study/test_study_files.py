"""Locks and files of a study folder that cannot be read, written or locked."""

import errno
import fcntl
import os
import socket

import msgspec
import pytest

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.process_times import Process
from hpml_jobs.study import files
from hpml_jobs.study import study as study_module
from hpml_jobs.study.files import hold_lock
from hpml_jobs.study.study import Study


@pytest.fixture
def study(tmp_path):
    new_study = Study(tmp_path / "outputs" / "mine")
    new_study.create()
    return new_study


def test_lock_is_refused_while_held_and_free_afterwards(tmp_path):
    path = tmp_path / "lock"
    with (
        hold_lock(path, 0),
        pytest.raises(TimeoutError, match=r"lock is held by another program"),
    ):
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


@pytest.fixture
def no_flock(monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)


def test_file_system_without_flock_is_locked_by_a_link(tmp_path, no_flock):
    path = tmp_path / "lock"
    with hold_lock(path, 0) as held:
        assert held == tmp_path / "lock.held"
        with pytest.raises(
            TimeoutError, match=rf"\(PID {os.getpid()} on {socket.gethostname()}\)"
        ):
            hold_lock(path, 0).__enter__()
        assert held.exists()
    with hold_lock(path, 0):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["lock"]


def test_link_of_an_ended_program_is_named_with_its_remedy(tmp_path, no_flock):
    held = tmp_path / "lock.held"
    ended = msgspec.structs.replace(Process.of(os.getpid()), started_ticks=1)
    held.write_bytes(msgspec.json.encode(ended))
    with pytest.raises(
        HpmlError, match=rf"{held} is left from PID .*, which ended: remove it"
    ):
        hold_lock(tmp_path / "lock", 0).__enter__()
    assert held.exists()


def test_concurrent_submission_is_refused_with_reason(study, monkeypatch):
    monkeypatch.setattr(study_module, "LOCK_S", 0)
    with (
        study.submitting(),
        pytest.raises(HpmlError, match=r"another submission to study mine is running"),
        study.submitting(),
    ):
        pass


def test_files_are_private_where_the_umask_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "UMASK", 0o077)
    files.write_whole(tmp_path / "cell.json", b"{}")
    assert (tmp_path / "cell.json").stat().st_mode & 0o777 == 0o600
