"""The operating system's accounts of this rank, read from /proc before and after every epoch.

Nothing runs during the epoch: no thread, and nothing in its loop. What cannot be read is None.
"""

import functools
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TypeVar

from hpml_jobs.core.measurements import Scheduling
from hpml_jobs.core.process_times import (
    PROC,
    TICK_S,
    CpuTimes,
    UnreadableError,
    busy_times,
    stat_fields,
)
from hpml_jobs.worker.fork_safety import start_loader_worker

NANOSECONDS = 1e9

CGROUPS = Path("/sys/fs/cgroup")
"""Where control groups are mounted."""

Value = TypeVar("Value")


class Reading(NamedTuple):
    """Counters at one moment; only differences of two readings mean anything."""

    at_s: float
    thread_waits_s: dict[str, float] | None
    loader_wait_s: float | None
    cpu_s: float | None
    cpus: CpuTimes | None
    throttled_s: float | None
    continued: int | None


class LoaderWaits:
    """The run-queue waits of loader workers, which live from the first epoch to the last."""

    def __init__(self, workers: int) -> None:
        self._processes = RawArray("i", max(1, workers))

    def start_worker(self, number: int) -> None:
        """Set up a loader worker (worker_init_fn): it ends with its parent and can be read."""
        start_loader_worker()
        self._processes[number] = os.getpid()

    def read_s(self) -> float:
        """Return the sum over all workers since their start; 0 before they are started.

        Raises:
            UnreadableError: the kernel does not keep scheduling statistics.
        """
        return sum(
            sum(thread_waits_s(process).values())
            for process in self._processes
            if process
        )


class ContinueSignals:
    """Counts SIGCONT and keeps its times; an earlier handler still gets the signal."""

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self._earlier = signal.signal(signal.SIGCONT, self._keep)
        # Interrupted system calls of C libraries start again, as without a handler.
        signal.siginterrupt(signal.SIGCONT, False)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        self.times_s.append(time.monotonic())
        if callable(self._earlier):
            self._earlier(number, frame)

    @property
    def is_installed(self) -> bool:
        """Whether no other code has replaced the handler."""
        return signal.getsignal(signal.SIGCONT) == self._keep


@functools.cache
def continue_signals() -> ContinueSignals:
    """Return the process's counter of SIGCONT; the first call installs it, in the main thread."""
    return ContinueSignals()


class SchedulingReader:
    """Reads the counters before and after an epoch; `missing` has the reasons of absent values."""

    def __init__(self, loader_workers: int | None) -> None:
        """Install the counter of SIGCONT; not without `loader_workers`: in a script of the user."""
        self.loader_waits = LoaderWaits(loader_workers or 0)
        self._is_inside = loader_workers is not None
        self._missing: dict[str, str] = {}
        self._signals = (
            self._try("SIGCONT", continue_signals) if self._is_inside else None
        )

    @property
    def missing(self) -> list[str]:
        """Return one reason for each value that could not be read."""
        return [f"{name}: {reason}" for name, reason in self._missing.items()]

    def read(self) -> Reading:
        """Return the counters of this moment."""
        waits_s = self._try("run-queue wait", lambda: thread_waits_s(os.getpid()))
        return Reading(
            at_s=time.monotonic(),
            thread_waits_s=waits_s,
            loader_wait_s=(
                self._try("run-queue wait of loader workers", self.loader_waits.read_s)
                if self._is_inside
                else None
            ),
            cpu_s=self._try("CPU time of child processes", cpu_s),
            cpus=self._try("CPU time of other processes", busy_times),
            throttled_s=self._try("CPU quota", throttled_s),
            continued=self._continued(),
        )

    def since(self, before: Reading) -> Scheduling:
        """Return what happened since a reading."""
        after = self.read()
        cpus = _used(before.cpus, after.cpus)
        return Scheduling(
            window_s=after.at_s - before.at_s,
            run_queue_s=_waited_s(before.thread_waits_s, after.thread_waits_s),
            loader_run_queue_s=_difference(before.loader_wait_s, after.loader_wait_s),
            cpu_s=_difference(before.cpu_s, after.cpu_s),
            busy_s=cpus.busy_s if cpus else None,
            stolen_s=cpus.stolen_s if cpus else None,
            throttled_s=_difference(before.throttled_s, after.throttled_s),
            continued_s=self._continued_since(before, after),
        )

    def _continued(self) -> int | None:
        if self._signals is None:
            return None
        if not self._signals.is_installed:
            self._missing.setdefault("SIGCONT", "other code has replaced the handler")
            return None
        return len(self._signals.times_s)

    def _continued_since(
        self, before: Reading, after: Reading
    ) -> tuple[float, ...] | None:
        if self._signals is None or before.continued is None or after.continued is None:
            return None
        times_s = self._signals.times_s[before.continued : after.continued]
        return tuple(at_s - before.at_s for at_s in times_s)

    def _try(self, name: str, read: Callable[[], Value]) -> Value | None:
        try:
            return read()
        except UnreadableError as reason:
            self._missing.setdefault(name, str(reason))
        except (OSError, ValueError, IndexError) as error:  # not worth a failed run
            self._missing.setdefault(name, str(error) or type(error).__name__)
        return None


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _used(before: CpuTimes | None, after: CpuTimes | None) -> CpuTimes | None:
    if before is None or after is None:
        return None
    return CpuTimes(after.busy_s - before.busy_s, after.stolen_s - before.stolen_s)


def _waited_s(
    before: dict[str, float] | None, after: dict[str, float] | None
) -> float | None:
    """Return the wait of all threads that live now; that of ended ones is not kept anywhere."""
    if before is None or after is None:
        return None
    return sum(wait_s - before.get(thread, 0.0) for thread, wait_s in after.items())


def thread_waits_s(process: int) -> dict[str, float]:
    """Return the run-queue wait of each thread of a process since its start, in seconds.

    Raises:
        UnreadableError: the kernel does not keep scheduling statistics.
    """
    waits_s: dict[str, float] = {}
    ran_ns = 0
    for thread in (PROC / str(process) / "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            on_cpu, waiting, _ = (thread / "schedstat").read_text().split()
            waits_s[thread.name] = int(waiting) / NANOSECONDS
            ran_ns += int(on_cpu)
    if not ran_ns:
        raise UnreadableError("no scheduling statistics in /proc (schedstat)")
    return waits_s


def cpu_s() -> float:
    """Return the CPU time of this process, of its ended children and of its living descendants."""
    ended = (
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    known_s = sum(usage.ru_utime + usage.ru_stime for usage in ended)
    return known_s + sum(_process_cpu_s(child) for child in _descendants(os.getpid()))


def _descendants(process: int) -> Iterator[int]:
    for thread in (PROC / str(process) / "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from _descendants(int(child))


def _process_cpu_s(process: int) -> float:
    """Return the CPU time of a process and of its ended children; 0 if it has just ended."""
    try:
        fields = stat_fields(process)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) * TICK_S  # utime, stime, cutime, cstime


def throttled_s() -> float:
    """Return the seconds for which quotas of this process's control groups withheld CPUs.

    Quotas may be set on any group above the process; the seconds of all of them are added.

    Raises:
        UnreadableError: no control group reports it.
    """
    total_s: float | None = None
    for folder in _cpu_groups():
        with suppress(OSError):
            lines = (folder / "cpu.stat").read_text().splitlines()
            for name, value in (line.split() for line in lines):
                if name in _THROTTLED:
                    total_s = (total_s or 0.0) + int(value) * _THROTTLED[name]
    if total_s is None:
        raise UnreadableError("no cpu.stat of a control group reports throttling")
    return total_s


_THROTTLED = {"throttled_usec": 1e-6, "throttled_time": 1e-9}
"""The field of cpu.stat, of cgroup v2 and v1, and its unit in seconds."""


def _cpu_groups() -> Iterator[Path]:
    """Yield the folders of this process's control groups for CPUs, up to the root that is shown."""
    for line in (PROC / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        mount = CGROUPS / "cpu" if controllers else CGROUPS  # version 1, version 2
        if not controllers or "cpu" in controllers.split(","):
            folder = mount / path.lstrip("/")
            yield folder
            yield from (p for p in folder.parents if mount in (p, *p.parents))
