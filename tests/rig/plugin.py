"""The test SLURM as a pytest fixture; `tests/conftest.py` imports it."""

from collections.abc import Iterator

import pytest

from tests.rig.slurm import Rig, missing


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """One cluster for all tests of a session; they are skipped where it cannot run."""
    if reason := missing():
        pytest.skip(reason)
    with Rig() as running:
        yield running
