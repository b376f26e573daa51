"""A script as a forked rank: `python -m tests.unit.worker.observer.observed_script SCRIPT ARGS`."""

import os
import runpy
import sys
from multiprocessing.util import _exit_function
from pathlib import Path

import torch

from hpml_jobs.job.script import SITE
from hpml_jobs.study.cell_folder import OBSERVE_VARIABLE

if __name__ == "__main__":
    torch.set_num_threads(1)
    if OBSERVE_VARIABLE in os.environ:
        runpy.run_path(str(SITE / "sitecustomize.py"), run_name="sitecustomize")
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        _exit_function()  # a forked rank leaves by os._exit
