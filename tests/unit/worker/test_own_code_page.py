"""The code of docs/own_code.md: the script, and a cell of its parts."""

import re
import runpy
import shlex
from pathlib import Path

import msgspec
import pytest

from hpml_jobs.plan.sweep import expand

from .conftest import cpu_cell

PAGE = (Path(__file__).parents[3] / "docs" / "own_code.md").read_text()
SCRIPT, PARTS, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = "".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)).replace(
    "\\\n", ""
)
_, STUDY = re.findall(r"^hpml-jobs (-m.*)$", COMMANDS, re.MULTILINE)


@pytest.fixture
def project(working_folder):
    """The folder of a user with the script and its parts."""
    (working_folder / "train.py").write_text(SCRIPT)
    (working_folder / "parts.py").write_text(PARTS)
    return working_folder


def test_script_of_the_page_trains(project, capsys):
    runpy.run_path("train.py")
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
