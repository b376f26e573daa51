"""Iterations and phases of a script from what was seen of it, in nanoseconds of the host."""

from types import SimpleNamespace

import pytest
import torch

from hpml_jobs.core.measurements import Role
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import split_phases
from hpml_jobs.worker.instruments.timing import HostClock, Window
from hpml_jobs.worker.observer.iterations import split_iterations
from hpml_jobs.worker.observer.marks import mark_phases
from hpml_jobs.worker.observer.meters import clock_of, devices_of
from hpml_jobs.worker.observer.passes import Pass
from hpml_jobs.worker.observer.recording import Event, Kind, Recording

SIZE = 4
NAMES = {"r": Kind.REQUEST, "b": Kind.BATCH, "e": Kind.END, "s": Kind.STEPPED}
NAMES |= {"R": Kind.REQUEST, "B": Kind.BATCH, "E": Kind.END, "m": Kind.MADE}
NAMES |= {"f": Kind.FORWARD, "F": Kind.FORWARDED, "S": Kind.STEP}


def recording(letters, *, loader=True):
    """Events 10 ns apart, from 10 on; the window is from 0 to the last one.

    A dot is time that passes, and R, B, E are of a second loader.
    """
    one_pass, second = Pass(loader=None, steps=letters.count("s")), Pass(loader=None)
    window = Window(HostClock(), lambda: None)
    window.start, window.end = 0, 10 * len(letters)
    events = []
    for number, letter in enumerate(letters, 1):
        if letter == ".":
            continue
        source = one_pass if letter in "rbem" and loader else None
        source = second if letter in "RBE" else source
        size = SIZE if letter in "bB" else 0
        events.append(Event(NAMES[letter], 10 * number, source, size))
    return Recording(window, Role.TIMED, HostClock(), events, owner=one_pass)


def split(letters, *, ahead=False, loader=True):
    seen = split_iterations(recording(letters, loader=loader), ahead=ahead)
    return seen, [round(1e9 * seconds) for seconds in seen.times.step_s]


def test_iteration_ends_where_next_batch_is_asked_for():
    #                    r b s  r b s  r e: asked for at 10, 40 and 70
    seen, step_ns = split("rbs" + "rbs" + "re")
    assert step_ns == [40, 30]
    assert seen.samples == [SIZE, SIZE]
    assert [round(1e9 * s) for s in seen.times.stall_s] == [10, 10]
    # from 70 to 80, to hear that it is over
    assert round(1e9 * seen.times.last_stall_s) == 10
    assert seen.times.batch_stall_s is None


def test_accumulated_batches_are_one_iteration():
    seen, step_ns = split("rbrbs" * 3 + "re")
    assert (seen.accumulate, seen.samples) == (2, [2 * SIZE] * 3)
    assert step_ns == [60, 50, 50]
    assert len(seen.times.batch_stall_s) == 6


def test_batches_left_without_step_belong_to_last_iteration():
    seen, step_ns = split("rbrbs" * 2 + "rb" + "re")
    assert seen.samples == [2 * SIZE, 3 * SIZE]
    assert (step_ns, seen.times.last_stall_s) == ([60, 80], 0)


def test_skipped_step_does_not_hide_an_iteration():
    """GradScaler skips the optimizer's step where a gradient overflows."""
    seen, step_ns = split("rbs" * 2 + "rb" + "rbs" * 2 + "re")
    assert seen.samples == [SIZE] * 5
    assert step_ns == [40, 30, 20, 30, 30]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_loader_that_is_a_batch_ahead(accumulate):
    """Seven iterations, of which the last has no batch to ask for."""
    usual = "rb" * accumulate + "s"
    letters = "rb" + usual * 6 + usual[:-2] + "es"
    seen, step_ns = split(letters, ahead=accumulate > 1)
    assert seen.samples == [accumulate * SIZE] * 7
    assert sum(step_ns) == 10 * len(letters)
    assert (seen.accumulate, len(seen.ends), seen.ahead) == (accumulate, 7, True)


def test_step_is_an_iteration_also_without_a_new_batch():
    seen, step_ns = split("rbss" * 3 + "re")
    assert seen.samples == [SIZE, 0] * 3
    assert step_ns == [30, *[20] * 5]


def test_every_loader_is_waited_for():
    #               zip, and a loader that is asked in the step
    for letters in ("R.Br.bs" * 2 + "re", "r.bR.Bs" * 2 + "re"):
        seen, _ = split(letters)
        assert seen.samples == [SIZE, SIZE]
        assert sum(round(1e9 * s) for s in seen.times.stall_s) == 2 * 40
    seen, _ = split("rR..B.bs" * 2 + "re")  # a loader that reads another one
    assert [round(1e9 * s) for s in seen.times.stall_s] == [60, 60]


def test_time_between_iterator_and_first_batch_is_no_wait():
    seen, _ = split("r.m....r.bs" + "rbs" + "re")
    assert [round(1e9 * s) for s in seen.times.stall_s] == [40, 10]


def test_window_ends_when_all_gpus_of_the_parameters_have_done_their_work(monkeypatch):
    gpus = [torch.device("cuda", number) for number in (1, 0)]
    places = [gpus[0], gpus[1], torch.device("cpu"), gpus[0]]
    groups = [{"params": [SimpleNamespace(device=place)]} for place in places]
    devices = devices_of(SimpleNamespace(param_groups=groups))
    synchronized = []
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: None)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronized.append)
    clock_of(devices).synchronize()
    assert synchronized == gpus


def phases(letters, *, loader=True):
    seen, _ = split(letters, loader=loader)
    return mark_phases(0, seen)


def test_marks_are_batch_forward_step_and_next_request():
    steps = phases("rbfFSs" * 2 + "re")
    assert [tuple(step.marks) for step in steps] == [
        (20, 30, 40, 50, 50, 70),
        (80, 90, 100, 110, 110, 130),
    ]


def parts_ns(letters):
    """Stall, h2d, forward, backward, exposed communication, optimizer, and other."""
    seen = recording(letters)
    iterations = split_iterations(seen)
    steps = mark_phases(0, iterations)
    phases = split_phases(
        seen.window,
        [step.marks for step in steps],
        Ledger(HostClock()),
        overlaps=True,
        accumulate=max(1, iterations.accumulate),
        gaps=[step.gaps for step in steps],
    ).phases
    assert phases.stall_s == pytest.approx(
        iterations.times.stall_s.sum() + iterations.times.last_stall_s
    )
    assert min(phases.parts_s) >= 0
    return [round(1e9 * seconds) for seconds in phases.parts_s]


@pytest.mark.parametrize(
    ("middle", "expected"),
    [
        ("rbfFSs", (10, 0, 10, 10, 0, 10, 20)),
        ("r.b..f.F..S.s...", (20, 0, 20, 30, 0, 20, 70)),
        ("R.Br.b.fFSs", (40, 0, 10, 10, 0, 10, 40)),  # zip
        # another loader before the forward pass
        (
            "rbR.B.fFSs",
            (30, 0, 10, 10, 0, 10, 40),
        ),
        ("rbfR.BF.S.s", (30, 0, 20, 20, 0, 20, 20)),  # inside of it
        ("rbfF.R.BS.s", (30, 0, 10, 30, 0, 20, 20)),
        ("rbfFSs.R.B.", (30, 0, 10, 10, 0, 10, 50)),  # after the step, as a test
    ],
)
def test_what_nothing_accounts_for_is_other(middle, expected):
    """Of the middle one of three iterations."""
    short, usual = (
        parts_ns("rbfFSs" * 2 + "re"),
        parts_ns("rbfFSs" + middle + "rbfFSs" + "re"),
    )
    assert tuple(b - a for a, b in zip(short, usual, strict=True)) == expected
    assert sum(expected) == 10 * len(middle)


def test_without_loader_batch_begins_where_last_step_ended():
    steps = phases("bfFSs" * 2, loader=False)
    assert [step.marks.batch for step in steps] == [0, 50]


def test_phases_that_cannot_be_told_apart_have_a_reason():
    assert "forward pass" in phases("rbSs" * 2)
    assert "closure" in phases("rbSfFs" * 2)
    assert "ahead" in phases("rb" + "rbrbfFfFSs" * 3)
    assert "other numbers" in phases("rbfFrbfFSs" * 3 + "rbfFSs" + "rbfFrbfFSs")
