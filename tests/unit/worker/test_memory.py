"""The allocator's peaks and counts of one epoch, from a fake of torch.cuda's counters."""

from types import SimpleNamespace

import pytest
import torch

from hpml_jobs.core.measurements import Memory
from hpml_jobs.worker.failure import describe
from hpml_jobs.worker.instruments.recorder import MemoryMeter

GPUS = tuple(torch.device("cuda", number) for number in range(2))


def index_of(gpu):
    """torch.cuda takes a number as well as a device."""
    return getattr(gpu, "index", gpu)


class Allocator:
    """torch's statistics of two GPUs, as `torch.cuda.reset_*` changes them."""

    def __init__(self, monkeypatch):
        self.peaks = [9_000, 8_000]
        self.counts = [{"num_alloc_retries": 2, "num_ooms": 1} for _ in self.peaks]
        for name, value in {
            "is_initialized": lambda: True,
            "device_count": lambda: len(self.peaks),
            "memory_stats": lambda gpu: self.counts[index_of(gpu)],
            "max_memory_allocated": lambda gpu: self.peaks[index_of(gpu)],
            "max_memory_reserved": lambda gpu: 2 * self.peaks[index_of(gpu)],
            "get_device_properties": lambda _: SimpleNamespace(total_memory=16e9),
            "reset_peak_memory_stats": lambda gpu: self.peaks.__setitem__(
                index_of(gpu), 100
            ),
            "reset_accumulated_memory_stats": lambda gpu: self.counts[
                index_of(gpu)
            ].update(num_alloc_retries=0, num_ooms=0),
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)


@pytest.fixture
def allocator(monkeypatch):
    return Allocator(monkeypatch)


def test_peaks_and_counts_are_those_since_the_start(allocator):
    meter = MemoryMeter(GPUS)
    meter.start()
    allocator.peaks[1] = 700
    for counts in allocator.counts:
        counts["num_alloc_retries"] += 3
    assert meter.since_start() == Memory(
        allocated_bytes=700, reserved_bytes=1_400, retries=6, ooms=0
    )


def test_memory_refused_in_an_earlier_epoch_explains_no_later_failure(allocator):
    """cuDNN's search of the first epoch may be refused memory for a plan that it can do without."""
    failure = RuntimeError(
        "GET was unable to find an engine to execute this computation"
    )
    assert describe(failure, 0).oom
    MemoryMeter(GPUS).start()
    assert not describe(failure, 0).oom
    allocator.counts[1]["num_ooms"] = 1
    assert describe(failure, 0).oom
