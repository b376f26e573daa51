"""What the faults share: desks with the cells' own code, a cluster to break, the ledger."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.faults.fault_results import Ledger
from tests.faults.fault_study import Case
from tests.journeys.conftest import HERE
from tests.rig import Rig, missing

# User code: it imports user_code.py, which lies beside it only in the test's folder.
collect_ignore = ["blocking_models.py"]

CODE = (HERE / "user_code.py", Path(__file__).with_name("blocking_models.py"))


def desk_for(rig: Rig, folder: Path) -> Program:
    """The program on a login node of a test SLURM."""
    for file in CODE:
        shutil.copy(file, folder)
    return Program(folder, rig.env)


@pytest.fixture(scope="session")
def desk(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return desk_for(rig, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def make(desk: Program, rig: Rig) -> Callable[..., Case]:
    """A study on the session's SLURM: make(name, *words, model=…)."""
    return lambda name, *words, **options: Case(desk, rig, name, *words, **options)


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Case]]:
    """A study on a SLURM of the module's own, whose daemons may be ended: breakable(name, …)."""
    if reason := missing():
        pytest.skip(reason)
    with Rig() as rig:
        desk = desk_for(rig, tmp_path_factory.mktemp("breakable"))
        yield lambda name, *words, **options: Case(desk, rig, name, *words, **options)


@pytest.fixture(scope="session")
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    """Where every test of a fault tells what it cost; a page where all faults were asked for."""
    made = Ledger()
    yield made
    if "fault" in (request.config.getoption("-m") or ""):
        made.write(failed=request.session.testsfailed)
