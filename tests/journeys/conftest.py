"""Fixtures of journeys: the program on the test SLURM, and studies submitted to it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpml_jobs.core.record import Record
from hpml_jobs.study.study import Study
from tests.conftest import Program
from tests.rig import Rig
from tests.rig.hosts import hosts  # noqa: F401  (a fixture)

HERE = Path(__file__).parent

# User code: it imports user_code.py, which lies beside it only in the test's folder.
collect_ignore = ["hanging_models.py"]


@pytest.fixture(scope="session")
def login(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program on the login node of the test SLURM, in a folder with the user code."""
    folder = tmp_path_factory.mktemp("login")
    shutil.copy(HERE / "user_code.py", folder)
    return Program(folder, rig.env)


class SubmittedStudy:
    """One study on the test SLURM."""

    def __init__(self, login: Program, rig: Rig, name: str, *words: str) -> None:
        self.login, self.rig, self.name = login, rig, name
        common = (
            f"study={name}",
            "cluster=rig",
            "--config-dir",
            str(HERE / "conf"),
            "--json",
        )
        self.words = [*words, *common]
        self.answer: dict[str, Any] = json.loads(login.ok(*self.words))
        self.study = Study(Path(self.answer["folder"]))
        self.jobs = {row["cell"]: row["job"] for row in self.answer["cells"]}

    @property
    def job(self) -> str:
        """The job of a study of one cell."""
        (job,) = self.jobs.values()
        return job

    def wait_until_finished(self) -> dict[str, dict[str, Any]]:
        """Wait until no cell is pending or running; return the states by slug."""
        self.login.ok("status", self.name, "--watch")
        return self.states()

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the cells of `status --json` by slug."""
        answer = json.loads(self.login.ok("status", self.name, "--json"))
        return {cell["slug"]: cell for cell in answer["cells"]}

    def records(self) -> dict[str, Record]:
        """Return the valid records by slug."""
        records = {cell.slug: cell.read_record() for cell in self.study.cells()}
        return {slug: record for slug, record in records.items() if record is not None}

    def alive_processes(self) -> list[int]:
        """Return the pids of processes that run a cell of this study."""
        return self.rig.alive_processes_of(str(self.study.cells_folder))


@pytest.fixture(scope="session")
def submit(login: Program, rig: Rig) -> Iterator[Any]:
    """Return submit(name, *words), which submits a study."""
    yield lambda name, *words: SubmittedStudy(login, rig, name, *words)
