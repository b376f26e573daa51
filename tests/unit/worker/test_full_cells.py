"""Cells of protocol=full with a trace: of one process, and of two under each strategy."""

import gzip

import numpy as np
import pytest

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.formulas import expected_bytes
from hpml_jobs.core.measurements import CollectiveKind, IterationPhases
from hpml_jobs.core.strategies import Sharded, Strategy, SyncBuffers

from .conftest import EXCHANGING, cpu_cell, run_forked, write_cell_in
from .test_ranks import DIGITS_FLOP
from .traces import content_of, events_in_window


def finish(server, root, **settings):
    """Return a cell that has ended well."""
    cell = cpu_cell(protocol=Protocol.FULL, evaluate=True, **settings)
    finished = run_forked(server, write_cell_in(root, cell, trace=True))
    assert finished.code == 0, finished.stderr
    return finished


@pytest.fixture(scope="module")
def alone(rank_server, tmp_path_factory):
    return finish(rank_server, tmp_path_factory.mktemp("alone"), epochs=4)


@pytest.fixture(scope="module", params=EXCHANGING)
def pair(request, rank_server, tmp_path_factory):
    root = tmp_path_factory.mktemp("pair")
    return finish(rank_server, root, gpus=2, strategy=request.param, epochs=3)


def messages_in_trace(finished, rank, processes):
    """Return the bytes of each message in a rank's trace, None where torch has them not."""
    content = gzip.decompress(finished.attempt.trace_of(rank).read_bytes())
    events = events_in_window(content, processes)
    contents = [content_of(event) for event in events if event.is_collective]
    return [content and content.bytes for content in contents]


def test_single_process_has_no_communication(alone):
    record = alone.record
    assert alone.stderr == ""
    (rank,) = record.ranks
    roles = [epoch.role for epoch in rank.epochs]
    assert roles == ["warmup", "timed", "instrumented", "plain"]
    assert {epoch.iterations for epoch in rank.epochs} == {8}
    assert rank.phases.exposed_s == 0
    phases_s = sum(rank.phases.parts_s)
    assert record.compute_s + rank.phases.stall_s == pytest.approx(phases_s)
    assert (rank.communication, record.exchange, record.comm_cost_s) == (None,) * 3
    assert record.model.flop_per_sample == DIGITS_FLOP
    assert (record.microbenchmark, rank.microbenchmark_scheduling) == (None, None)
    assert messages_in_trace(alone, 0, 1) == []
    with np.load(alone.attempt.iterations) as arrays:
        assert arrays["parts_s"].shape == (1, 8, len(IterationPhases._fields))
        assert "collective_s" not in arrays


def test_two_processes_measure_communication(pair):
    record = pair.record
    strategy = record.cell.strategy
    by_root = strategy is Strategy.GATHER_SCATTER
    sends_buffers = strategy.traffic.sync_buffers is SyncBuffers.ON
    assert record.model is not None
    for rank in record.ranks:
        roles = [epoch.role for epoch in rank.epochs]
        assert roles == ["warmup", "timed", "instrumented", "unsynced"]
        communication = rank.communication
        expected = expected_bytes(4, record.model.gradient_bytes, 1 + by_root)
        assert communication.bytes_of("gradients") == expected
        assert rank.phases.exposed_s <= 1.01 * communication.total_s
    assert len({rank.parameters_hash for rank in record.ranks}) == 1
    assert len({rank.buffers_hash for rank in record.ranks}) == 2
    first, second = record.ranks
    if sends_buffers:
        buffers = [m for m in first.communication.messages if m.purpose == "buffers"]
        assert [(m.kind, m.dtype, m.elements, m.count) for m in buffers] == [
            ("broadcast", "float32", 224, 4),
            ("broadcast", "int64", 3, 4),
        ]
        # evaluation broadcasts, and restores them
        assert first.test_loss == second.test_loss
    else:
        assert first.communication.bytes_of("buffers") == 0
        assert first.phases.exposed_s == pytest.approx(first.communication.total_s)
        assert first.test_loss != second.test_loss
    busy_s = min(rank.communication.total_s for rank in record.ranks)
    assert 0 < record.exchange.net_s <= 1.001 * busy_s  # a sum of minima
    assert (record.net_s is None, record.skew_s is None) == (by_root, by_root)
    assert (record.rooted_s is not None) is (by_root or sends_buffers)
    assert_shards(record)
    assert record.comm_cost_resolution_s > 0
    with np.load(pair.attempt.iterations) as arrays:
        shape = (2, record.exchange.collectives)
        assert (
            arrays["collective_s"].shape == arrays["collective_start_s"].shape == shape
        )
        for rank in record.ranks:
            assert_recomputed(rank, {name: arrays[name] for name in arrays})


def assert_shards(record):
    """Ranks of fsdp and zero1 keep parts of the model, and send what follows from its shapes."""
    held = [rank.held_elements for rank in record.ranks]
    if record.cell.strategy.traffic.shards is Sharded.NOTHING:
        assert (held, record.model.expected) == ([None, None], ())
        return
    assert sum(held) == record.model.parameters
    for rank in record.ranks:
        for volume in record.model.expected:
            sent = [m for m in rank.communication.messages if m.kind is volume.kind]
            of_purpose = [
                m.bytes * m.count for m in sent if m.purpose is volume.purpose
            ]
            assert sum(of_purpose) == 4 * volume.bytes > 0


def assert_recomputed(rank, arrays):
    """A rank's phases and messages follow from iterations.npz alone, whatever the order of calls.

    The positions in parts_s are those of docs/formulas.md.
    """
    number, phases = rank.rank, rank.phases
    totals = arrays["parts_s"][number].sum(axis=0)
    stall_s = totals[0] + arrays["parts_last_stall_s"][number]
    assert stall_s == pytest.approx(phases.stall_s, rel=1e-12)
    assert totals[1:6] == pytest.approx(phases.parts_s[1:6], rel=1e-12)
    counted = {}
    kinds, purposes = arrays["kinds"].tolist(), arrays["purposes"].tolist()
    for kind, purpose, size, duration_s in zip(
        arrays["collective_kind"][number],
        arrays["collective_purpose"][number],
        arrays["collective_bytes"][number],
        arrays["collective_s"][number],
        strict=True,
    ):
        key = (kinds[kind], purposes[purpose], int(size))
        count, busy_s = counted.get(key, (0, 0.0))
        counted[key] = (count + 1, busy_s + duration_s)
    recorded = {}
    for message in rank.communication.messages:
        key = (message.kind.value, message.purpose.value, message.bytes)
        count, busy_s = recorded.get(key, (0, 0.0))
        recorded[key] = (count + message.count, busy_s + message.busy_s)
    assert {key: count for key, (count, _) in counted.items()} == {
        key: count for key, (count, _) in recorded.items()
    }
    for key, (_, busy_s) in recorded.items():
        assert counted[key][1] == pytest.approx(busy_s, rel=1e-9)
    assert (arrays["collective_iteration"][number] >= 0).all()


def test_cell_measures_the_sizes_that_it_sends(pair):
    record = pair.record
    benchmark, communication = record.microbenchmark, record.ranks[0].communication
    windows_s = [rank.microbenchmark_scheduling.window_s for rank in record.ranks]
    assert windows_s[0] > benchmark.seconds  # which are those of rank 0
    assert min(windows_s) > 0
    kind = communication.gradient_kind or CollectiveKind.ALL_REDUCE
    points = [point for point in benchmark.points if point.kind is kind]
    cell_sizes = {m.bytes for m in communication.messages if m.kind is kind}
    assert {point.bytes for point in points if point.sent} == cell_sizes
    assert benchmark.largest_asked_bytes == 2**28
    for point in points:
        assert (point.trials, point.min_s <= point.lower_quartile_s) == (20, True)
        assert point.lower_quartile_s <= point.median_s


def test_trace_has_the_messages_of_the_instruments(pair):
    """As many iterations as the instrumented epoch has, of the same sizes."""
    for rank in pair.record.ranks:
        counted = rank.communication.messages
        traced = messages_in_trace(pair, rank.rank, 2)
        assert len(traced) == sum(message.count for message in counted) > 0
        if None not in traced:
            assert sum(traced) == sum(m.count * m.bytes for m in counted)
