"""A warning that another one of the same record explains is only in the list."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.check_result import TIMES, Affected, Level, Tier
from hpml_jobs.results.checks.disturbance import (
    MEASURE_AGAIN,
    WHOLE_NODES,
    is_worth_repeating,
)
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
    with_neighbours,
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


def test_small_cause_does_not_hide_a_large_symptom():
    """Others used 0.8 CPU, the ranks waited for 6 %; the instrumented epoch is 30 % longer."""
    busy = {"busy_s": 8.0 * (3.6 + 0.8), "run_queue_s": 0.5}
    record = change_epoch("instrumented", epoch_s=10.4)(clean_record())
    small = change_scheduling("instrumented", **busy)(record)
    assert {"disturbed", "overhead"} <= {*shown(small)}
    waited = {"run_queue_s": 8.0, "busy_s": 8.0 * (3.6 + 8.0)}
    large = change_scheduling("instrumented", **waited)(record)
    assert "overhead" not in shown(large)


def test_disturbed_microbenchmark_is_a_remark_on_bandwidths():
    busy = change_microbenchmark(busy_s=8.0 * (3.6 + 6.0))(clean_record())
    result = result_of(check_record(busy), "disturbed")
    assert (result.tier, result.affects) == (Tier.TABLE, (Affected.BANDWIDTH,))


def test_step_beside_a_disturbed_epoch_is_named_without_its_figures():
    busy = {"busy_s": 8.0 * (3.6 + 6.0)}
    record = change_scheduling("timed", **busy)(clean_record())
    record = change_microbenchmark(**busy)(record)
    result = result_of(check_record(record), "disturbed")
    assert result.figures == (
        "other processes used 6 of 12 CPUs on gr001, during the timed epoch and the "
        "microbenchmark"
    )
    assert result.affects == (Affected.TIME,)


def test_other_jobs_are_listed_and_neither_explain_nor_repeat_a_cell():
    """Other jobs share the node; what they used of its CPUs is in the same line."""
    jobs = with_neighbours(jobs=3, same_user=1, users=("alice", "me"))
    steps = clean_record().ranks[0].timed.steps
    rising = tuple(steps.median_s * (1 + 0.02 * number) for number in range(10))
    slower = change_epoch("timed", steps=replace(steps, block_medians_s=rising))
    odd = slower(jobs(clean_record()))
    assert shown(odd) == {"drift": Tier.TABLE}
    (beside,) = [r for r in check_record(odd) if r.check == "disturbed"]
    assert (beside.tier, beside.affects) == (Tier.LIST, TIMES)
    assert beside.figures.endswith(
        "(users: alice, me); other processes used 0.08 % of the cell's CPU time at most (limit 5 %)"
    )
    assert not is_worth_repeating(beside)
    stopped = change_scheduling("timed", continued_s=(2.0,))(odd)
    both = [r for r in check_record(stopped) if r.check == "disturbed"]
    assert [(r.tier, is_worth_repeating(r)) for r in both] == [
        (Tier.NUMBER, True),
        (Tier.LIST, False),
    ]
    assert both[0].reason.endswith(
        f"during the timed epoch: {MEASURE_AGAIN}, or {WHOLE_NODES}"
    )
