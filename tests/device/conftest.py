"""The device is compiled; fixtures of the worker's tests: a cell's folder, a process that forks."""

import shutil

import pytest
import torch

from tests import device
from tests.unit.worker.conftest import rank_server, write_cell

__all__ = ["rank_server", "write_cell"]


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    if not shutil.which("g++"):
        pytest.skip("no g++ (apt-get install g++)")
    if torch.__version__ < (2, 14):
        pytest.skip(
            f"the device needs torch 2.14 or newer, this is torch {torch.__version__}"
        )
    device.build()
