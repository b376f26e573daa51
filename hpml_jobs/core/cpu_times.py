"""The CPU time of this machine, from /proc/stat: only differences of two readings mean anything."""

import os
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


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
            ticks = [int(field) for field in fields]
            busy += ticks[0] + ticks[1] + ticks[2]
            stolen += ticks[7]
    if cpus:
        raise UnreadableError(f"/proc/stat has no line {min(cpus)}")
    return CpuTimes(busy * TICK_S, stolen * TICK_S)
