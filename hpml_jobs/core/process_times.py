"""Times of this machine in seconds since boot: now, and at the start of this process."""

import os
import time
from pathlib import Path


def since_boot_s() -> float | None:
    """Return the seconds since this machine booted; None where there is no such clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return None if clock is None else time.clock_gettime(clock)


def started_ticks() -> int | None:
    """Return the start of this process after boot in clock ticks; None without /proc."""
    try:
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        return int(after_name[19])
    except (OSError, ValueError, IndexError):
        return None


def process_started_s() -> float | None:
    """Return the start of this process in seconds since boot, to 10 ms; None without /proc."""
    ticks = started_ticks()
    return None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")
