"""The command fetch: only a data set that is missing is downloaded, by the Python of the jobs."""

import subprocess
import sys

from hpml_jobs.cli.main import run
from hpml_jobs.plan import data


def test_only_what_is_missing_is_downloaded(monkeypatch, working_folder, capsys):
    commands = []

    def worker(command, **_):
        commands.append(command)
        counts = '{"images": 1, "parameters": 1, "effective": 1}'
        return subprocess.CompletedProcess(command, 0, counts, "")

    def printed(*words):
        assert run(["fetch", *words, f"data.root={working_folder}"]) == 0
        output = capsys.readouterr()
        return (output.out + output.err).strip()

    monkeypatch.setattr(data.subprocess, "run", worker)
    assert printed("workload=digits", "cluster=local").endswith("nothing to download")
    would = printed("workload=resnet18_cifar10", "cluster=local", "-n")
    assert "would be downloaded into" in would
    assert commands == []
    assert printed("workload=resnet18_cifar10", "cluster=local").startswith(
        "downloading CIFAR-10"
    )
    (command,) = commands
    assert command[0] == sys.executable
    assert command[-1] == "--download"
