"""How often intervals of repeats cover the truth, and how often decisions are right, simulated.

    python tests/benchmarks/decisions.py [--simulations 4000]

Times are lognormal around 10 s. Prints the tables of docs/measured.md; the test
tests/unit/results/test_simulations.py runs the same functions with fewer simulations.
"""

import argparse
from collections.abc import Mapping, Sequence
from math import log, sqrt
from random import Random

from hpml_jobs.core.check_result import Level
from hpml_jobs.results.cells import CellResult
from hpml_jobs.results.checks.study import checked_groups
from hpml_jobs.results.decision import Decision, compare
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.statistics import coverage_of_range, ratio_interval
from tests.benchmarks.intervals import interval

BOOTSTRAPS_PER_DECISION = 8
"""A bootstrap takes 2,000 resamples, so so many fewer of them are simulated."""

STUDIES_PER_DECISION = 10
"""A study is as much slower to simulate."""


def runs(
    random: Random, number: int, noise: float, median_s: float = 10.0
) -> tuple[float, ...]:
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
    random, covered = Random(number), 0
    for _ in range(simulations):
        shown = interval(runs(random, number, 0.05))
        covered += shown is not None and shown.low <= 10.0 <= shown.high
    return covered / simulations


def bootstrap_coverage(number: int, simulations: int, noise: float = 0.05) -> float:
    """Return how often the interval of a speedup contains the true ratio."""
    random, covered = Random(number), 0
    for _ in range(simulations):
        shown = ratio_interval.__wrapped__(
            runs(random, number, noise, 20.0), runs(random, number, noise)
        )
        covered += shown is not None and shown.low <= 2.0 <= shown.high
    return covered / simulations


def decision_rate(
    number: int,
    noise: float,
    gap: float,
    simulations: int,
    *,
    is_disturbed: bool = False,
) -> float:
    """Return how often two cells are called different; without a gap these are false alarms."""
    random, different = Random(number), 0
    times = disturbed_runs if is_disturbed else runs
    for _ in range(simulations):
        slower = times(random, number, noise, 10.0 * (1 + gap))
        decision = compare(slower, times(random, number, noise)).decision
        different += decision in (Decision.SLOWER, Decision.FASTER)
    return different / simulations


def gate_failures(
    noise: float, machine: float, simulations: int, limit: float
) -> float:
    """Return how often 6 runs of equal code are slower by a limit, on a machine that changes.

    `machine` is the deviation of the logarithm of its speed.
    """
    random, failures = Random(6), 0
    for _ in range(simulations):
        old, new = (
            runs(random, 6, noise, 10.0 * random.lognormvariate(0.0, machine / sqrt(2)))
            for _ in range(2)
        )
        compared = compare(new, old)
        is_slower = compared.decision is Decision.SLOWER
        failures += is_slower and compared.ratio.estimate > 1 + limit
    return failures / simulations


Grid = Mapping[tuple[int, int, str], float]
"""The true seconds of cells, by GPUs, batch and strategy."""


def a_study(random: Random, true_s: Grid, number: int, noise: float) -> ConditionGroup:
    """Return the imported study of some runs of each cell, with its checks."""
    from hpml_jobs.study.timings import read_timings  # noqa: PLC0415

    rows = ["run,gpus,batch,strategy,epoch_s"]
    for (gpus, batch, strategy), median_s in true_s.items():
        of_cell = runs(random, number, noise, median_s)
        rows += [
            f"{gpus}-{batch}-{strategy}-{n},{gpus},{batch},{strategy},{time_s}"
            for n, time_s in enumerate(of_cell)
        ]
    records = read_timings("\n".join(rows).encode(), "simulated.csv")
    results = [
        CellResult(
            slug=record.slug, cell=record.cell, record=record, outcome=record.outcome
        )
        for record in records
    ]
    (group,) = checked_groups(results)
    return group


def false_failures(
    efficiency: float, noise: float, number: int, strategies: int, simulations: int
) -> float:
    """Return in how many studies the check `efficiency` fails without a cause."""
    random, failed = Random(number), 0
    names = ("ddp", "allreduce", "gather_scatter", "zero1")[:strategies]
    true_s = {(1, 128, "single"): 10.0} | {
        (4, 128, name): 10.0 / 4 / efficiency for name in names
    }
    for _ in range(simulations):
        checks = a_study(random, true_s, number, noise).checks.values()
        failed += any(
            result.check == "efficiency" and result.level is Level.FAIL
            for results in checks
            for result in results
        )
    return failed / simulations


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
    heads = (
        "runs",
        "noise",
        "equal cells: called different %",
        "2 % slower",
        "5 %",
        "10 %",
    )
    settings = [
        (number, noise, False) for number in (4, 6, 9, 12) for noise in (0.02, 0.05)
    ]
    settings.append((6, 0.03, True))
    print(
        table(heads, [_decisions(*setting, simulations) for setting in settings]), "\n"
    )
    heads = (
        "noise",
        "machine",
        "equal code refused at 2 %: %",
        "at 5 %",
    )
    settings = [
        (noise, machine) for noise in (0.01, 0.03) for machine in (0, 0.01, 0.02, 0.05)
    ]
    print(table(heads, [_gates(*setting, simulations) for setting in settings]), "\n")
    studies = simulations // STUDIES_PER_DECISION
    heads = (
        "true efficiency",
        "noise",
        "1 run: %",
        "6 runs",
        "6 runs of 4 strategies",
        "12 of 4",
    )
    settings = [(0.98, 0.03), (0.98, 0.05), (0.97, 0.05), (0.95, 0.05)]
    print(table(heads, [_failures(*setting, studies) for setting in settings]), "\n")


def _coverage(number: int, simulations: int) -> tuple[object, ...]:
    claimed = interval(range(number))
    return (
        number,
        _percent(claimed.coverage if claimed else 0.0),
        _percent(interval_coverage(number, simulations)),
        _percent(min(0.95, coverage_of_range(number))),
        _percent(bootstrap_coverage(number, simulations // BOOTSTRAPS_PER_DECISION)),
    )


def _gates(noise: float, machine: float, simulations: int) -> tuple[object, ...]:
    rates = (
        _percent(gate_failures(noise, machine, simulations, limit))
        for limit in (0.02, 0.05)
    )
    return f"{100 * noise:g} %", f"{100 * machine:g} %", *rates


def _decisions(
    number: int, noise: float, is_disturbed: bool, simulations: int
) -> tuple[object, ...]:
    rates = (
        decision_rate(number, noise, gap, simulations, is_disturbed=is_disturbed)
        for gap in (0.0, 0.02, 0.05, 0.1)
    )
    words = (
        f"{100 * noise:.0f} %{', one run in five disturbed' if is_disturbed else ''}"
    )
    return number, words, *map(_percent, rates)


def _failures(efficiency: float, noise: float, studies: int) -> tuple[object, ...]:
    rates = (
        false_failures(efficiency, noise, number, strategies, studies)
        for number, strategies in ((1, 1), (6, 1), (6, 4), (12, 4))
    )
    return efficiency, f"{100 * noise:.0f} %", *map(_percent, rates)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


if __name__ == "__main__":
    main()
