"""Each folder of extras/ can be deleted: the kernel works without it, and names none of them."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_jobs import __version__
from hpml_jobs.checks.result import Check
from hpml_jobs.core.features import Feature, features, load
from tests.unit.golden.studies import BUILT, build

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"
EXTRAS = [*features()]

KERNEL = "not (long or gpu or journey or whole)"
"""The tests of the kernel alone."""


def copy_without(extras, folder):
    """A copy of the program and of its tests, without some extras and their tests."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "hpml_jobs", folder / "hpml_jobs", ignore=ignored)
    for name in (
        "conf",
        "sbatch",
        "docs",
        "locks",
        "pyproject.toml",
        "README.md",
        "Makefile",
    ):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "tests" / "unit", folder / "tests" / "unit", ignore=ignored)
    for path in (ROOT / "tests").iterdir():
        if path.name not in ("unit", "__pycache__"):
            (folder / "tests" / path.name).symlink_to(path)
    for name in extras:
        shutil.rmtree(folder / "hpml_jobs" / "extras" / name)
        shutil.rmtree(folder / "tests" / "unit" / "extras" / name, ignore_errors=True)
    return folder


def run_in(copy, *command, folder=None):
    """Run a command of Python in a copy, whose program is found before the installed one."""
    environment = os.environ | {"PYTHONPATH": str(copy)}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder or copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


ALONE = [pytest.param([name], id=name, marks=pytest.mark.long) for name in EXTRAS]
TOGETHER = pytest.param(EXTRAS, id="all")
"""None imports another (pyproject.toml), so that all at once are the hardest case."""


COLLECT = """
import sys
from hpml_jobs.cli.main import run
sys.exit(max(run(["collect", name]) for name in sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """All golden studies; every extra has its parts in them."""
    folder = tmp_path_factory.mktemp("golden") / "outputs"
    for name in BUILT:
        build(name, folder)
    for path in (ROOT / "tests" / "data").glob("studies-*/*"):
        if (path / "cells").is_dir():
            shutil.copytree(path, folder / path.name)
    return folder


def checks_of(extras):
    """The names of the checks of some extras."""
    added = [load(entry) for name in extras for entry in entries_of(features()[name])]
    return [part.name for part in added if isinstance(part, Check)]


def rows_of(sheet):
    """The rows of a sheet; of cells.csv without the column that sums up all checks."""
    rows = [*csv.reader(sheet.read_text().replace(__version__, "VERSION").splitlines())]
    if sheet.name != "cells.csv":
        return rows
    column = rows[0].index("checks")
    return [[*row[:column], *row[column + 1 :]] for row in rows]


@pytest.mark.parametrize("extras", [*ALONE, TOGETHER])
def test_kernel_collects_the_golden_studies_without(extras, outputs, tmp_path):
    copy = copy_without(extras, tmp_path / "copy")
    folder = tmp_path / "work"
    shutil.copytree(outputs, folder / "outputs")
    names = sorted(path.name for path in outputs.iterdir())
    done = run_in(copy, "-c", COLLECT, *names, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    sheets = [*folder.glob("outputs/*/report/*.csv")]
    assert len(sheets) > 50
    checks = {*checks_of(extras)}
    for path in sheets:
        golden = rows_of(GOLDEN / path.parents[1].name / "report" / path.name)
        remaining = [row for row in golden if not checks & {*row}]
        assert rows_of(path) == remaining, path


def test_kernel_plans_without_extras(tmp_path):
    copy = copy_without(EXTRAS, tmp_path / "copy")
    words = "plan -m gpus=1,2 batch=32 cluster=local device=cpu workload=digits try_batch=false"
    done = run_in(copy, "-m", "hpml_jobs", *words.split(), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 cells" in done.stdout
    done = run_in(copy, "-m", "hpml_jobs", *words.split(), "quantize.calibration=5")
    assert done.stderr.startswith("hpml-jobs: unknown key quantize.calibration")
    assert done.returncode == 2
    words = "gpus=2 batch=32 hosts=a,b device=cpu workload=digits try_batch=false"
    done = run_in(copy, "-m", "hpml_jobs", *words.split(), folder=tmp_path)
    assert done.stderr.startswith(
        "hpml-jobs: cluster.hosts: this hpml_jobs has no extra for it"
    )
    words = "gpus=2 batch=32 strategy=fsdp cluster=local device=cpu workload=digits try_batch=false"
    done = run_in(copy, "-m", "hpml_jobs", *words.split(), folder=tmp_path)
    assert done.stderr.startswith(
        "hpml-jobs: strategy=fsdp: this hpml_jobs has no extra for it"
    )
    (tmp_path / "train.py").write_text("import torch\n")
    words = "gpus=1 batch=32 script=train.py device=cpu cluster=local"
    done = run_in(copy, "-m", "hpml_jobs", *words.split(), folder=tmp_path)
    assert done.stderr.endswith(
        "hpml-jobs: script: this hpml_jobs has no extra for it: install the whole hpml_jobs\n"
    )
    done = run_in(copy, "-m", "hpml_jobs", "--help")
    assert "predict" not in done.stdout
    assert "in and out" not in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("extras", [*ALONE, TOGETHER])
def test_tests_of_the_kernel_pass_without(extras, tmp_path):
    copy = copy_without(extras, tmp_path / "copy")
    done = run_in(copy, "-m", "pytest", "-q", "-n", "2", "-m", KERNEL, "tests/unit")
    assert done.returncode == 0, done.stdout[-5000:]


def entries_of(feature: Feature) -> list[str]:
    """The entries of all parts of a feature."""
    parts = [
        *feature.commands.values(),
        *feature.probes.values(),
        *feature.tables.values(),
        *feature.sheets.values(),
        *feature.tables_of_all.values(),
        *feature.pictures.values(),
        *feature.training_pictures.values(),
        *feature.text_files.values(),
        *(
            part
            for by_name in feature.record_checks.values()
            for part in by_name.values()
        ),
    ]
    single = [feature.before_queue, feature.result, feature.answer]
    single += [
        *feature.sections.values(),
        *feature.page_sections.values(),
        *feature.strategies.values(),
        *feature.api.values(),
    ]
    single += [
        *feature.watchers.values(),
        *feature.models.values(),
        *feature.buffers.values(),
    ]
    groups = [
        *feature.cell_parts.values(),
        *feature.runners.values(),
        *feature.observers.values(),
        *feature.data.values(),
        *feature.loaders.values(),
    ]
    of_cells = [entry for group in groups for entry in group if ":" in entry]
    return [*(part.entry for part in parts), *filter(None, single), *of_cells]


@pytest.mark.parametrize("name", EXTRAS)
def test_every_entry_names_a_function_of_the_extra(name):
    for entry in entries_of(features()[name]):
        assert entry.startswith(f"extras.{name}.")
        assert callable(load(entry))


def test_kernel_names_no_extra():
    """Only the folder of all extras is named, where they are found."""
    for path in (ROOT / "hpml_jobs").rglob("*.py"):
        if path.relative_to(ROOT / "hpml_jobs").parts[0] != "extras":
            text = path.read_text()
            named = [
                name for name in EXTRAS if f"extras.{name}" in text.replace("/", ".")
            ]
            assert not named or path.name == "features.py", f"{path}: {named}"
