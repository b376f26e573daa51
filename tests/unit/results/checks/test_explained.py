"""A warning that another one of the same record explains is only in the list."""

import pytest

from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.results.checks.study import check_record
from tests.unit.builders import a_cell
from tests.unit.check_cases import (
    change_epoch,
    change_microbenchmark,
    change_rank,
    change_scheduling,
    clean_record,
    late_rank,
    result_of,
)

PAIR = a_cell(gpus=2, batch=32)


def crowded(record):
    """The four processes of a cell on two CPUs."""
    for number in range(4):
        record = change_rank(number, affinity=(0, 1))(record)
    return record


def shown(record):
    """The checks that the report shows a line of, with their tiers."""
    results = check_record(record)
    return {
        result.check: result.tier
        for result in results
        if result.level is not Level.PASS and result.tier is not Tier.LIST
    }


UNEVEN = {
    "imbalance": late_rank(2, "forward_s", 2.0),
    "overhead": change_epoch("instrumented", epoch_s=9.0),
}


@pytest.mark.parametrize("name", UNEVEN)
def test_processes_that_take_turns_explain_uneven_epochs(name):
    uneven = UNEVEN[name](clean_record())
    assert name in shown(uneven)
    crowd = crowded(uneven)
    assert name not in shown(crowd)
    assert shown(crowd)["oversubscribed"] is Tier.NUMBER
    assert result_of(check_record(crowd), name).level is Level.WARN


def test_late_rank_that_waits_for_data_explains_loader_bound():
    stalled = change_epoch("timed", 1, stall_s=4.0, stalls=None)(clean_record(PAIR))
    assert shown(stalled) == {"loader-bound": Tier.TABLE}
    assert shown(late_rank(1, "stall_s", 4.0)(stalled)) == {"imbalance": Tier.NUMBER}
    assert "loader-bound" in shown(late_rank(0, "stall_s", 4.0)(stalled))


def test_cause_of_the_size_of_the_wait_explains_it():
    """A hypervisor that took 1 s of a CPU explains a rank that is late by 0.8 s, not by 4 s."""
    for role, change, check in (
        ("instrumented", lambda late_s: late_rank(1, "forward_s", late_s), "imbalance"),
        (
            "timed",
            lambda late_s: change_epoch("timed", 1, stall_s=late_s, stalls=None),
            "loader-bound",
        ),
    ):
        steal = change_scheduling(role, stolen_s=1.0)
        assert {*shown(steal(change(0.8)(clean_record(PAIR))))} == {"disturbed"}
        assert {"disturbed", check} <= {*shown(steal(change(4.0)(clean_record(PAIR))))}


def test_disturbed_epochs_are_one_line_with_what_they_affect():
    def stopped(*roles):
        record = clean_record()
        for role in roles:
            record = change_scheduling(role, continued_s=(2.0,))(record)
        return result_of(check_record(record), "disturbed")

    both = stopped("timed", "instrumented")
    assert "during the timed epoch and the instrumented epoch" in both.reason
    assert both.affects == (Affected.TIME, Affected.SPLIT, Affected.BANDWIDTH)
    assert stopped("instrumented").affects == (Affected.SPLIT, Affected.BANDWIDTH)
    cost = stopped("unsynced")
    assert (cost.affects, cost.tier) == ((Affected.SPLIT,), Tier.TABLE)


def test_disturbed_microbenchmark_is_a_remark_on_bandwidths():
    busy = change_microbenchmark(busy_s=8.0 * (3.6 + 6.0))(clean_record())
    result = result_of(check_record(busy), "disturbed")
    assert (result.tier, result.affects) == (Tier.TABLE, (Affected.BANDWIDTH,))
