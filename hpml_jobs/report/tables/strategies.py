"""Strategies at the same place: which is faster, and where the difference is not significant."""

from typing import NamedTuple

from hpml_jobs.core.statistics import Interval
from hpml_jobs.core.text import NaturalKey, natural_key
from hpml_jobs.report.merge.decision import Comparison
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rounds import compare_rows
from hpml_jobs.report.merge.rows import Row, Setup
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import Columns, TableText, column, item_table, place_columns
from hpml_jobs.report.tables.repeats import epochs_of, several
from hpml_jobs.report.text import captions
from hpml_jobs.report.text.comparisons import comparison_text
from hpml_jobs.report.text.numbers import seconds

COMPARED = (
    "Seconds of {what}, median and interval: the fastest strategy at a place and each other "
    "one. Ratio of times: other / fastest, Hodges-Lehmann estimate with its 95 % interval of this "
    "pair alone. Two differ if an exact test gives p <= 5 % (Mann-Whitney; of runs that were "
    "measured in at least 6 rounds, of three strategies 7: Wilcoxon's signed ranks within rounds) "
    "and the ratio is more than 2 % from 1; p is corrected (Holm) for all pairs of strategies at "
    "the place, because the fastest is chosen from the same times."
)


class Rivals(NamedTuple):
    """The fastest strategy of a place, another one there, and the comparison of the two."""

    fastest: Row
    other: Row
    comparison: Comparison

    @property
    def ratio_interval(self) -> Interval | None:
        """The interval of the ratio of times, other / fastest; None with too few runs."""
        return self.comparison.ratio.interval


def rivals(group: ConditionGroup) -> list[Rivals]:
    """Return the fastest strategy of each place, paired with each other strategy there."""
    rows_by_place: dict[tuple[int, int, NaturalKey, int], list[Row]] = {}
    for row in group.timed:
        if not row.is_baseline:
            place = (row.gpus, row.nodes, natural_key(row.treatment), row.batch_per_gpu)
            rows_by_place.setdefault(place, []).append(row)
    pairs = []
    for _, rows in sorted(rows_by_place.items()):
        comparisons = compare_rows(group, rows)
        fastest = min(range(len(rows)), key=lambda index: epochs_of(rows[index]).median)
        pairs += [
            Rivals(rows[fastest], other, comparisons[index, fastest])
            for index, other in enumerate(rows)
            if index != fastest
        ]
    return pairs


def compared(group: ConditionGroup) -> Table | None:
    """Return the strategies at the same place; None if no two meet, or each has one run."""
    pairs = rivals(group) if several(group) else []
    if not pairs:
        return None
    caption = COMPARED.format(what=captions.an_epoch(group.work))
    text = TableText("compared", "Strategies compared", "E1", (caption,))
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
    Columns(
        "the other is",
        (column("result", "", lambda pair: comparison_text(pair.comparison)),),
        words=True,
    ),
    Columns(
        "",
        (
            column("fastest", "", lambda pair: pair.fastest.strategy.value),
            column("fastest_epoch_s", "", lambda pair: epochs_of(pair.fastest).median),
            column("other", "", lambda pair: pair.other.strategy.value),
            column("other_epoch_s", "", lambda pair: epochs_of(pair.other).median),
            column("ratio", "", lambda pair: pair.comparison.ratio.estimate),
            column("ratio_low", "", _low),
            column("ratio_high", "", _high),
            column("p", "", lambda pair: pair.comparison.p),
        ),
    ),
)
