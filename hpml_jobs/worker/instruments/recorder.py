"""The recorders of a rank: stamps of iterations, memory of an epoch, parts of the start."""

import os
import resource
from typing import NamedTuple

import torch

from hpml_jobs.core.measurements import Memory
from hpml_jobs.core.process_times import process_started_s, since_boot_s
from hpml_jobs.core.rank import Startup
from hpml_jobs.study.cell_folder import JOB_STARTED_VARIABLE
from hpml_jobs.worker.instruments import timing
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.timing import Clock, Devices, IterationTimes, Stamp


class IterationMarks(NamedTuple):
    """The stamps of one instrumented iteration, each taken when the step beside it is done.

    On CUDA the device passes a stamp once it has finished all work queued before it.
    """

    batch: Stamp  # the loader has returned the batch
    copied: Stamp  # host-to-device copy
    forward: Stamp  # forward pass and loss
    backward: Stamp  # backward()
    exchanged: Stamp  # gradients are averaged over the ranks
    stepped: Stamp  # optimizer step and zero_grad, loss and hits added up


class BareRecorder:
    """Records the first and the last stamp of each iteration: batch returned, step done.

    `launches_s` are the times of the host between the two, in which it launches the work.
    """

    STAMPS = 2

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.marks: list[list[Stamp]] = []
        self.launches_s: list[float] = []
        self._began_ns = 0
        self._stamp = clock.stamp
        self._iteration: list[Stamp] = []

    def begin(self, index: int) -> None:
        """Record that the batch of iteration `index` has been returned."""
        del index
        self._began_ns = timing.perf_counter_ns()
        self._iteration = [self._stamp()]

    def mark(self) -> None:
        """Do nothing: a bare epoch has no stamps inside an iteration."""

    def end(self) -> None:
        """Record that the iteration is done."""
        self._iteration.append(self._stamp())
        self.marks.append(self._iteration)
        self.launches_s.append((timing.perf_counter_ns() - self._began_ns) / 1e9)


class PhaseRecorder(BareRecorder):
    """Records all of `IterationMarks`, and sets the ledger's current iteration."""

    STAMPS = len(IterationMarks._fields)

    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        super().__init__(clock)
        self._ledger = ledger

    def begin(self, index: int) -> None:
        """Record that the batch of iteration `index` has been returned."""
        super().begin(index)
        self._ledger.iteration = index

    def mark(self) -> None:
        """Record that the current phase is done."""
        self._iteration.append(self._stamp())


class MemoryMeter:
    """Reads the allocator's peaks and counters of an epoch; on the CPU there is none.

    Those since the process began would be of cuDNN's search, whose workspaces are as large as any
    kernel asks for: `resets` before every epoch leaves it out. A script may read its own peak, so
    its peaks are not reset.
    """

    def __init__(self, gpus: Devices, *, resets: bool = True) -> None:
        self._gpus = gpus
        self._resets = resets
        self._counts = (0, 0)

    def start(self) -> None:
        """Forget the peaks and the counts of refused memory; call it right before an epoch."""
        for gpu in self._gpus if self._resets else ():
            module = torch.get_device_module(gpu)
            module.reset_peak_memory_stats(gpu)
            module.reset_accumulated_memory_stats(gpu)
        self._counts = self._read_counts()

    def _read_counts(self) -> tuple[int, int]:
        """Return the retries and the refusals of all GPUs."""
        stats = [torch.get_device_module(gpu).memory_stats(gpu) for gpu in self._gpus]
        return sum(s["num_alloc_retries"] for s in stats), sum(
            s["num_ooms"] for s in stats
        )

    def since_start(self) -> Memory | None:
        """Return the peaks and counts since `start`; None on the CPU."""
        if not self._gpus:
            return None
        module = torch.get_device_module(self._gpus[0])
        before, now = self._counts, self._read_counts()
        return Memory(
            allocated_bytes=max(map(module.max_memory_allocated, self._gpus)),
            reserved_bytes=max(map(module.max_memory_reserved, self._gpus)),
            retries=now[0] - before[0],
            ooms=now[1] - before[1],
        )


def peak_memory_bytes(timed: Memory | None) -> int:
    """Return the peak memory: of tensors on the fullest GPU in the timed epoch, or of the process.

    On the CPU, where there is no `timed`, the process is not measured by epoch.
    """
    if timed:
        return timed.allocated_bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class StartupTimer:
    """Notes when each part of the start is done; all times are in seconds since boot."""

    def __init__(self) -> None:
        self._process_s = process_started_s()
        self._last_s = self._process_s
        self._parts_s: dict[str, float] = {}

    def end(self, part: str) -> None:
        """Note that a part of `Startup` is done; it began when the one before it was done."""
        now_s = since_boot_s()
        if now_s is not None and self._last_s is not None:
            # a process starts within 10 ms
            self._parts_s[part] = max(0.0, now_s - self._last_s)
        self._last_s = now_s

    def summary(self, times: IterationTimes) -> Startup:
        """Return the parts; the last two are those of the warm-up epoch's first iteration."""
        return Startup(
            launch_s=self._launch_s(),
            first_batch_s=float(times.stall_s[0]),
            first_iteration_s=float(times.step_s[0] - times.stall_s[0]),
            **self._parts_s,
        )

    def _launch_s(self) -> float | None:
        """Return the seconds from the start of the job's wrapper to that of this process."""
        job_started = os.environ.get(JOB_STARTED_VARIABLE)
        if not job_started or self._process_s is None:
            return None
        return max(0.0, self._process_s - float(job_started))
