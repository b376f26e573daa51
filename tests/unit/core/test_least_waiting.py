"""The rank that a cell shows: the one that waits least; exchange and waiting apart."""

import msgspec
import numpy as np
import pytest

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Exchange, Phases
from hpml_jobs.core.record import Record
from hpml_jobs.report.key_numbers import key_numbers
from hpml_jobs.worker.instruments.phases import IterationPhases
from hpml_jobs.worker.results import KINDS, split_exchange
from tests.unit.builders import a_cell, a_record

PAIR = a_cell(gpus=2)
replace = msgspec.structs.replace


def with_epochs(record: Record, role: str, *changes: dict) -> Record:
    """The record with other fields in the epoch of a role, one dict per rank."""
    ranks = []
    for rank, fields in zip(record.ranks, changes, strict=True):
        epochs = tuple(replace(e, **fields) if e.role == role else e for e in rank.epochs)
        ranks.append(replace(rank, epochs=epochs))
    return replace(record, ranks=tuple(ranks))


def epoch_of(epoch_s: float, forward_s: float, exposed_s: float, broadcast_s: float = 0.0) -> dict:
    """Fields of an instrumented epoch of one rank; the rest of it is stall."""
    phases = Phases(
        stall_s=epoch_s - forward_s - exposed_s,
        h2d_s=0.0,
        forward_s=forward_s,
        backward_s=0.0,
        comm_exposed_s=exposed_s,
        optimizer_s=0.0,
        comm_forward_s=broadcast_s,
    )
    return {"epoch_s": epoch_s, "phases": phases, "closure": 0.0}


@pytest.mark.parametrize("longest", [0, 1])
@pytest.mark.parametrize("late", [0, 1])
def test_cell_is_late_rank_whichever_ends_last(late, longest):
    """Microseconds between the ends of the ranks decide nothing."""
    epochs = [epoch_of(2.0, 0.3, 1.5), epoch_of(2.0, 1.7, 0.1)]
    epochs = epochs if late == 1 else epochs[::-1]
    epochs[longest] = epochs[longest] | {"epoch_s": 2.0 + 7e-5}
    record = with_epochs(a_record(PAIR), "instrumented", *epochs)
    assert record.least_waiting.rank == late
    assert (record.compute_s, record.comm_exposed_s) == pytest.approx((1.7, 0.1))


def test_waiting_inside_forward_counts_in_choice():
    """ddp's early rank waits in its broadcast of buffers."""
    epochs = epoch_of(2.0, 1.8, 0.1, broadcast_s=1.5), epoch_of(2.0, 0.3, 0.2)
    assert with_epochs(a_record(PAIR), "instrumented", *epochs).least_waiting.rank == 1


def test_ranks_that_wait_equally_show_smallest_number():
    epochs = [epoch_of(2.0 + rank, 1.0, 0.5) for rank in range(2)]
    assert with_epochs(a_record(PAIR), "instrumented", *epochs).least_waiting.rank == 0


def test_slow_loader_on_one_rank_is_not_communication():
    """The other rank waits in a collective; Table 2 is of the rank that waits for its data."""
    epochs = epoch_of(1.82, 0.24, 1.54), epoch_of(1.82, 0.24, 0.14)
    record = with_epochs(a_record(PAIR), "instrumented", *epochs)
    assert record.phases.stall_s == pytest.approx(1.44)
    assert (record.compute_s, record.comm_exposed_s) == pytest.approx((0.24, 0.14))


@pytest.mark.parametrize("protocol", [Protocol.LAB, Protocol.FULL])
def test_stall_is_of_rank_with_largest_stall(protocol):
    record = a_record(a_cell(gpus=2, protocol=protocol))
    timed = {"epoch_s": 1.9, "stall_s": 1.5}, {"epoch_s": 2.0, "stall_s": 0.01}
    record = with_epochs(record, "timed", *timed)
    assert (record.epoch_s, record.stall_s) == (2.0, 1.5)
    assert record.train_s == pytest.approx(0.4)
    equal = with_epochs(record, "timed", *[{"epoch_s": 2.0, "stall_s": 0.5}] * 2)
    assert equal.most_stalled.rank == 0


def test_cost_and_overhead_use_longest_epochs():
    epochs = epoch_of(2.2, 1.8, 0.1), epoch_of(2.0, 0.3, 0.2)
    record = with_epochs(a_record(PAIR, epoch_s=2.0), "instrumented", *epochs)
    record = with_epochs(record, "unsynced", {"epoch_s": 1.0}, {"epoch_s": 1.5})
    assert record.overhead == pytest.approx(0.1)
    assert record.comm_cost_s == pytest.approx(0.5)


def parts(*exposed_by_rank: list[float]) -> np.ndarray:
    """Arrays of the ranks with this exposed time per iteration, half of it in forward."""
    zeros = IterationPhases(*[0.0] * len(IterationPhases._fields))
    return np.array(
        [
            [zeros._replace(comm_exposed_s=s / 2, comm_forward_s=s / 2) for s in exposed]
            for exposed in exposed_by_rank
        ]
    )


def test_exchange_is_least_exposed_time_of_each_iteration():
    """Ranks that are late in turn wait for each other: no rank has the exchange alone."""
    collectives = np.array([[0.3, 0.1], [0.1, 0.2]])
    exchange = split_exchange(collectives, parts([0.3, 0.1], [0.1, 0.2]))
    assert exchange.exchange_s == pytest.approx(0.2)
    assert exchange.net_s == pytest.approx(0.2)
    assert exchange.tells_kinds is False
    assert split_exchange(collectives, None).exchange_s is None
    assert split_exchange(collectives[:1], parts([0.3, 0.1])) is None


def test_exchange_and_waiting_add_up_and_are_never_negative():
    record = a_record(PAIR)
    assert record.exchange_s + record.waiting_s == record.comm_exposed_s
    least_s = record.comm_exposed_s * (1 + 1e-15)  # sums in another order
    rounded = replace(record, exchange=replace(record.exchange, exchange_s=least_s))
    assert rounded.waiting_s == 0.0
    numbers = key_numbers(record)
    assert (numbers["exchange_s"], numbers["waiting_s"]) == (record.exchange_s, record.waiting_s)
    assert numbers["least_waiting_rank"] == 1


def test_record_without_exchange_says_unknown_not_zero():
    record = a_record(PAIR)
    older = replace(record, exchange=replace(record.exchange, exchange_s=None))
    assert (older.exchange_s, older.waiting_s) == (None, None)
    single = a_record(a_cell(gpus=1))
    assert (single.exchange_s, single.waiting_s) == (None, None)


def test_minimum_over_ranks_is_taken_of_all_reduces_only():
    """A leaf returns from a gather when it has sent: its time is not what the link needed."""
    kinds = np.array([[KINDS.index(kind) for kind in ("all_reduce", "gather", "broadcast")]] * 2)
    collectives = np.array([[0.30, 0.50, 0.02], [0.10, 0.01, 0.40]])
    exchange = split_exchange(collectives, None, kinds)
    assert (exchange.all_reduce_net_s, exchange.all_reduce_skew_s) == pytest.approx((0.10, 0.20))
    assert exchange.rooted_s == pytest.approx(0.52)
    assert exchange.received_s == pytest.approx(0.50 + 0.40)  # gather's root, broadcast's receiver
    only_rooted = split_exchange(collectives[:, 1:], None, kinds[:, 1:])
    assert (only_rooted.all_reduce_net_s, only_rooted.tells_kinds) == (None, True)
    record = replace(a_record(a_cell()), exchange=only_rooted)
    assert (record.net_s, record.skew_s, record.rooted_s) == (None, None, pytest.approx(0.52))
    before = replace(record, exchange=Exchange(collectives=3, skew_s=0.2, net_s=0.9))
    assert (before.net_s, before.skew_s, before.rooted_s) == (0.9, 0.2, None)
