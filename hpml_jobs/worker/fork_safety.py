"""Imports that the garbage collector leaves alone, and forks of DataLoader workers."""

import gc
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpml_jobs.core.processes import die_with_parent

TIMEOUT_S = 0.5
"""After this time the fork goes ahead: some threads spin for as long as they live."""

POLL_S = 0.0005


@contextmanager
def imports_for_life() -> Iterator[None]:
    """Keep the garbage collector off what the block imports, for as long as the process lives.

    torch makes 330,000 objects that stay. Collections during its import are a fifth of its time,
    and each later one takes 0.16 s, also when the process exits.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def await_idle_threads() -> None:
    """Wait until all other threads of this process sleep; call it right before loaders start.

    A gloo thread that releases a tensor enters the interpreter for a moment and holds a lock. A
    child forked at that moment inherits the locked lock and hangs, and the cell with it (observed
    with Python 3.11). A sleeping thread does not hold the lock. Without /proc there is no wait.
    """
    threads, own_id = Path("/proc/self/task"), str(threading.get_native_id())
    deadline = time.monotonic() + TIMEOUT_S
    while threads.is_dir() and time.monotonic() < deadline:
        if not any(
            _is_running(thread) for thread in threads.iterdir() if thread.name != own_id
        ):
            return
        # time.sleep fails under a faked clock (EINVAL)
        select.select((), (), (), POLL_S)


def start_loader_worker(_number: int = 0) -> None:
    """Let a DataLoader worker die with its rank, and keep its collector off inherited objects.

    A full collection would visit every object of the rank and copy the pages on which they lie:
    0.2 s in each worker of each epoch, at whatever moment its counter is full.
    """
    die_with_parent()
    gc.freeze()


def load_image_plugins() -> None:
    """Load Pillow's plugins for common formats if Pillow is in use, once for all loader workers.

    Otherwise every worker of every epoch imports them when it opens its first image.
    """
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None:
        pillow.preinit()


def _is_running(thread: Path) -> bool:
    """Return whether a thread runs or waits for disk: state R or D in its stat file (proc(5))."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "RD"
    except OSError:  # the thread has ended
        return False
