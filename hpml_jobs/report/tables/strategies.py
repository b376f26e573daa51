"""Strategies at the same place: which is faster, and where the difference is not significant."""

from typing import NamedTuple

from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import Row, Setup
from hpml_jobs.report.merge.statistics import Interval, ratio_interval
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import Columns, TableText, column, item_table, place_columns
from hpml_jobs.report.tables.repeats import epochs_of, several
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.comparisons import compare_runs
from hpml_jobs.report.text.numbers import ratio, seconds

COMPARED = (
    "Seconds of an epoch, median and interval: the fastest strategy at a place and each other "
    "one. Two differ only if their intervals are disjoint and the medians differ by more than 2 "
    "%; a smaller difference is within the noise. Ratio: other / fastest, of medians, by "
    "bootstrap (95 % from 6 runs)."
)


class Rivals(NamedTuple):
    """The fastest strategy of a place, and another one there."""

    fastest: Row
    other: Row

    @property
    def ratio(self) -> float:
        """The ratio of the other's median epoch time to the fastest's."""
        return epochs_of(self.other).median / epochs_of(self.fastest).median

    @property
    def ratio_interval(self) -> Interval | None:
        """The bootstrap interval of the ratio; None if either has one run."""
        return ratio_interval(epochs_of(self.other).runs, epochs_of(self.fastest).runs)

    @property
    def result(self) -> str:
        """The comparison of the other with the fastest, in words."""
        return compare_runs(epochs_of(self.other).runs, epochs_of(self.fastest).runs)


def rivals(group: ConditionGroup) -> list[Rivals]:
    """Return the fastest strategy of each place, paired with each other strategy there."""
    rows_by_place: dict[tuple[int, int, str, int], list[Row]] = {}
    for row in group.timed:
        if not row.is_baseline:
            place = (row.gpus, row.nodes, row.treatment, row.batch_per_gpu)
            rows_by_place.setdefault(place, []).append(row)
    pairs = []
    for _, rows in sorted(rows_by_place.items()):
        fastest = min(rows, key=lambda row: epochs_of(row).median)
        pairs += [Rivals(fastest, other) for other in rows if other is not fastest]
    return pairs


def compared(group: ConditionGroup) -> Table | None:
    """Return the strategies at the same place; None if no two meet, or each has one run."""
    pairs = rivals(group) if several(group) else []
    if not pairs:
        return None
    text = TableText("compared", "Strategies compared", "E1", (COMPARED,))
    return item_table([group], text, ((_place(group, pair.other), pair) for pair in pairs), _HEADS)


def _place(group: ConditionGroup, row: Row) -> str:
    return f"{captions.place_label(row.setup, group.device)} b{row.batch_per_gpu}"


def _time_text(row: Row) -> str:
    sample = epochs_of(row)
    interval = sample.interval
    time = f"{row.strategy.value} {seconds(sample.median)}"
    return (
        f"{time} [{seconds(interval.low)}, {seconds(interval.high)}]"
        if interval
        else f"{time}, single run"
    )


def _ends(interval: Interval) -> str:
    return f"[{ratio(interval.low)}, {ratio(interval.high)}]"


def _low(pair: Rivals) -> float | None:
    return pair.ratio_interval.low if pair.ratio_interval else None


def _high(pair: Rivals) -> float | None:
    return pair.ratio_interval.high if pair.ratio_interval else None


def _setup(pair: Rivals) -> Setup:
    return pair.other.setup


_HEADS: tuple[Columns[Rivals], ...] = (
    Columns(
        "",
        (
            *place_columns(_setup, ("gpus", "nodes", "treatment")),
            column("batch", "", lambda pair: pair.other.batch_per_gpu),
        ),
    ),
    Columns("fastest, s", (column("", "", lambda pair: _time_text(pair.fastest)),), words=True),
    Columns("other, s", (column("", "", lambda pair: _time_text(pair.other)),), words=True),
    Columns("ratio", (column("", "", lambda pair: pair.ratio_interval, _ends),)),
    Columns("the other is", (column("result", "", lambda pair: pair.result),), words=True),
    Columns(
        "",
        (
            column("fastest", "", lambda pair: pair.fastest.strategy.value),
            column("fastest_epoch_s", "", lambda pair: epochs_of(pair.fastest).median),
            column("other", "", lambda pair: pair.other.strategy.value),
            column("other_epoch_s", "", lambda pair: epochs_of(pair.other).median),
            column("ratio", "", lambda pair: pair.ratio),
            column("ratio_low", "", _low),
            column("ratio_high", "", _high),
        ),
    ),
)
