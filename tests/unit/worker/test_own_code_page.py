"""The code of docs/own_code.md: the script before and after the change, and a cell."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import msgspec
import pytest

from hpml_jobs.plan.sweep import expand

from .conftest import cpu_cell

PAGE = (Path(__file__).parents[3] / "docs" / "own_code.md").read_text()
SCRIPT, PARTS, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
[CHANGE] = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = "".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)).replace(
    "\\\n", ""
)
_, STUDY = re.findall(r"^hpml-jobs (-m.*)$", COMMANDS, re.MULTILINE)


def patched(text, diff):
    """The text after a diff without line numbers; each hunk must fit in one place."""
    for hunk in diff.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        new = "".join(line[1:] for line in lines if line[0] in " +")
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture
def project(working_folder):
    """The folder of a user with the changed script and its parts."""
    (working_folder / "train.py").write_text(patched(SCRIPT, CHANGE))
    (working_folder / "parts.py").write_text(PARTS)
    return working_folder


def test_page_change_is_small_and_the_script_goes_on_working(
    project, capsys, monkeypatch
):
    assert len([line for line in SCRIPT.splitlines() if line.strip()]) <= 45
    assert sum(line.startswith("+") for line in CHANGE.splitlines()) <= 10
    monkeypatch.syspath_prepend(project)
    runpy.run_path("train.py")
    monkeypatch.delitem(sys.modules, "parts")
    (share,) = re.findall(r"epoch 2: ([\d.]+)%", capsys.readouterr().out)
    assert float(share) > 50


def test_page_command_measures_a_cell(project, run_cell, tmp_path):
    multirun, *words = shlex.split(STUDY)
    assert multirun == "-m"
    settings = expand([*words, "cluster=local"], multirun=True)
    assert [(s.gpus, s.batch) for s in settings.settings] == [(1, 64), (2, 64), (4, 64)]
    workload = msgspec.structs.replace(settings.settings[0].workload, images=1500)
    (tmp_path / "parts.py").write_text(PARTS)
    finished = run_cell(cpu_cell(workload))
    assert finished.code == 0, finished.stderr
    assert finished.record.ranks[0].test_samples == 297
    assert finished.record.accuracy > 0.5
