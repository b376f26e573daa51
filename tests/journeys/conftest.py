"""What journeys share: the program on the test SLURM, and studies sent to it."""

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

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def desk(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The program on a login node of the test SLURM; the folder holds the cells' own code."""
    folder = tmp_path_factory.mktemp("desk")
    shutil.copy(HERE / "user_code.py", folder)
    return Program(folder, rig.env)


class Sent:
    """One study on the test SLURM."""

    def __init__(self, desk: Program, rig: Rig, name: str, *words: str) -> None:
        self.desk, self.rig, self.name = desk, rig, name
        common = (f"study={name}", "cluster=rig", "--config-dir", str(HERE / "conf"), "--json")
        self.words = [*words, *common]
        self.answer: dict[str, Any] = json.loads(desk.ok(*self.words))
        self.study = Study(Path(self.answer["folder"]))
        self.jobs = {row["cell"]: row["job"] for row in self.answer["cells"]}

    @property
    def job(self) -> str:
        """The job of a study of one cell."""
        (job,) = self.jobs.values()
        return job

    def wait(self, timeout_s: float = 240) -> dict[str, dict[str, Any]]:
        """Wait until nothing is under way; the states by cell."""
        self.desk.ok("watch", self.name, "--every", "1", timeout_s=timeout_s)
        return self.states()

    def states(self) -> dict[str, dict[str, Any]]:
        """`status --json` by cell."""
        answer = json.loads(self.desk.ok("status", self.name, "--json"))
        return {cell["slug"]: cell for cell in answer["cells"]}

    def records(self) -> dict[str, Record]:
        """The valid records by cell."""
        found = {cell.slug: cell.read_record() for cell in self.study.cells()}
        return {slug: record for slug, record in found.items() if record is not None}

    def alive(self) -> list[int]:
        """Processes that work on a cell of this study."""
        return self.rig.alive_processes_of(str(self.study.cells_folder))


@pytest.fixture(scope="session")
def send(desk: Program, rig: Rig) -> Iterator[Any]:
    """Send a study: send(name, *words)."""
    yield lambda name, *words: Sent(desk, rig, name, *words)
