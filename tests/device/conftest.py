"""The device is compiled; fixtures of the worker's tests: a cell's folder, a process that forks."""

import shutil

import pytest

from tests import device
from tests.unit.worker.conftest import rank_server, write_cell

__all__ = ["rank_server", "write_cell"]


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    if not shutil.which("g++"):
        pytest.skip("no g++ (apt-get install g++)")
    device.build()
