"""Recorders: two stamps per bare iteration, six per instrumented one; the ledger's iteration."""

from itertools import count

from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.recorder import (
    BareRecorder,
    IterationMarks,
    PhaseRecorder,
)


class CountingClock:
    """A clock whose stamps are 0, 1, 2, …"""

    def __init__(self):
        self.stamp = count().__next__


def run_iterations(recorder, number):
    for index in range(number):
        recorder.begin(index)
        for _ in range(4):
            recorder.mark()
        recorder.end()
    return recorder.marks


def test_bare_recorder_has_two_stamps_per_iteration():
    assert run_iterations(BareRecorder(CountingClock()), 2) == [[0, 1], [2, 3]]


def test_phase_recorder_has_all_marks_and_sets_iteration():
    clock = CountingClock()
    ledger = Ledger(clock)
    marks = run_iterations(PhaseRecorder(clock, ledger), 2)
    assert [IterationMarks(*iteration).stepped for iteration in marks] == [5, 11]
    assert ledger.iteration == 1
