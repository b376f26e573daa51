"""Commands on a login node without torch: they work, and import only what they need."""

import json
import os
import subprocess
import sys
from pathlib import Path

from hpml_jobs import __version__
from hpml_jobs.cli.main import COMMANDS, GONE
from hpml_jobs.study.study import Study
from tests.unit.builders import a_record
from tests.unit.study_builder import write_record

ROOT = Path(__file__).parents[3]

WITHOUT_TORCH = """\
import json, sys
for name in ("torch", "torchvision", "sklearn"):
    sys.modules[name] = None  # import raises ModuleNotFoundError, as where it is not installed
from hpml_jobs.cli.main import run
code = run(sys.argv[1:])
loaded = sorted({name.split(".")[0] for name, module in sys.modules.items() if module})
print(json.dumps({"code": code, "loaded": loaded}), file=sys.stderr)
"""


def without_torch(*words):
    """A command that ran where no torch is installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def login_node(*words):
    """What such a command prints; its exit code and top-level modules."""
    done = without_torch(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stderr.splitlines()[-1])


def test_record_of_a_script_is_written_without_torch():
    code = 'import sys; sys.modules["torch"] = None; import hpml_jobs.worker.observer.__main__'
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_cell_is_not_run_here_without_torch(working_folder):
    done = without_torch("cluster=local", "device=cpu", "workload=digits")
    assert "hpml-jobs: torch is not installed here: pip install torch" in done.stderr
    assert not (working_folder / "outputs").exists()


def test_help_loads_no_heavy_packages(slurm):
    shown, end = login_node("--help")
    assert "hpml-jobs -m gpus=1,2,4 batch=32,128,512" in shown
    assert end["code"] == 0
    heavy = {
        "hydra",
        "omegaconf",
        "pandas",
        "submitit",
        "typer",
        "numpy",
        "matplotlib",
        "pynvml",
    }
    assert not heavy & set(end["loaded"])
    named = {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    assert named & set(COMMANDS) == set(COMMANDS) - {"submit", "run", "list", "import"}
    assert not set(GONE) & named
    assert len(shown.splitlines()) <= 20


def test_plan_submit_status_and_collect_work_without_torch(slurm, working_folder):
    words = ("-m", "gpus=1,2", "batch=512", "workload=digits", "study=mine")

    shown, end = login_node("plan", *words)
    assert end["code"] == 0
    assert "nothing was submitted; it would be 2 cells as 2 jobs" in shown
    assert not {"pandas", "matplotlib"} & set(end["loaded"])
    assert list(working_folder.iterdir()) == []

    shown, end = login_node(*words)
    # its own Python could not run the jobs
    assert (end["code"], len(slurm.scripts)) == (
        2,
        0,
    )
    python = slurm.bin / "python-with-torch"
    versions = {
        "python": "3.12",
        "hpml-jobs": __version__,
        "torch": "2.7",
        "torchvision": "0.22",
    }
    python.write_text(f"#!/bin/sh\necho '{json.dumps(versions)}'\n")
    python.chmod(0o755)
    words += (f"cluster.python={python}",)
    shown, end = login_node(*words)
    assert (end["code"], len(slurm.scripts)) == (0, 2)
    assert "submitted 2 cells" in shown
    assert "101, 102" in shown

    shown, end = login_node(*words)
    # this SLURM knows nothing of 101, 102
    assert (end["code"], len(slurm.scripts)) == (
        0,
        4,
    )

    study = Study(working_folder / "outputs" / "mine")
    for folder in study.cells():
        write_record(folder, a_record(folder.read().cell, attempt="103.r0"))

    shown, end = login_node("status", "mine")
    assert "2 cells: 2 ok" in shown
    assert end["code"] == 0
    heavy = {"hydra", "omegaconf", "pandas", "numpy", "submitit", "matplotlib"}
    assert not heavy & set(end["loaded"])

    shown, end = login_node("collect", "mine")
    assert end["code"] == 0
    assert "Table 1" in shown
    assert not {"hydra", "submitit"} & set(end["loaded"])
