"""The program with a pipe as its output that nobody reads."""

import os
import subprocess
import sys
from pathlib import Path

import hpml_jobs


def run_into_closed_pipe(*words: str, is_stderr_closed: bool = False) -> int:
    """Return the exit code of a command whose standard output is a closed pipe."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    ended = subprocess.run(
        [sys.executable, "-m", "hpml_jobs", *words],
        stdout=write_end,
        stderr=write_end if is_stderr_closed else subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(hpml_jobs.__file__).parents[1])},
        check=False,
    )
    os.close(write_end)
    return ended.returncode
