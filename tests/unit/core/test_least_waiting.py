"""The rank that a cell shows: the one that waits least; exchange and waiting apart."""

import msgspec
import numpy as np
import pytest

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.collective_times import KINDS, PURPOSES, Begins
from hpml_jobs.core.measurements import Exchange, Phases
from hpml_jobs.core.rank import most_stalled
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.results.figures import counted_runs
from hpml_jobs.worker.results import split_exchange
from tests.unit.builders import a_cell, a_record
from tests.unit.check_cases import change_epoch

PAIR = a_cell(gpus=2)
TOGETHER = Begins([0.0, 0.0], is_one_clock=True)
replace = msgspec.structs.replace


def with_epochs(record: Record, role: str, *changes: dict) -> Record:
    """The record with other fields in the epoch of a role, one dict per rank."""
    for number, fields in enumerate(changes):
        record = change_epoch(role, number, **fields)(record)
    return record


def epoch_of(
    epoch_s: float, forward_s: float, exposed_s: float, broadcast_s: float = 0.0
) -> dict:
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


@pytest.mark.parametrize(("less_s", "shown"), [(0.0, 0), (0.03, 0), (0.05, 1)])
def test_ranks_that_wait_equally_show_smallest_number(less_s, shown):
    """Within 2 % of the epoch they do: which one waits less is decided by microseconds."""
    epochs = epoch_of(2.0, 1.0, 0.5), epoch_of(2.0, 1.0, 0.5 - less_s)
    assert (
        with_epochs(a_record(PAIR), "instrumented", *epochs).least_waiting.rank == shown
    )


def test_runs_of_a_row_show_one_rank():
    """Rank 1 is late in two of three runs: in the third one its waiting is shown too."""
    late = [epoch_of(2.0, 0.3, 1.5), epoch_of(2.0, 1.7, 0.1)]
    cells = [a_cell(gpus=2, repeat=repeat) for repeat in range(3)]
    runs = [
        with_epochs(
            a_record(cell), "instrumented", *(late[::-1] if cell.repeat == 1 else late)
        )
        for cell in cells
    ]
    assert [run.least_waiting.rank for run in runs] == [1, 0, 1]
    values = counted_runs(runs).values
    assert [run.compute_s for run in values] == pytest.approx([1.7, 0.3, 1.7])
    assert [run.comm_s for run in values] == pytest.approx([0.1, 1.5, 0.1])


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
    assert most_stalled(equal.ranks).rank == 0


def test_cost_and_overhead_use_longest_epochs():
    epochs = epoch_of(2.2, 1.8, 0.1), epoch_of(2.0, 0.3, 0.2)
    record = with_epochs(a_record(PAIR, epoch_s=2.0), "instrumented", *epochs)
    record = with_epochs(record, "unsynced", {"epoch_s": 1.0}, {"epoch_s": 1.5})
    assert record.overhead == pytest.approx(0.1)
    assert record.comm_cost_s == pytest.approx(0.5)


def arrays(
    served_s, exposed_s=None, kinds=None, purposes=None
) -> dict[str, np.ndarray]:
    """Arrays of two ranks and some collectives: all-reduces of gradients, all of them exposed.

    Both ranks end each collective together; there is nothing between two of them.
    """
    served_s = np.array(served_s)
    count = served_s.shape[1]
    return {
        "parts_s": np.zeros((len(served_s), count, 14)),
        "collective_start_s": np.cumsum(served_s.max(axis=0)) - served_s,
        "collective_s": served_s,
        "collective_served_s": served_s,
        "collective_exposed_s": served_s if exposed_s is None else np.array(exposed_s),
        "collective_iteration": np.array([range(count)] * 2),
        "collective_bytes": np.full((2, count), 100),
        "collective_kind": np.array(
            [[KINDS.index(k) for k in kinds or ["all_reduce"] * count]] * 2
        ),
        "collective_purpose": np.array(
            [[PURPOSES.index(purpose) for purpose in purposes or ["gradients"] * count]]
            * 2
        ),
    }


def test_exchange_is_least_exposed_time_of_each_collective():
    """Rank 1 waits in a broadcast, rank 0 then in an all-reduce: both as long, 0.08 s in all."""
    kinds, purposes = ("broadcast", "all_reduce"), ("buffers", "gradients")
    exchange = split_exchange(
        arrays([[0.01, 0.64], [0.61, 0.04]], None, kinds, purposes), TOGETHER
    )
    # of each iteration it would be 0.65
    assert exchange.exchange_s == pytest.approx(0.05)
    # of the rank with the least 0.64
    assert exchange.gradients_net_s == pytest.approx(0.04)
    hidden = split_exchange(
        arrays([[0.3, 0.2], [0.1, 0.3]], [[0.3, 0.2], [0.0, 0.25]]), TOGETHER
    )
    # of the first one rank 1 exposes nothing
    assert hidden.exchange_s == pytest.approx(0.2)
    assert hidden.gradients_net_s == pytest.approx(0.3)
    assert split_exchange(arrays([[0.3, 0.1]]), TOGETHER) is None
    assert split_exchange({}, TOGETHER) is None


def test_messages_that_are_under_way_together_are_compared_by_their_bytes():
    begun = arrays([[0.3, 0.1], [0.2, 0.4]]) | {
        "collective_iteration": np.zeros((2, 2), int),
        "collective_bytes": np.array([[8, 4], [4, 8]]),
    }
    assert split_exchange(begun, TOGETHER).net_s == pytest.approx(0.3 + 0.1)
    between = begun | {"collective_iteration": np.array([[0, 0], [1, 0]])}
    assert split_exchange(between, TOGETHER) == split_exchange(begun, TOGETHER)
    other = begun | {"collective_bytes": np.array([[8, 4], [4, 4]])}
    assert split_exchange(other, TOGETHER) is None


def gather_and_scatter(late_s):
    """A gather of 1.0 s and a scatter of 2.0 s; rank 1 has sent after 0.1 s, rank 0 after 0.2 s.

    Rank `late_s` comes later to the gather, rank 0 to the scatter by 0.5 s.
    """
    late_0, late_1 = late_s
    gathered = max(late_0, late_1) + 1.0
    scattered = gathered + 0.5 + 2.0
    start_s = np.array([[late_0, gathered + 0.5], [late_1, late_1 + 0.1]])
    end_s = np.array([[gathered, gathered + 0.5 + 0.2], [late_1 + 0.1, scattered]])
    kinds, purposes = ("gather", "scatter"), ("gradients",) * 2
    return arrays(end_s - start_s, None, kinds, purposes) | {
        "collective_start_s": start_s
    }


@pytest.mark.parametrize("late_s", [(0.0, 0.0), (0.0, 4.0), (4.0, 0.0)])
def test_exchange_of_a_root_is_its_slowest_receiver_less_the_wait_for_the_sender(
    late_s,
):
    of_ranks = gather_and_scatter(late_s)
    assert split_exchange(of_ranks, TOGETHER).exchange_s == pytest.approx(1.0 + 2.0)
    assert split_exchange(of_ranks, TOGETHER).service_s == pytest.approx(1.0 + 2.0)


def test_ranks_of_other_clocks_are_compared_by_their_all_reduces():
    """Epochs of scripts begin at other moments: without an all-reduce nothing can be said."""
    of_ranks = gather_and_scatter((0.0, 4.0))
    assert split_exchange(of_ranks, None).exchange_s is None
    parts_s = np.zeros((2, 3, 14))
    parts_s[1, 0, 0] = 70.0  # the clock of rank 1 began before
    later = {
        "parts_s": parts_s,
        "collective_kind": np.array([[2, 3, 0]] * 2),
        "collective_bytes": np.full((2, 3), 100),
        "collective_purpose": np.zeros((2, 3), int),
        "collective_iteration": np.array([[0, 0, 0]] * 2),
        "collective_start_s": np.hstack(
            [of_ranks["collective_start_s"], [[8.0], [8.0]]]
        ),
        "collective_s": np.hstack([of_ranks["collective_s"], [[1.0], [1.0]]]),
        "collective_served_s": np.hstack(
            [of_ranks["collective_served_s"], [[1.0], [1.0]]]
        ),
        "collective_exposed_s": np.hstack(
            [of_ranks["collective_exposed_s"], [[1.0], [1.0]]]
        ),
    }
    assert split_exchange(later, None).exchange_s == pytest.approx(1 + 2 + 1)


def test_exchange_of_roots_in_earlier_records_is_not_told_from_waiting():
    record = a_record(a_cell(gpus=2, strategy=Strategy.GATHER_SCATTER))
    exchange = replace(record.exchange, exchange_s=0.3, rooted_s=1.0, service_s=None)
    older = replace(record, exchange=exchange)
    assert (older.exchange_s, older.waiting_s) == (None, None)
    assert replace(older, exchange=replace(exchange, service_s=1.0)).exchange_s == 0.3
    of_ddp = replace(older, cell=a_cell(gpus=2))  # broadcasts of buffers are small
    assert of_ddp.exchange_s == 0.3


def test_exchange_and_waiting_add_up_and_are_never_negative():
    record = a_record(PAIR)
    assert record.exchange_s + record.waiting_s == record.comm_exposed_s
    least_s = record.comm_exposed_s * (1 + 1e-15)  # sums in another order
    rounded = replace(record, exchange=replace(record.exchange, exchange_s=least_s))
    assert rounded.waiting_s == 0.0
    assert record.least_waiting.rank == 0


def test_minimum_over_ranks_is_taken_of_all_reduces_only():
    """A leaf returns from a gather when it has sent: its time is not what the link needed."""
    kinds, purposes = ("all_reduce", "gather", "broadcast"), ("gradients",) * 3
    served_s = np.array([[0.30, 0.50, 0.02], [0.10, 0.01, 0.40]])
    exchange = split_exchange(arrays(served_s, None, kinds, purposes), TOGETHER)
    assert (exchange.all_reduce_net_s, exchange.all_reduce_skew_s) == pytest.approx(
        (0.10, 0.20)
    )
    assert exchange.rooted_s == pytest.approx(0.52)
    only_rooted = split_exchange(
        arrays(served_s[:, 1:], None, kinds[1:], purposes[1:]), TOGETHER
    )
    assert (only_rooted.all_reduce_net_s, only_rooted.tells_kinds) == (None, True)
    assert only_rooted.gradients_net_s is None
    record = replace(a_record(a_cell()), exchange=only_rooted)
    assert (record.net_s, record.skew_s, record.rooted_s) == (
        None,
        None,
        pytest.approx(0.52),
    )
    before = replace(record, exchange=Exchange(collectives=3, skew_s=0.2, net_s=0.9))
    assert (before.net_s, before.skew_s, before.rooted_s) == (0.9, 0.2, None)
