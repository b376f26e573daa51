"""Processes of a machine: when they started, whether they run, and the CPU time they all use."""

import os
import socket
import time
from pathlib import Path
from typing import NamedTuple, Self

from hpml_jobs.core.value import Value

PROC = Path("/proc")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def since_boot_s() -> float | None:
    """Return the seconds since this machine booted; None where there is no such clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return None if clock is None else time.clock_gettime(clock)


def started_at(pid: int) -> float | None:
    """Return when a process began, in seconds since 1970; None if there is none, or no /proc."""
    ticks, now_s = started_ticks(pid), since_boot_s()
    if ticks is None or now_s is None:
        return None
    return time.time() - now_s + ticks * TICK_S


def stat_fields(pid: int | str) -> list[str]:
    """Return the fields of a process after its name, which may hold anything (proc(5)).

    Raises:
        OSError: it has ended, or there is no /proc.
    """
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def started_ticks(pid: int | str = "self") -> int | None:
    """Return the start of a process after boot in clock ticks; None: it has ended, or no /proc."""
    try:
        return int(stat_fields(pid)[19])
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
            host=socket.gethostname(),
            pid=pid,
            boot_id=boot_id(),
            started_ticks=started_ticks(pid),
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
    return None if ticks is None else ticks * TICK_S


class UnreadableError(Exception):
    """The system does not report a value; the message says why."""


class CpuTimes(NamedTuple):
    """CPU-seconds of some CPUs: of all processes, and taken by a hypervisor."""

    busy_s: float
    stolen_s: float


def busy_times() -> CpuTimes:
    """Return the CPU time on the CPUs of this process's affinity mask: user, nice and system.

    Interrupts are left out: those of the cell's own network traffic are not foreign.

    Raises:
        UnreadableError: /proc/stat does not have these CPUs, as in some containers.
    """
    cpus = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    busy = stolen = 0
    for line in (PROC / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name in cpus:
            cpus.remove(name)
            ticks = [*map(int, fields)]
            busy += ticks[0] + ticks[1] + ticks[2]
            stolen += ticks[7]
    if cpus:
        raise UnreadableError(f"/proc/stat has no line {min(cpus)}")
    return CpuTimes(busy * TICK_S, stolen * TICK_S)
