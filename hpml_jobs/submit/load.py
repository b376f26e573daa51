"""The load of this machine before cells run on it: how much other programs use, and which."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from hpml_jobs.core.disturbance import FOREIGN_LIMIT, WITHHELD_LIMIT
from hpml_jobs.core.process_times import (
    PROC,
    TICK_S,
    UnreadableError,
    busy_times,
    stat_fields,
)
from hpml_jobs.core.text import counted, duration_text
from hpml_jobs.study.files import owner

WINDOW_S = 1.0
"""How long the load is measured."""


class Program(NamedTuple):
    """A process of others in words, with its user, and the CPUs that it used."""

    words: str
    cpus: float


class Load(NamedTuple):
    """What others took of this process's CPUs in a window, in CPUs.

    `used` is what other programs used, `withheld` what the hypervisor gave to other machines.
    `program` is the one that used most; None where none is known.
    """

    cpus: int
    used: float
    withheld: float
    program: Program | None = None

    @property
    def is_withheld(self) -> bool:
        """Whether the hypervisor takes so much that a cell would be marked."""
        return self.withheld > WITHHELD_LIMIT * self.cpus

    @property
    def is_quiet(self) -> bool:
        """Whether a cell would not be marked for it: the limits of the check `disturbed`."""
        return self.used <= FOREIGN_LIMIT * self.cpus and not self.is_withheld

    @property
    def words(self) -> str:
        """What others take, in words."""
        text = f"other programs use {self.used:.1f} of {counted(self.cpus, 'CPU')}"
        if self.program and not self.is_quiet:
            text += f"; the busiest is {self.program.words}"
        if self.is_withheld:
            text += f"; the hypervisor takes {self.withheld:.1f}"
        return text


def measured_load(window_s: float = WINDOW_S) -> Load | None:
    """Return the load over a window in which this process sleeps; None where it cannot be read."""
    try:
        before = busy_times()
    except (OSError, UnreadableError):
        return None
    processes = {process.number: process for process in _processes()}
    begin_s = time.monotonic()
    time.sleep(window_s)
    after = busy_times()
    seconds = time.monotonic() - begin_s
    programs = [
        Program(process.words, (process.cpu_s - earlier.cpu_s) / seconds)
        for process in _processes()
        if (earlier := processes.get(process.number))
    ]
    return Load(
        cpus=len(os.sched_getaffinity(0)),
        used=(after.busy_s - before.busy_s) / seconds,
        withheld=(after.stolen_s - before.stolen_s) / seconds,
        program=max(programs, key=lambda program: program.cpus, default=None),
    )


_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD (linux/sched.h), a bit of the flags in /proc/PID/stat."""


class _Process(NamedTuple):
    number: int
    words: str
    cpu_s: float


def _processes() -> Iterator[_Process]:
    """Yield the processes of others that can be seen, with the CPU time that they have used."""
    for folder in PROC.glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        with suppress(OSError, ValueError, IndexError):  # it has ended
            fields = stat_fields(folder.name)
            words = f"{(folder / 'comm').read_text().strip()} of {owner(folder)}"
            if int(fields[6]) & _KERNEL_THREAD:
                words = "the operating system"
            ticks = fields[11:13]  # utime, stime
            yield _Process(int(folder.name), words, sum(map(int, ticks)) * TICK_S)


MARKED = "Times may be longer: collect marks those with ! or leaves them out"


class QuietWait:
    """The waits for a quiet machine before the cells of a run, `minutes` at most in sum."""

    def __init__(
        self,
        minutes: int,
        tell: Callable[[str], None],
        measure: Callable[[], Load | None] = measured_load,
    ) -> None:
        self.minutes = minutes
        self.left_s = 60.0 * minutes
        self.is_first = True
        self.tell = tell
        self.measure = measure

    def wait(self) -> None:
        """Wait until this machine is quiet; say how busy it is before the first cell."""
        is_first, self.is_first = self.is_first, False
        may_say = is_first or self.left_s > 0
        load = self.measure() if may_say else None
        if load is None:
            return
        if not load.is_quiet:
            self._wait_for(load)
        elif is_first:
            self.tell(f"this machine is quiet: {load.words}")

    def _wait_for(self, load: Load) -> None:
        """Wait until a busy machine is quiet, or the time to wait is over."""
        busy = f"this machine is busy: {load.words}"
        if not self.minutes:
            waits = "quiet_minutes=10 waits for a quiet machine, 10 minutes at most"
            self.tell(f"{busy}.\n{MARKED}; {waits}")
            return
        self.tell(f"{busy}. Waiting {duration_text(self.left_s)} at most")
        begin_s = time.monotonic()
        waited_s = 0.0
        while not load.is_quiet and waited_s < self.left_s:
            load = self.measure() or load
            waited_s = time.monotonic() - begin_s
        self.left_s -= waited_s
        if load.is_quiet:
            self.tell(f"quiet after {waited_s:.0f} s: {load.words}")
            return
        limit = counted(self.minutes, "minute")
        self.tell(f"still busy after {limit} of waiting: {load.words}. {MARKED}")
