"""The test SLURM as a pytest fixture; `tests/conftest.py` imports it."""

from collections.abc import Iterator

import pytest

from tests.rig.slurm import Rig, missing_requirement


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """One cluster for all tests of a session; without its packages they are skipped."""
    if reason := missing_requirement():
        pytest.skip(reason)
    with Rig() as running:
        yield running
