"""Fixtures of all tests: the test SLURM, and the program as a user runs it."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from tests.patience import PATIENCE_S
from tests.rig.plugin import rig  # noqa: F401  (a fixture)

# Scripts that need torch, torchrun or SLURM: tests/unit/test_benchmarks.py starts each of them, and
# tests/journeys/test_scripts.py those of users.
collect_ignore = ["benchmarks", "scripts"]

SLOW = (
    "device",
    "faults",
    "gpu",
    "journeys",
    "long",
    "rig",
    "unit/cli/test_fuzzed_files.py",
    "unit/cli/test_hostile_files.py",
    "unit/cli/test_local_runs.py",
    "unit/cli/test_wheel.py",
    "unit/core/test_stacks.py",
    "unit/doctor/test_node_check.py",
    "unit/gpu",
    "unit/job",
    "unit/locks",
    "unit/plan/test_counts_of_own_code.py",
    "unit/plan/test_image_folders.py",
    "unit/report/files/test_latex.py",
    "unit/report/page/test_page_in_browser.py",
    "unit/test_edits_that_mypy_finds.py",
    "unit/worker",
)
"""Tests that train or start many processes, or need SLURM, a browser or a compiler."""


def is_slow(path: Path) -> bool:
    """Return whether a file, or every file of a folder, is in SLOW."""
    folder = Path(__file__).parent
    return any(path.is_relative_to(folder / place) for place in SLOW)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of `make test-quick`."""
    parser.addoption("--only", choices=("quick", "slow"), help="half of the files")


def pytest_ignore_collect(
    collection_path: Path, config: pytest.Config
) -> Literal[True] | None:
    """Leave out the other half; a folder may have files of both."""
    only = config.getoption("--only")
    if only == "quick":
        return is_slow(collection_path) or None
    if only == "slow" and collection_path.is_file():
        return not is_slow(collection_path) or None
    return None


# Until the tests are collected: what they import stays, and torch alone makes 330,000 objects.
gc.disable()


def pytest_collection_finish() -> None:
    """Turn the garbage collector on; it never visits what has been imported."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put quick files first: a mistake is seen after seconds."""
    items.sort(key=lambda item: is_slow(item.path))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the CPU time of this process and of those that it has started."""
    minutes = sum(os.times()[:4]) / 60
    terminalreporter.write_line(f"CPU time: {minutes:.1f} minutes")


# Tests interrupt programs; a shell's background processes ignore SIGINT, and so do their children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests share the CPUs: several threads of OpenMP spend most of their time waiting for each other.
os.environ["OMP_NUM_THREADS"] = "1"

# Without files of bytecode, every process that a test starts compiles the program again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


class Program:
    """`hpml-jobs` in a folder, with an environment of its own."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        python: Path | str = sys.executable,
    ) -> None:
        self.folder = folder
        self.python = str(python)
        self.environment = dict(environment) | {
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONWARNINGS": "error::UserWarning:hpml_jobs",
        }
        self.environment.pop("SCRATCH", None)

    def __call__(
        self, *words: str, timeout_s: float = PATIENCE_S
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-m", "hpml_jobs", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def ok(self, *words: str, timeout_s: float = PATIENCE_S) -> str:
        """Run a command that must succeed; return its standard output."""
        done = self(*words, timeout_s=timeout_s)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def local_program(folder: Path) -> Program:
    """Return the program on a machine without SLURM."""
    environment = {
        name: v for name, v in os.environ.items() if not name.startswith("SLURM")
    }
    return Program(folder, environment)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program on a machine without SLURM, in a folder of its own."""
    return local_program(tmp_path)
