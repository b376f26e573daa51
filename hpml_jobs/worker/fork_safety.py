"""Before a process is forked: no other thread of it is in the middle of something."""

import threading
import time
from pathlib import Path

PATIENCE_S = 0.5
"""How long threads may go on before we fork all the same: some spin for good while they wait."""

PAUSE_S = 0.0005


def await_idle_threads() -> None:
    """Wait until all other threads of this process sleep; call it right before loaders start.

    A thread of gloo that lets go of a tensor enters the interpreter for a moment, under a lock that
    a forked child inherits and nobody there will open: the child hangs in fork, and with it the
    cell (seen with Python 3.11; torch takes no Python lock only where no tensor has been one of
    Python's). A sleeping thread does not hold that lock. Other systems than Linux do not tell.
    """
    tasks, mine = Path("/proc/self/task"), str(threading.get_native_id())
    end_s = time.monotonic() + PATIENCE_S
    while tasks.is_dir() and time.monotonic() < end_s:
        if not any(_runs(task) for task in tasks.iterdir() if task.name != mine):
            return
        time.sleep(PAUSE_S)


def _runs(task: Path) -> bool:
    """Whether a thread runs or wants to: proc(5), state after the name in parentheses."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] in "RD"
    except OSError:  # it has ended
        return False
