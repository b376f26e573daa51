"""Where an epoch went: phases by hand, and that a wrong clock or a dropped phase is caught."""

import msgspec
import pytest
import torch

from hpml_jobs import checks
from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.validation import InvalidRecordError, decode
from hpml_jobs.study.files import encode
from hpml_jobs.worker import epochs
from hpml_jobs.worker.epochs import instrumented_epoch
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import IterationMarks, split_phases
from hpml_jobs.worker.instruments.timing import HostClock, Window
from hpml_jobs.worker.strategies import Single, this_place
from hpml_jobs.worker.training import make_training
from tests.unit import builders as values

from .conftest import SMALL_DIGITS, change_workload, cpu_cell

CPU = (torch.device("cpu"),)
MS = 1_000_000


class Iteration:
    """Stamps in milliseconds of one iteration, and its collectives."""

    def __init__(self, *at_ms: int) -> None:
        self.moments = IterationMarks(*(MS * at for at in at_ms))


def epoch(iterations: list[IterationMarks], end_ms: int) -> Window:
    window = Window(CPU, HostClock(), lambda: None)
    window.start, window.end = 0, MS * end_ms
    return window


def ledger(*collectives: tuple[int, str, str, int, int]) -> Ledger:
    """(iteration, kind, purpose, start ms, end ms) of messages of 1,000 fp32 elements each."""
    found = Ledger(HostClock())
    for iteration, kind, purpose, start, end in collectives:
        found.iteration = iteration
        entry = found.begin(kind, purpose, torch.zeros(1000))
        entry.start, entry.end = MS * start, MS * end
    return found


def test_overlapped_buckets_count_once_and_only_tail_is_exposed():
    # batch 10, copied 12, forward 32, backward returned 72, exchanged 72, stepped 80
    moments = [Iteration(10, 12, 32, 72, 72, 80).moments]
    seen = ledger(
        (0, "broadcast", "buffers", 13, 16),
        (0, "all_reduce", "gradients", 40, 55),
        (0, "all_reduce", "gradients", 50, 60),
        (0, "all_reduce", "gradients", 62, 70),  # the last gradient is there at 62
    )
    found = split_phases(epoch(moments, 85), moments, seen, overlaps=True)
    phases = found.phases
    assert phases.stall_s == pytest.approx(0.015)  # 10 before, 5 after the last step
    assert phases.h2d_s == pytest.approx(0.002)
    assert phases.forward_s == pytest.approx(0.020)
    assert phases.comm_exposed_s == pytest.approx(0.008)
    assert phases.backward_s == pytest.approx(0.032)  # 30 until 62, 2 of copying buckets back
    assert phases.optimizer_s == pytest.approx(0.008)
    assert phases.comm_forward_s == pytest.approx(0.003)
    assert sum(phases.parts_s) == pytest.approx(0.085)
    assert phases.exposed_s == pytest.approx(0.011)
    assert found.communication.gradients_s == pytest.approx(0.028)  # 40..60 and 62..70
    assert found.communication.total_s == pytest.approx(0.031)
    assert found.communication.bytes_of("gradients") == 12_000
    assert found.duration_s.tolist() == pytest.approx([0.003, 0.015, 0.010, 0.008])
    assert found.start_s.tolist() == pytest.approx([0.003, 0.030, 0.040, 0.052])
    # the second bucket waited in line until 55: a late rank must not count twice in the skew
    assert found.served_s.tolist() == pytest.approx([0.003, 0.015, 0.005, 0.008])


def test_earlier_bucket_that_ends_last_is_exposed():
    moments = [Iteration(0, 0, 10, 50, 50, 50).moments]
    seen = ledger((0, "all_reduce", "gradients", 20, 48), (0, "all_reduce", "gradients", 30, 40))
    found = split_phases(epoch(moments, 50), moments, seen, overlaps=True)
    assert found.phases.comm_exposed_s == pytest.approx(0.018)


def test_no_overlap_exposes_all_and_separates_packing():
    # backward returned at 40; flatten until 42, all-reduce until 52, copy back until 55
    moments = [Iteration(0, 1, 11, 40, 55, 60).moments]
    seen = ledger((0, "all_reduce", "gradients", 42, 52))
    found = split_phases(epoch(moments, 60), moments, seen, overlaps=False)
    phases = found.phases
    assert phases.comm_exposed_s == pytest.approx(0.010)
    assert phases.pack_s == pytest.approx(0.005)
    assert phases.backward_s == pytest.approx(0.034)
    assert phases.exposed_s == found.communication.total_s == pytest.approx(0.010)
    assert sum(phases.parts_s) == pytest.approx(0.060)


def test_two_iterations_are_counted_separately():
    moments = [Iteration(1, 2, 3, 9, 9, 10).moments, Iteration(12, 13, 14, 20, 20, 21).moments]
    seen = ledger((0, "all_reduce", "gradients", 5, 8), (1, "all_reduce", "gradients", 16, 19))
    found = split_phases(epoch(moments, 22), moments, seen, overlaps=True)
    assert found.parts.shape == (2, 10)
    assert found.phases.stall_s == pytest.approx(0.004)
    assert found.communication.messages[0].count == 2
    assert sum(found.phases.parts_s) == pytest.approx(0.022)


@pytest.fixture
def training(tmp_path, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    cell = cpu_cell(
        change_workload(SMALL_DIGITS, images=256, limit=256), batch=32, loader_workers=0
    )
    return make_training(cell, Single(cell, this_place(cell), CPU), tmp_path)


def test_real_epoch_phases_close_within_one_percent(training):
    found = instrumented_epoch(training, 0).epoch
    assert found.phases is not None
    assert found.closure < 0.01
    assert sum(found.phases.parts_s) == pytest.approx(found.epoch_s, rel=0.01)


def test_wrong_clock_fails_closure(training, monkeypatch):
    class Slow(HostClock):
        def seconds(self, first, then):
            return 0.9 * super().seconds(first, then)

    monkeypatch.setattr(epochs, "clock_for", lambda devices, events: Slow())
    wrong = instrumented_epoch(training, 0).epoch
    assert wrong.closure == pytest.approx(0.1, abs=0.01)
    assert "closure" in failed(with_instrumented(wrong))


def test_dropped_phase_fails_closure(training):
    whole = instrumented_epoch(training, 0).epoch
    dropped = msgspec.structs.replace(whole.phases, backward_s=0.0)
    with pytest.raises(InvalidRecordError, match="is not that of the phases"):
        decode(encode(with_instrumented(msgspec.structs.replace(whole, phases=dropped))), "r")
    shown = 1 - sum(dropped.parts_s) / whole.epoch_s
    told = msgspec.structs.replace(whole, phases=dropped, closure=shown)
    assert shown > 0.1
    assert "closure" in failed(with_instrumented(told))


def with_instrumented(epoch):
    """A valid record of one process whose instrumented epoch is this one."""
    cell = cpu_cell(
        change_workload(SMALL_DIGITS, images=256, limit=256),
        batch=32,
        protocol=Protocol.FULL,
        epochs=3,
    )
    record = values.a_record(cell)
    (rank,) = record.ranks
    rank = msgspec.structs.replace(rank, epochs=(*rank.epochs[:2], epoch))
    return msgspec.structs.replace(record, ranks=(rank,))


def failed(record):
    found = checks.check_record(record)
    return [result.check for result in found if result.level is checks.Level.FAIL]
