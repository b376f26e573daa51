"""Processes of a machine: when they started, in time since boot, and whether they still run."""

import os
import socket
import time
from pathlib import Path
from typing import Self

from hpml_jobs.core.value import Value


def since_boot_s() -> float | None:
    """Return the seconds since this machine booted; None where there is no such clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return None if clock is None else time.clock_gettime(clock)


def started_at(pid: int) -> float | None:
    """Return when a process began, in seconds since 1970; None if there is none, or no /proc."""
    ticks, now_s = started_ticks(pid), since_boot_s()
    if ticks is None or now_s is None:
        return None
    return time.time() - now_s + ticks / os.sysconf("SC_CLK_TCK")


def started_ticks(pid: int | str = "self") -> int | None:
    """Return the start of a process after boot in clock ticks; None: it has ended, or no /proc."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(after_name[19])
    except (OSError, ValueError, IndexError):
        return None


class Process(Value, frozen=True, kw_only=True):
    """A process that no other one can be taken for: a PID is used again, a start is not."""

    host: str
    pid: int
    boot_id: str | None = None
    started_ticks: int | None = None

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return a process of this machine."""
        return cls(
            host=socket.gethostname(), pid=pid, boot_id=boot_id(), started_ticks=started_ticks(pid)
        )

    @property
    def is_here(self) -> bool:
        """Whether it belongs to this machine."""
        return self.host == socket.gethostname()

    @property
    def runs(self) -> bool:
        """Whether it still runs, on this machine."""
        return self.started_ticks is not None and self == Process.of(self.pid)


def boot_id() -> str | None:
    """Return what the kernel names the present boot of this machine; None where it does not."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def process_started_s() -> float | None:
    """Return the start of this process in seconds since boot, to 10 ms; None without /proc."""
    ticks = started_ticks()
    return None if ticks is None else ticks / os.sysconf("SC_CLK_TCK")
