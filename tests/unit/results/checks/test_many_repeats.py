"""The work for thousands of repeats grows with their number, not with its square."""

import sys

import pytest

from hpml_jobs.core.statistics import interval
from tests.unit.builders import lab_cell, lab_record
from tests.unit.check_cases import check_records


def check_repeats(number):
    cells = [
        lab_cell(gpus, 32, repeat=repeat) for gpus in (1, 2) for repeat in range(number)
    ]
    times = [20.0 / cell.gpus + cell.repeat / 1000 for cell in cells]
    records = [lab_record(cell, time) for cell, time in zip(cells, times, strict=True)]
    return lambda: check_records(records)


def interval_of(number):
    return lambda: interval([float(run) for run in range(10 * number)])


def python_calls(action):
    """Return how many calls of Python functions, and of built-in ones, an action makes."""
    events = []
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        action()
    finally:
        sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in events)


@pytest.mark.parametrize("work", [check_repeats, interval_of])
def test_four_times_the_repeats_need_four_times_the_calls(work):
    few, many = python_calls(work(50)), python_calls(work(200))
    assert many < 4.8 * few
