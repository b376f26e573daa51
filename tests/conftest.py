"""Fixtures of all tests: the test SLURM, and the program as a user runs it."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.rig.plugin import rig  # noqa: F401  (a fixture)

# Scripts that need torch, torchrun or SLURM: tests/unit/test_benchmarks.py starts each of them, and
# tests/journeys/test_scripts.py those of users.
collect_ignore = ["benchmarks", "scripts"]

SLOW = [Path(__file__).parent / name for name in ("faults", "journeys", "unit/worker")]


# Until the tests are collected: what they import stays, and torch alone makes 330,000 objects.
gc.disable()


def pytest_collection_finish() -> None:
    """Turn the garbage collector on; it never visits what has been imported."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow files first: xdist hands out files in this order, and quick ones fill the end."""
    items.sort(
        key=lambda item: not any(item.path.is_relative_to(folder) for folder in SLOW)
    )


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
        self, *words: str, timeout_s: float = 300
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

    def ok(self, *words: str, timeout_s: float = 300) -> str:
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
