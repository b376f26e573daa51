"""The import contracts of pyproject.toml catch what they promise to catch."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PACKAGES = (
    "cli",
    "compare",
    "doctor",
    "lab",
    "submit",
    "plan",
    "status",
    "job",
    "report",
    "study",
)
WITHOUT_TORCH = (*PACKAGES, "results", "core", "slurm")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the package and its contracts, to be broken."""
    folder = tmp_path_factory.mktemp("contracts")
    shutil.copytree(
        ROOT / "hpml_jobs",
        folder / "hpml_jobs",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(checkout):
    tool = Path(sys.executable).with_name("lint-imports")
    return subprocess.run(
        [str(tool), "--no-logo", "--no-cache"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )


def test_contracts_hold(checkout):
    done = lint(checkout)
    assert done.returncode == 0, done.stdout


def test_torch_outside_worker_is_caught(checkout):
    """A new module that imports torch, in every package and at the root, each by name."""
    modules = [checkout / "hpml_jobs" / name / "intruder.py" for name in WITHOUT_TORCH]
    for path in modules:
        path.write_text('"""A new module."""\n\nimport torch\n')
    done = lint(checkout)
    for path in modules:
        path.unlink()
    assert done.returncode == 1
    for name in WITHOUT_TORCH:
        assert f"hpml_jobs.{name}.intruder -> torch" in done.stdout, name


def test_module_without_a_layer_is_caught(checkout):
    path = checkout / "hpml_jobs" / "intruder.py"
    path.write_text('"""A new module at the root."""\n')
    done = lint(checkout)
    path.unlink()
    assert done.returncode == 1
    assert "hpml_jobs.intruder" in done.stdout


def test_every_package_is_named_here():
    folders = {path.parent.name for path in (ROOT / "hpml_jobs").glob("*/__init__.py")}
    assert folders == {*WITHOUT_TORCH, "worker"}
