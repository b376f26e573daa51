"""Limits on time and memory of a block of code: a thread watches, and ends the process.

It measures the memory that the process holds. A limit of the kernel on its address space would
refuse what torch only reserves.
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hpml_jobs.core.text import duration_text
from hpml_jobs.worker.data.user_code import place_of

_POLL_S = 0.05
_STATM = Path("/proc/self/statm")


@contextmanager
def bounded(limit_s: float, limit_bytes: int, give_up: Callable[[str], None]) -> Iterator[None]:
    """Exit the process with code 0 if the block takes longer, or more memory, than allowed.

    `give_up` is called before, with the reason, in the watching thread.
    """
    deadline, most = time.monotonic() + limit_s, _resident_bytes() + limit_bytes
    main_thread, has_ended = threading.get_ident(), threading.Event()

    def watch() -> None:
        while not has_ended.wait(_POLL_S):
            reason = ""
            if time.monotonic() > deadline:
                frame = sys._current_frames().get(main_thread)
                place = place_of(traceback.extract_stack(frame)) if frame else ""
                reason = f"it took more than {duration_text(limit_s)}{place}"
            elif _resident_bytes() > most:
                reason = f"it took more than {limit_bytes / 1e9:.0f} GB of memory"
            if reason:
                give_up(reason)
                os._exit(0)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        has_ended.set()
        watcher.join()


def _resident_bytes() -> int:
    """Return the memory that this process holds; 0 where the system does not say."""
    try:
        pages = int(_STATM.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
