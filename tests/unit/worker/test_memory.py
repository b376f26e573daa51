"""The allocator's peaks and counts of one epoch, from a fake of torch.cuda's counters."""

import torch

from hpml_jobs.core.measurements import Memory
from hpml_jobs.worker.instruments.recorder import MemoryMeter


def test_peaks_and_counts_are_those_since_the_start(monkeypatch):
    peaks, counts = {0: 9_000, 1: 8_000}, {"num_alloc_retries": 2, "num_ooms": 1}
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda i: peaks.update({i: 100}))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda i: peaks[i])
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda i: 2 * peaks[i])
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda i: counts)
    meter = MemoryMeter([0, 1])
    meter.start()
    peaks[1] = 700
    counts["num_alloc_retries"] = 5  # of each GPU
    assert meter.since_start() == Memory(
        allocated_bytes=700, reserved_bytes=1_400, retries=6, ooms=0
    )


def test_cpu_has_no_allocator_to_read():
    meter = MemoryMeter([])
    meter.start()
    assert meter.since_start() is None
