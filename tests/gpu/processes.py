"""Processes that the parts start: their environment, and their end."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def child_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment and more variables; the checkout comes first on its path.

    What is on PYTHONPATH already stays: on some machines the packages come by it.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path} | variables


def end_group(process: "subprocess.Popen[bytes]", patience_s: float = 15) -> None:
    """End a process and the group that it leads; the ranks of a job end with their parent."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
