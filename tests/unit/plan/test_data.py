"""Data sets on the login node: counted, downloaded by a worker process, and what can fail."""

import subprocess

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError, UsageError
from hpml_jobs.plan import data
from tests.unit.builders import DIGITS, RESNET

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
        monkeypatch, stdout='a note\n{"images": 7, "parameters": 11, "effective": 9}\n'
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


def test_failed_download_names_where_to_copy_the_data(monkeypatch, tmp_path):
    replace_worker(monkeypatch, code=1, stderr="no route to host")
    with pytest.raises(HpmlError, match=r"no route to host; .*copy the data set into"):
        data.prepare(DIGITS, tmp_path, CLUSTER, download=True)


@pytest.mark.parametrize("stdout", ["no JSON", "[]"])
def test_unreadable_output_of_prepare_is_shown(monkeypatch, tmp_path, stdout):
    replace_worker(monkeypatch, stdout=stdout)
    with pytest.raises(HpmlError, match=r"digits: prepare printed"):
        data.prepare(DIGITS, tmp_path, CLUSTER)


def test_absent_python_of_jobs_is_named(tmp_path):
    cluster = Cluster(name="local", python=str(tmp_path / "absent"))
    with pytest.raises(
        HpmlError, match=r"absent could not open the data: .*No such file"
    ):
        data.prepare(DIGITS, tmp_path, cluster)


def test_unknown_or_empty_data_set_is_refused(tmp_path):
    for key, choices in (
        ("data", "cifar10, digits"),
        ("model", "resnet18"),
        ("loss", "cross"),
    ):
        unknown = replace(RESNET, **{key: "mnist"})
        with pytest.raises(
            UsageError, match=rf"workload.{key}=mnist: choose one of {choices}"
        ):
            data.with_facts(unknown, tmp_path, CLUSTER, (), print)
    synthetic = replace(RESNET, data="synthetic", images=0)
    with pytest.raises(
        UsageError, match=r"workload.data=synthetic has no training images"
    ):
        data.resolve_workload(synthetic, tmp_path, CLUSTER, fetch=False, notify=print)
