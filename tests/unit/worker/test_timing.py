"""Clocks and the window of an epoch: its parts add up, on the host and on a device."""

import time

import pytest
import torch

from hpml_jobs.worker.instruments.timing import HostClock, Window, clock_for, read_times

CPU = (torch.device("cpu"),)


def test_stall_and_steps_add_up_to_epoch():
    calls, marks = [], []
    clock = clock_for(CPU)
    with Window(clock, lambda: calls.append("barrier")) as window:
        for _ in range(3):
            time.sleep(0.02)  # the loader
            batch = clock.stamp()
            time.sleep(0.01)  # the step
            marks.append([batch, clock.stamp()])
        time.sleep(0.03)  # the loader reports that there are no more batches
    times = read_times(clock, window, marks)
    assert calls == ["barrier", "barrier"]
    assert times.stall_s.shape == times.step_s.shape == (3,)
    assert (times.stall_s >= 0.02).all()
    assert (times.step_s - times.stall_s >= 0.01).all()
    assert times.last_stall_s >= 0.03
    whole_s = clock.seconds(window.start, window.end)
    assert times.step_s.sum() + times.last_stall_s == pytest.approx(whole_s)
    assert whole_s <= window.epoch_s


def test_failing_epoch_skips_the_barrier():
    calls = []
    with (
        pytest.raises(ValueError, match="broken batch"),
        Window(HostClock(), lambda: calls.append("barrier")),
    ):
        raise ValueError("broken batch")
    assert calls == ["barrier"]


def test_failing_epoch_without_exchange_comes_to_the_barrier():
    calls = []
    with (
        pytest.raises(ValueError, match="broken batch"),
        Window(HostClock(), lambda: calls.append("barrier"), ranks_are_alone=True),
    ):
        raise ValueError("broken batch")
    assert calls == ["barrier", "barrier"]
