"""How often intervals of repeats cover the truth, and how often decisions are right, simulated.

    python benchmarks/decisions.py [--simulations 4000]

Times are lognormal around 10 s. Prints the tables of docs/measured.md; the test
tests/unit/report/test_simulations.py runs the same functions with fewer simulations.
"""

import argparse
from collections.abc import Sequence
from math import log
from random import Random

from hpml_jobs.core.formulas import coverage_of_range
from hpml_jobs.core.statistics import interval, ratio_interval
from hpml_jobs.report.merge.decision import Decision, compare, compare_all
from hpml_jobs.report.merge.power import smallest_difference

BOOTSTRAPS_PER_DECISION = 8
"""A bootstrap takes 2,000 resamples, so so many fewer of them are simulated."""


def runs(random: Random, number: int, noise: float, median_s: float = 10.0) -> tuple[float, ...]:
    """Return the lognormal times of a cell's runs; `noise` is the deviation of the logarithm."""
    return tuple(random.lognormvariate(log(median_s), noise) for _ in range(number))


def disturbed_runs(
    random: Random, number: int, noise: float, median_s: float = 10.0
) -> tuple[float, ...]:
    """Return the same, with every run one time in five slower by 10 to 50 %."""
    return tuple(
        time_s * (1 + random.uniform(0.1, 0.5) if random.random() < 0.2 else 1)
        for time_s in runs(random, number, noise, median_s)
    )


def interval_coverage(number: int, simulations: int) -> float:
    """Return how often the interval of the median contains the true median."""
    random, covered = Random(number), 0  # noqa: S311  (no secret in it)
    for _ in range(simulations):
        shown = interval(runs(random, number, 0.05))
        covered += shown is not None and shown.low <= 10.0 <= shown.high
    return covered / simulations


def bootstrap_coverage(number: int, simulations: int, noise: float = 0.05) -> float:
    """Return how often the interval of a speedup contains the true ratio."""
    random, covered = Random(number), 0  # noqa: S311  (no secret in it)
    for _ in range(simulations):
        shown = ratio_interval.__wrapped__(
            runs(random, number, noise, 20.0), runs(random, number, noise)
        )
        covered += shown is not None and shown.low <= 2.0 <= shown.high
    return covered / simulations


def decision_rate(
    number: int, noise: float, gap: float, simulations: int, *, is_disturbed: bool = False
) -> float:
    """Return how often two cells are called different; without a gap these are false alarms."""
    random, different = Random(number), 0  # noqa: S311  (no secret in it)
    times = disturbed_runs if is_disturbed else runs
    for _ in range(simulations):
        slower = times(random, number, noise, 10.0 * (1 + gap))
        decision = compare(slower, times(random, number, noise)).decision
        different += decision in (Decision.SLOWER, Decision.FASTER)
    return different / simulations


def false_alarms_among(
    strategies: int, number: int, simulations: int, noise: float = 0.05
) -> float:
    """Return how often any of some equal strategies is called slower than the fastest."""
    random, different = Random(strategies), 0  # noqa: S311  (no secret in it)
    for _ in range(simulations):
        samples = [runs(random, number, noise) for _ in range(strategies)]
        pairs = compare_all(samples).values()
        different += any(pair.decision in (Decision.SLOWER, Decision.FASTER) for pair in pairs)
    return different / simulations


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---:"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=4000)
    simulations = parser.parse_args().simulations
    heads = ("runs", "median: claimed %", "found %", "speedup: at least %", "found %")
    numbers = (2, 3, 4, 5, 6, 9, 12)
    print(table(heads, [_coverage(number, simulations) for number in numbers]), "\n")
    heads = ("runs", "noise", "equal cells: called different %", "2 % slower", "5 %", "10 %")
    settings = [(number, noise, False) for number in (4, 6, 9, 12) for noise in (0.02, 0.05)]
    settings.append((6, 0.03, True))
    print(table(heads, [_decisions(*setting, simulations) for setting in settings]), "\n")
    heads = ("equal strategies", "6 runs: any called different %", "9 runs: %")
    print(table(heads, [_families(strategies, simulations) for strategies in (2, 3, 4, 5)]), "\n")
    heads = ("runs", "noise", "smallest difference %", "called different %")
    settings = [(number, noise) for number in (4, 6, 9, 12) for noise in (0.01, 0.02, 0.05)]
    print(table(heads, [_smallest(*setting, simulations) for setting in settings]))


def _coverage(number: int, simulations: int) -> tuple[object, ...]:
    claimed = interval(range(number))
    return (
        number,
        _percent(claimed.coverage if claimed else 0.0),
        _percent(interval_coverage(number, simulations)),
        _percent(min(0.95, coverage_of_range(number))),
        _percent(bootstrap_coverage(number, simulations // BOOTSTRAPS_PER_DECISION)),
    )


def _decisions(
    number: int, noise: float, is_disturbed: bool, simulations: int
) -> tuple[object, ...]:
    rates = (
        decision_rate(number, noise, gap, simulations, is_disturbed=is_disturbed)
        for gap in (0.0, 0.02, 0.05, 0.1)
    )
    words = f"{100 * noise:.0f} %{', one run in five disturbed' if is_disturbed else ''}"
    return number, words, *map(_percent, rates)


def _families(strategies: int, simulations: int) -> tuple[object, ...]:
    rates = (false_alarms_among(strategies, number, simulations) for number in (6, 9))
    return strategies, *map(_percent, rates)


def _smallest(number: int, noise: float, simulations: int) -> tuple[object, ...]:
    gap = smallest_difference(number, number, noise)
    assert gap is not None  # noqa: S101  (4 runs and more)
    rate = decision_rate(number, noise, gap, simulations)
    return number, f"{100 * noise:.0f} %", _percent(gap), _percent(rate)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


if __name__ == "__main__":
    main()
