"""Cells that are compared within rounds, and several of them with one error rate."""

from itertools import product
from random import Random

import pytest

from hpml_jobs.extras.repeats import decision
from hpml_jobs.extras.repeats.compared import comparison_text
from hpml_jobs.extras.repeats.decision import compare_all, paired_ratio, signed_ranks_p
from hpml_jobs.results.decision import Decision
from tests.unit.report.frame.test_simulations import SIMULATIONS, band, decisions


def test_normal_p_of_many_rounds_is_near_the_exact_one(monkeypatch):
    random = Random(11)
    for decimals in (1, 3):  # with ties and without
        first = [round(random.lognormvariate(0.0, 0.2), decimals) for _ in range(50)]
        second = [round(random.lognormvariate(0.08, 0.2), decimals) for _ in range(50)]
        exact = signed_ranks_p(first, second)
        monkeypatch.setattr(decision, "EXACT_RUNS", 99)
        assert signed_ranks_p(first, second) == pytest.approx(exact, abs=0.003)
        monkeypatch.undo()


def test_hundreds_of_rounds_are_compared():
    random = Random(12)
    first = [random.lognormvariate(0.0, 0.05) for _ in range(400)]
    second = [random.lognormvariate(0.05, 0.05) for _ in range(400)]
    comparison = compare_all([first, second], paired=True)[0, 1]
    low, high, coverage = comparison.ratio.interval
    assert (comparison.decision, high < 1) == (Decision.FASTER, True)
    assert low < comparison.ratio.estimate < high
    assert coverage == pytest.approx(0.95, abs=0.001)


def test_signed_ranks_are_those_of_all_signs():
    random = Random(9)
    for _ in range(60):
        first = [float(random.randint(20, 26)) for _ in range(7)]
        second = [float(random.randint(22, 27)) for _ in range(7)]
        ratios = [a / b for a, b in zip(first, second, strict=True) if a != b]
        sizes = [max(ratio, 1 / ratio) for ratio in ratios]
        ranks = [sum(v < x for v in sizes) + (sizes.count(x) + 1) / 2 for x in sizes]
        far = abs(
            sum(r if ratio > 1 else -r for r, ratio in zip(ranks, ratios, strict=True))
        )
        sums = [sum(s * r for s, r in zip(signs, ranks, strict=True)) for signs in
                product((1, -1), repeat=len(ranks))]  # fmt: skip
        share = sum(abs(total) >= far for total in sums) / len(sums)
        assert signed_ranks_p(first, second) == pytest.approx(share)


def test_paired_interval_excludes_1_if_test_rejects():
    random = Random(10)
    for _ in range(100):
        first = [random.lognormvariate(0.0, 0.05) for _ in range(random.randint(6, 9))]
        second = [random.lognormvariate(0.05, 0.05) for _ in first]
        low, high, coverage = paired_ratio(first, second).interval
        assert (low <= 1 <= high) is (signed_ranks_p(first, second) > 0.05)
        assert coverage >= 0.95


def test_holm_corrects_comparisons_with_the_fastest():
    six = [[base + 0.01 * run for run in range(6)] for base in (8.0, 8.02, 9.0)]
    pairs = compare_all(six)
    # the smallest p of three, times three
    assert pairs[2, 0].p == pytest.approx(3 * 2 / 924)
    assert pairs[1, 0].decision is Decision.SAME
    assert (pairs[2, 0].decision, pairs[0, 2].decision) == (
        Decision.SLOWER,
        Decision.FASTER,
    )


def test_several_strategies_need_more_runs_for_a_decision():
    four = [[base + 0.01 * run for run in range(4)] for base in (8.0, 9.0, 10.0)]
    pairs = compare_all(four)
    assert pairs[1, 0].decision is Decision.TOO_FEW
    assert comparison_text(pairs[1, 0], 6).endswith("(5 runs of each cell are needed)")


@pytest.mark.parametrize("simulations", SIMULATIONS)
def test_signed_ranks_find_what_a_drift_hides(simulations):
    for paired, equal, found in ((True, 0.018, 0.775), (False, 0.001, 0.478)):
        rates = [
            decisions.found_in_rounds(6, g, simulations, paired=paired)
            for g in (0, 0.05)
        ]
        assert rates[0] == pytest.approx(equal, abs=band(0.03, simulations))
        assert rates[1] == pytest.approx(found, abs=band(found, simulations))


@pytest.mark.parametrize(
    "simulations", [300, pytest.param(4_000, marks=pytest.mark.long)]
)
def test_equal_strategies_have_5_percent_false_alarms(simulations):
    """All comparisons with the fastest together, although it is chosen from the same times."""
    for strategies in (3, 5):
        rate = decisions.false_alarms_among(strategies, 6, simulations)
        assert rate <= 0.05 + band(0.05, simulations), strategies
