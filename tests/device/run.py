"""Run code with the stand-in loaded: `python -m tests.device.run CODE`."""

import sys

import torch

from tests import device

if __name__ == "__main__":
    names = {
        "torch": torch,
        "standin": device.load(),
        "gpu": torch.device(device.NAME, 0),
    }
    exec(sys.argv[1], names)  # noqa: S102
