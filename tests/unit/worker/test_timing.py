"""The clock of an epoch: its parts add up, on the host and on a device."""

import time

import numpy as np
import pytest
import torch

from hpml_jobs.worker.timing import CudaStamps, EpochClock, HostStamps

CPU = (torch.device("cpu"),)


def test_stall_and_steps_add_up_to_the_epoch():
    calls = []
    with EpochClock(CPU, 3, lambda: calls.append("barrier")) as clock:
        for _ in range(3):
            time.sleep(0.02)  # the loader
            clock.mark()
            time.sleep(0.01)  # the step
            clock.mark()
        time.sleep(0.03)  # the loader says that there is no more
    times = clock.read()
    assert calls == ["barrier", "barrier"]
    assert times.stall_s.shape == times.step_s.shape == (3,)
    assert (times.stall_s >= 0.02).all()
    assert (times.step_s - times.stall_s >= 0.01).all()
    assert times.stall_total_s - times.stall_s.sum() >= 0.03
    work_s = (times.step_s - times.stall_s).sum()
    assert times.stall_total_s + work_s == pytest.approx(times.epoch_s, abs=1e-3)


def test_an_epoch_that_raises_waits_for_nobody():
    calls = []
    with (
        pytest.raises(ValueError, match="broken batch"),
        EpochClock(CPU, 1, lambda: calls.append("barrier")),
    ):
        raise ValueError("broken batch")
    assert calls == ["barrier"]


class FakeEvent:
    """A CUDA event on a device that passes a mark every millisecond."""

    passed = 0

    def __init__(self, enable_timing):
        assert enable_timing
        self.at_ms = None

    def record(self):
        FakeEvent.passed += 1
        self.at_ms = FakeEvent.passed

    def elapsed_time(self, other):
        return other.at_ms - self.at_ms


def test_device_marks_are_made_beforehand_and_read_in_seconds(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    stamps = CudaStamps(iterations=2)
    for _ in range(6):
        stamps.mark()
    assert np.allclose(stamps.gaps(), [0.001] * 5)
    with pytest.raises(IndexError):
        stamps.mark()  # a loader that gives more than its length


def test_no_marks_no_gaps():
    assert len(HostStamps().gaps()) == 0
