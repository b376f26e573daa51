"""Phases of hand-made stamps; a wrong clock or a dropped phase fails the closure check."""

from itertools import count

import msgspec
import pytest
import torch

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.results.checks import study as checks
from hpml_jobs.study.files import encode
from hpml_jobs.worker.epochs import instrumented_epoch
from hpml_jobs.worker.instruments import timing
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import split_phases
from hpml_jobs.worker.instruments.recorder import IterationMarks
from hpml_jobs.worker.instruments.timing import HostClock, Window
from hpml_jobs.worker.process_group import SingleProcess, read_placement
from hpml_jobs.worker.training import make_training
from tests.unit.builders import a_record

from .conftest import SMALL_DIGITS, change_workload, cpu_cell

CPU = (torch.device("cpu"),)
MS = 1_000_000


def marks_at(*at_ms):
    """Return the marks of one iteration at these milliseconds."""
    return IterationMarks(*(MS * at for at in at_ms))


def window_until(end_ms):
    window = Window(HostClock(), lambda: None)
    window.start, window.end = 0, MS * end_ms
    return window


def ledger(*collectives):
    """Return a ledger of (iteration, kind, purpose, start ms, end ms), 1,000 fp32 elements each."""
    filled = Ledger(HostClock())
    for iteration, kind, purpose, start, end in collectives:
        filled.iteration = iteration
        collective = filled.begin(
            CollectiveKind(kind), Purpose(purpose), torch.zeros(1000)
        )
        collective.start, collective.end = MS * start, MS * end
    return filled


def test_overlapped_buckets_count_once_and_only_tail_is_exposed():
    # batch 10, copied 12, forward 32, backward returned 72, exchanged 72, stepped 80
    marks = [marks_at(10, 12, 32, 72, 72, 80)]
    collectives = ledger(
        (0, "broadcast", "buffers", 13, 16),
        (0, "all_reduce", "gradients", 40, 55),
        (0, "all_reduce", "gradients", 50, 60),
        (0, "all_reduce", "gradients", 62, 70),  # the last gradient is ready at 62
    )
    split = split_phases(window_until(85), marks, collectives, overlaps=True)
    phases = split.phases
    # 10 before the first step, 5 after the last
    assert phases.stall_s == pytest.approx(0.015)
    assert phases.h2d_s == pytest.approx(0.002)
    assert phases.forward_s == pytest.approx(0.020)
    assert phases.comm_exposed_s == pytest.approx(0.008)
    # 30 until 62, 2 of copying buckets back
    assert phases.backward_s == pytest.approx(0.032)
    assert phases.optimizer_s == pytest.approx(0.008)
    assert phases.comm_forward_s == pytest.approx(0.003)
    assert sum(phases.parts_s) == pytest.approx(0.085)
    assert phases.exposed_s == pytest.approx(0.011)
    assert split.communication.gradients_s == pytest.approx(0.028)  # 40..60 and 62..70
    assert split.communication.total_s == pytest.approx(0.031)
    assert split.communication.bytes_of("gradients") == 12_000
    assert split.duration_s.tolist() == pytest.approx([0.003, 0.015, 0.010, 0.008])
    assert split.start_s.tolist() == pytest.approx([0.003, 0.030, 0.040, 0.052])
    # the second bucket was queued until 55: a late rank must not count twice in the skew
    assert split.served_s.tolist() == pytest.approx([0.003, 0.015, 0.005, 0.008])
    assert split.exposed_s.tolist() == pytest.approx([0.003, 0.0, 0.0, 0.008])


def test_earlier_bucket_that_ends_last_is_exposed():
    marks = [marks_at(0, 0, 10, 50, 50, 50)]
    collectives = ledger(
        (0, "all_reduce", "gradients", 20, 48), (0, "all_reduce", "gradients", 30, 40)
    )
    split = split_phases(window_until(50), marks, collectives, overlaps=True)
    assert split.phases.comm_exposed_s == pytest.approx(0.018)
    # the other one is queued
    assert split.exposed_s.tolist() == pytest.approx([0.018, 0.0])


def test_no_overlap_exposes_all_and_separates_packing():
    # backward returned at 40; flatten until 42, all-reduce until 52, copy back until 55
    marks = [marks_at(0, 1, 11, 40, 55, 60)]
    collectives = ledger((0, "all_reduce", "gradients", 42, 52))
    split = split_phases(window_until(60), marks, collectives, overlaps=False)
    phases = split.phases
    assert phases.comm_exposed_s == pytest.approx(0.010)
    assert phases.pack_s == pytest.approx(0.005)
    assert phases.backward_s == pytest.approx(0.034)
    assert phases.exposed_s == split.communication.total_s == pytest.approx(0.010)
    assert sum(phases.parts_s) == pytest.approx(0.060)


def test_work_is_recorded_by_blocks_without_exposed_communication():
    """Iteration n works for n + 8 ms, of 10 + n ms; ten of them are ten blocks."""
    marks, collectives, at = [], [], 0
    for number in range(10):
        marks.append(
            marks_at(
                at + 2,
                at + 2,
                at + 4,
                at + 6 + number,
                at + 8 + number,
                at + 10 + number,
            )
        )
        collectives.append(
            (number, "all_reduce", "gradients", at + 6 + number, at + 8 + number)
        )
        at += 10 + number
    split = split_phases(window_until(at), marks, ledger(*collectives), overlaps=True)
    assert split.phases.work_blocks_s == pytest.approx(
        [0.008 + n / 1000 for n in range(10)]
    )
    few = split_phases(
        window_until(10), marks[:1], ledger(collectives[0]), overlaps=True
    )
    assert few.phases.work_blocks_s is None


def test_gathers_are_exposed_only_while_computing_waits():
    # batch 0, copied 1, forward 20, backward returned 50, exchanged 50, stepped 55
    marks = [marks_at(0, 1, 20, 50, 50, 55)]
    collectives = ledger(
        (0, "all_gather", "parameters", 1, 5),  # waited for from 2 to 6: 3 ms exposed
        # behind forward; from 11 to 13: 1 ms exposed
        (
            0,
            "all_gather",
            "parameters",
            7,
            12,
        ),
        # in backward, from 21 to 25: 3 ms exposed
        (
            0,
            "all_gather",
            "parameters",
            20,
            24,
        ),
        (0, "reduce_scatter", "gradients", 30, 38),  # from 36 to 38: 2 ms exposed
        # after the last gradient: 5 ms exposed
        (
            0,
            "reduce_scatter",
            "gradients",
            44,
            49,
        ),
    )
    for start, end in ((2, 6), (11, 13), (21, 25), (36, 39)):
        collectives.wait(MS * start, MS * end)
    collectives.waits = [wait._replace(iteration=0) for wait in collectives.waits]
    split = split_phases(window_until(55), marks, collectives, overlaps=True)
    phases = split.phases
    assert phases.comm_forward_s == pytest.approx(0.004)
    assert phases.comm_exposed_s == pytest.approx(0.010)
    assert phases.backward_s == pytest.approx(0.020)
    assert split.communication.total_s == pytest.approx(0.026)
    assert split.exposed_s.tolist() == pytest.approx(
        [0.003, 0.001, 0.003, 0.002, 0.005]
    )
    assert sum(phases.parts_s) == pytest.approx(0.055)


def test_broadcasts_of_the_optimizer_are_exposed():
    marks = [marks_at(0, 1, 20, 45, 50, 60)]
    collectives = ledger(
        (0, "all_reduce", "gradients", 40, 48), (0, "broadcast", "parameters", 53, 59)
    )
    split = split_phases(window_until(60), marks, collectives, overlaps=True)
    phases = split.phases
    assert split.exposed_s.tolist() == pytest.approx([0.008, 0.006])
    assert phases.optimizer_s == pytest.approx(0.010)
    assert phases.comm_optimizer_s == pytest.approx(0.006)
    assert phases.exposed_s == pytest.approx(0.014)
    assert phases.compute_s + phases.comm_s == pytest.approx(0.060)


@pytest.fixture
def training(tmp_path, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    cell = cpu_cell(
        change_workload(SMALL_DIGITS, images=256, limit=256), batch=32, loader_workers=0
    )
    return make_training(cell, SingleProcess(cell, read_placement(cell), CPU), tmp_path)


@pytest.fixture
def ticks(monkeypatch):
    """Let every stamp of the host's clock be a millisecond after the one before."""
    numbers = count()
    taken = [0]

    def stamp():
        taken[0] = MS * next(numbers)
        return taken[0]

    monkeypatch.setattr(HostClock, "stamp", staticmethod(stamp))
    monkeypatch.setattr(timing, "perf_counter_ns", lambda: taken[0])


def test_phases_of_an_epoch_add_up_to_it(training, ticks):
    epoch = instrumented_epoch(training, 0).epoch
    assert epoch.phases is not None
    assert epoch.epoch_s > 0.04  # five stamps in each of eight iterations
    assert sum(epoch.phases.parts_s) == pytest.approx(epoch.epoch_s)


def test_wrong_clock_fails_closure(training, ticks, monkeypatch):
    class SlowClock(HostClock):
        def seconds(self, first, then):
            return 0.9 * super().seconds(first, then)

    monkeypatch.setattr(training.strategy, "clock", lambda stamps: SlowClock())
    wrong = instrumented_epoch(training, 0).epoch
    assert wrong.closure == pytest.approx(0.1)
    assert "closure" in failed(with_instrumented(wrong))


def test_dropped_phase_fails_closure(training, ticks):
    whole = instrumented_epoch(training, 0).epoch
    dropped = msgspec.structs.replace(whole.phases, backward_s=0.0)
    with pytest.raises(InvalidRecordError, match="is not that of the phases"):
        decode(
            encode(with_instrumented(msgspec.structs.replace(whole, phases=dropped))),
            "r",
        )
    shown = 1 - sum(dropped.parts_s) / whole.epoch_s
    corrected = msgspec.structs.replace(whole, phases=dropped, closure=shown)
    assert shown > 0.1
    assert "closure" in failed(with_instrumented(corrected))


def with_instrumented(epoch):
    """Return a valid record of one process with this instrumented epoch."""
    cell = cpu_cell(
        change_workload(SMALL_DIGITS, images=256, limit=256),
        batch=32,
        protocol=Protocol.FULL,
        epochs=3,
    )
    record = a_record(cell)
    (rank,) = record.ranks
    rank = msgspec.structs.replace(rank, epochs=(*rank.epochs[:2], epoch))
    return msgspec.structs.replace(record, ranks=(rank,))


def failed(record):
    results = checks.check_record(record)
    return [result.check for result in results if result.level is checks.Level.FAIL]
