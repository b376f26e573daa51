"""Fixtures of fault tests: studies on a test SLURM, and the results of all faults."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.faults.fault_results import FaultResults
from tests.faults.fault_study import FaultStudy
from tests.journeys.conftest import HERE
from tests.rig import Rig, missing_requirement

# User code: it imports user_code.py, which lies beside it only in the test's folder.
collect_ignore = ["blocking_models.py"]

CODE = (HERE / "user_code.py", Path(__file__).with_name("blocking_models.py"))


def login_program(rig: Rig, folder: Path) -> Program:
    """Return the program on the login node of a test SLURM, beside the user code of its cells."""
    for file in CODE:
        shutil.copy(file, folder)
    return Program(folder, rig.env)


@pytest.fixture(scope="session")
def login(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Program:
    return login_program(rig, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="session")
def make_study(login: Program, rig: Rig) -> Callable[..., FaultStudy]:
    """Return make_study(name, *words, model=…), which makes a study on the session's SLURM."""
    return lambda name, *words, **options: FaultStudy(
        login, rig, name, *words, **options
    )


@pytest.fixture(scope="session")
def disk(rig: Rig) -> Path:
    """A file system of 4 MiB."""
    return rig.small_disk(4)


@pytest.fixture(scope="module")
def breakable_study(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., FaultStudy]]:
    """Like make_study, on a SLURM of this module only: its daemons may be stopped."""
    if reason := missing_requirement():
        pytest.skip(reason)
    with Rig() as rig:
        login = login_program(rig, tmp_path_factory.mktemp("breakable"))
        yield lambda name, *words, **options: FaultStudy(
            login, rig, name, *words, **options
        )


@pytest.fixture(scope="session")
def record_fault(request: pytest.FixtureRequest) -> Iterator[FaultResults]:
    """Collect what every fault cost; write the results if all faults were selected and passed."""
    results = FaultResults()
    yield results
    selected = "fault" in (request.config.getoption("-m") or "")
    if selected and not request.session.testsfailed:
        results.write()
