"""Rows compared by their runs: the order of measurement, and strategies at the same place."""

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import combinations, pairwise, product
from typing import NamedTuple

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.conditions import LOADER_WORKERS
from hpml_jobs.core.place import Place
from hpml_jobs.extras.repeats.decision import compare_all, compare_one_of, runs_needed
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.numbers import ratio, seconds
from hpml_jobs.results.decision import Comparison
from hpml_jobs.results.groups import ConditionGroup, differing
from hpml_jobs.results.rows import Row


def several(group: ConditionGroup) -> bool:
    """Return whether any place has more than one run."""
    return any(len(row.runs) > 1 for row in group.timed)


class Order(Enum):
    """The measured order of repeats, by the start of each run."""

    ROUNDS = "rounds"  # every cell once, then every cell again
    ROUNDS_PER_SIZE = "rounds per size"  # among cells with equal GPUs and nodes only
    MIXED = "mixed"


def order_of_runs(group: ConditionGroup) -> Order | None:
    """Return the order in which a group's repeats were measured; None if that is not known."""
    rows = [row for row in group.timed if len(row.runs) > 1]
    starts = _starts(group, rows)
    if not starts:
        return None
    if in_rounds(starts):
        return Order.ROUNDS
    sizes: dict[tuple[int, int], list[list[str]]] = {}
    for row, runs in zip(rows, starts, strict=True):
        sizes.setdefault((row.gpus, row.nodes), []).append(runs)
    return Order.ROUNDS_PER_SIZE if all(map(in_rounds, sizes.values())) else Order.MIXED


def compare_rows(
    group: ConditionGroup, rows: Sequence[Row]
) -> dict[tuple[int, int], Comparison]:
    """Compare every two of some rows by their epochs, with Holm's correction (see `compare_all`).

    The runs of a round are compared with each other where there are enough rounds: a drift of the
    machine is in all of them.
    """
    by_round = _epochs_by_round(group, rows)
    needed = runs_needed(math.comb(len(rows), 2), paired=True)
    if by_round and len(by_round[0]) >= needed:
        return compare_all(by_round, paired=True)
    return compare_all([[run.epoch_s for run in row.runs] for row in rows])


def _epochs_by_round(
    group: ConditionGroup, rows: Sequence[Row]
) -> list[tuple[float, ...]] | None:
    """Return the epochs of some rows, of the rounds in which all of them have a run that counts.

    A round is a repeat of a seed. None unless the rows were measured in rounds.
    """
    starts = _starts(group, rows)
    if starts is None or not in_rounds(starts):
        return None
    by_round = [_epochs_by_repeat(group, row) for row in rows]
    rounds = [
        key for key in by_round[0] if all(key in epochs_s for epochs_s in by_round)
    ]
    return [tuple(epochs_s[key] for key in rounds) for epochs_s in by_round]


def _epochs_by_repeat(group: ConditionGroup, row: Row) -> dict[tuple[int, int], float]:
    """Return the epochs of a row that count, by seed and repeat."""
    records = group.counted_records(row, Affected.TIME)
    return {(r.cell.seed, r.cell.repeat): r.epoch_s for r in records}


def _starts(group: ConditionGroup, rows: Sequence[Row]) -> list[list[str]] | None:
    """Return the starts of each row's runs in order (UTC, ISO 8601); None if one is not known."""
    starts = [
        sorted(record.attempt.started for record in group.records(row)) for row in rows
    ]
    return None if any("" in runs for runs in starts) else starts


def in_rounds(starts: Iterable[Sequence[str]]) -> bool:
    """Return whether the k-th run of every cell started before the next run of any.

    >>> in_rounds([["10:00", "12:00"], ["11:00", "13:00"]])
    True
    >>> in_rounds([["10:00", "11:00"], ["12:00", "13:00"]])
    False
    """
    cells = list(starts)
    rounds = [
        [runs[number] for runs in cells if len(runs) > number]
        for number in range(max(map(len, cells)))
    ]
    return all(max(earlier) <= min(later) for earlier, later in pairwise(rounds))


def comparison_text(comparison: Comparison, tests: int = 1) -> str:
    """Return in words how the subject's times compare with the other's, with the ratio.

    `tests` is the number of comparisons of which this is one.

    >>> from hpml_jobs.results.decision import compare
    >>> comparison_text(compare([8.0, 8.1, 8.2, 8.1], [8.2, 8.0, 8.1, 8.1]))
    'no significant difference: 1.00 [0.976, 1.02] times the seconds'
    >>> comparison_text(compare([9.0, 9.1, 9.2, 9.3], [8.0, 8.1, 8.2, 8.1]))
    'slower: 1.13 [1.10, 1.16] times the seconds'
    >>> comparison_text(compare([8.0, 8.1, 8.2, 8.1], [16.0, 16.1, 16.2, 16.1]))
    'faster: 0.503 [0.494, 0.512] times the seconds'
    >>> comparison_text(compare([9.0, 9.1], [8.0]))
    'too few runs to tell: 9.000 to 9.100 s against 8.000 s (4 runs of each cell are needed)'
    """
    decision = comparison.decision.value
    estimate, interval = comparison.ratio
    if comparison.p is None:
        runs = f"{runs_needed(tests)} runs of each cell are needed"
        subject, other = _range(comparison.subject), _range(comparison.other)
        return f"{decision}: {subject} against {other} ({runs})"
    ends = f" [{ratio(interval.low)}, {ratio(interval.high)}]" if interval else ""
    return f"{decision}: {ratio(estimate)}{ends} times the seconds"


def _range(times_s: Sequence[float]) -> str:
    """Return `8.000 to 8.200 s`, or `8.000 s` of one run."""
    return f"{' to '.join(dict.fromkeys(map(seconds, (min(times_s), max(times_s)))))} s"


class Rival(NamedTuple):
    """The fastest strategy of a place, and how another one there compares with it.

    The comparison is one of so many `tests`, of all pairs of strategies there.
    """

    fastest: Row
    comparison: Comparison
    tests: int

    @property
    def text(self) -> str:
        """The comparison in words, with the name of the fastest strategy."""
        strategy = self.fastest.strategy.value
        return f"{strategy}: {comparison_text(self.comparison, self.tests)}"


def rivals(group: ConditionGroup) -> dict[Place, Rival]:
    """Return, for each row that is not the fastest strategy of its place, the one that is.

    Strategies meet at the same GPUs, nodes, treatment and batch.
    """
    rows_by_place: dict[tuple[int, int, str, int], list[Row]] = {}
    for row in group.timed:
        if not row.is_baseline:
            place = (row.gpus, row.nodes, row.treatment, row.batch_per_gpu)
            rows_by_place.setdefault(place, []).append(row)
    rivals_by_place = {}
    for rows in rows_by_place.values():
        comparisons = compare_rows(group, rows)
        medians_s = [row.epochs.median for row in rows]
        fastest = medians_s.index(min(medians_s))
        for index, other in enumerate(rows):
            if index != fastest:
                comparison, tests = comparisons[index, fastest], math.comb(len(rows), 2)
                rivals_by_place[other.place] = Rival(rows[fastest], comparison, tests)
    return rivals_by_place


def between(groups: Sequence[ConditionGroup], condition: str) -> Iterator[str]:
    """Yield a sentence for every place of two groups that differ in their loader workers alone."""
    if condition != LOADER_WORKERS:
        return
    pairs = [
        (first, second, row, other)
        for first, second in combinations(groups, 2)
        if [*differing([first.conditions, second.conditions])] == [condition]
        for row, other in product(first.timed, second.timed)
        if row.place == other.place
    ]
    for first, second, row, other in pairs:
        comparison = compare_one_of(len(pairs), other.epochs.runs, row.epochs.runs)
        is_doubtful = first.doubts_ratio(row, row) or second.doubts_ratio(other, other)
        text = captions.mark(
            comparison_text(comparison, len(pairs)), is_doubtful=is_doubtful
        )
        values = f"{second.conditions[condition]} against {first.conditions[condition]}"
        yield f"{values} ({captions.cell_words(row.place, first.device)}): {text}"
