"""Data sets on the login node: counted, downloaded by a worker process, and what can fail."""

import subprocess

import pytest

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.plan import data
from tests.unit.builders import DIGITS

CLUSTER = Cluster(name="local")


def replace_worker(monkeypatch, code=0, stdout="", stderr=""):
    """Let the worker process end like this; return the commands that were started."""
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, code, stdout, stderr)

    monkeypatch.setattr(data.subprocess, "run", run)
    return commands


def test_prepare_returns_counts_of_last_line(monkeypatch, tmp_path):
    commands = replace_worker(
        monkeypatch, stdout='a note\n{"images": 7, "parameters": 11}\n'
    )
    counts = data.prepare(DIGITS, tmp_path, CLUSTER)
    assert (counts.images, counts.parameters) == (7, 11)
    assert commands[0][1:3] == ["-m", "hpml_jobs.worker.prepare"]


@pytest.mark.parametrize(
    ("code", "stderr", "reason"),
    [
        (1, "a warning\nno space left\n\n", "digits: no space left"),
        (9, "", "digits: exit code 9"),
        (data.NO_TORCH_CODE, "Traceback", "digits: this Python has no torch"),
    ],
)
def test_prepare_failure_names_reason(monkeypatch, tmp_path, code, stderr, reason):
    replace_worker(monkeypatch, code=code, stderr=stderr)
    with pytest.raises(HpmlError) as failed:
        data.prepare(DIGITS, tmp_path, CLUSTER)
    assert str(failed.value).startswith(reason)
    assert "copy the data set" not in str(failed.value)


def test_unreadable_output_of_prepare_is_shown(monkeypatch, tmp_path):
    replace_worker(monkeypatch, stdout="no JSON")
    with pytest.raises(HpmlError, match=r"digits: prepare printed"):
        data.prepare(DIGITS, tmp_path, CLUSTER)
