"""The memory of this rank's GPUs in an epoch, by torch's allocator."""

from collections.abc import Sequence

import torch

from hpml_jobs.core.measurements import Memory

COUNTERS = ("num_alloc_retries", "num_ooms")


class MemoryMeter:
    """Reads the allocator's peaks and counters of an epoch; on the CPU there is none.

    The peak since the process began would be that of cuDNN's search, whose workspaces are as large
    as any kernel asks for: it is reset before every epoch.
    """

    def __init__(self, cuda_indices: Sequence[int]) -> None:
        self._indices = cuda_indices
        self._before = self._counters()

    def start(self) -> None:
        """Forget the peaks and remember the counters; call it right before an epoch."""
        for index in self._indices:
            torch.cuda.reset_peak_memory_stats(index)
        self._before = self._counters()

    def since_start(self) -> Memory | None:
        """Return the peaks and counts since `start`; None on the CPU."""
        if not self._indices:
            return None
        retries, ooms = (
            now - before for now, before in zip(self._counters(), self._before, strict=True)
        )
        return Memory(
            allocated_bytes=max(map(torch.cuda.max_memory_allocated, self._indices)),
            reserved_bytes=max(map(torch.cuda.max_memory_reserved, self._indices)),
            retries=retries,
            ooms=ooms,
        )

    def _counters(self) -> list[int]:
        stats = [torch.cuda.memory_stats(index) for index in self._indices]
        return [sum(int(of_gpu.get(name, 0)) for of_gpu in stats) for name in COUNTERS]
