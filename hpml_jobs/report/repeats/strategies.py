"""Strategies at the same place: which is faster, and where the difference is not significant."""

from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.statistics import Interval
from hpml_jobs.core.text import NaturalKey, natural_key
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.builder import Number, Shown, TableText, columns_of, item_table
from hpml_jobs.report.frame.decision import Comparison
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import seconds
from hpml_jobs.report.frame.rows import Row
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.repeats.rounds import compare_rows, comparison_text
from hpml_jobs.report.repeats.table import several

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
        fastest = min(range(len(rows)), key=lambda index: rows[index].epochs.median)
        pairs += [
            Rivals(rows[fastest], other, comparisons[index, fastest])
            for index, other in enumerate(rows)
            if index != fastest
        ]
    return pairs


class ComparedLine(NamedTuple):
    """The fastest strategy of a place and another one there; `ratio` is other / fastest."""

    gpus: int
    nodes: int
    treatment: str
    batch: int
    fastest_text: Annotated[str, Shown("fastest, s", on_page_only=True, words=True)]
    other_text: Annotated[str, Shown("other, s", on_page_only=True, words=True)]
    result: Annotated[str, Shown("the other is", words=True)]
    fastest: str
    fastest_epoch_s: float
    other: str
    other_epoch_s: float
    ratio: float
    ratio_low: Number
    ratio_high: Number
    p: Number

    @classmethod
    def of(cls, pair: Rivals) -> Self:
        """Return the line of two strategies."""
        fastest, other, interval = pair.fastest, pair.other, pair.ratio_interval
        return cls(
            gpus=other.gpus,
            nodes=other.nodes,
            treatment=other.treatment,
            batch=other.batch_per_gpu,
            fastest_text=_time_text(fastest),
            other_text=_time_text(other),
            result=comparison_text(pair.comparison),
            fastest=fastest.strategy.value,
            fastest_epoch_s=fastest.epochs.median,
            other=other.strategy.value,
            other_epoch_s=other.epochs.median,
            ratio=pair.comparison.ratio.estimate,
            ratio_low=interval.low if interval else None,
            ratio_high=interval.high if interval else None,
            p=pair.comparison.p,
        )


def compared(group: ConditionGroup) -> Table | None:
    """Return the strategies at the same place; None if no two meet, or each has one run."""
    pairs = rivals(group) if several(group) else []
    if not pairs:
        return None
    caption = COMPARED.format(what=captions.an_epoch(group.work))
    text = TableText("compared", "Strategies compared", "timed epoch", (caption,))
    items = ((_place(group, pair.other), ComparedLine.of(pair)) for pair in pairs)
    return item_table([group], text, items, columns_of(ComparedLine))


def _place(group: ConditionGroup, row: Row) -> str:
    return f"{captions.place_label(row.setup, group.device)} b{row.batch_per_gpu}"


def _time_text(row: Row) -> str:
    sample = row.epochs
    interval = sample.interval
    time = f"{row.strategy.value} {seconds(sample.median)}"
    return (
        f"{time} [{seconds(interval.low)}, {seconds(interval.high)}]"
        if interval
        else f"{time}, single run"
    )
