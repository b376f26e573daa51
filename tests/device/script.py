"""A script as a rank on the device: `python -m tests.device.script PLACE SCRIPT ARGS`."""

import os
import runpy
import sys

import torch

from hpml_jobs.core.processes import leave
from hpml_jobs.job.script import SITE
from hpml_jobs.study.cell_folder import OBSERVE_VARIABLE
from tests import device
from tests.device import queued_gloo, rank

if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == device.NAME:
        library = device.load()
        library.standin_hold(True)
        queued_gloo.register(library)
        rank.refuse_waits()
    if OBSERVE_VARIABLE in os.environ:
        runpy.run_path(str(SITE / "sitecustomize.py"), run_name="sitecustomize")
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    leave(0)
