"""Columns and notes of training quality over seeds."""

from collections.abc import Callable, Iterable

from hpml_jobs.report.frame import learning, notes
from hpml_jobs.report.frame.builder import Shown
from hpml_jobs.report.frame.captions import full_label
from hpml_jobs.report.frame.comparisons import mean_text
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.rows import Row

OVER_SEEDS = (
    "Mean and sample standard deviation over seeds; a seed counts with the mean of its repeats, "
    "and a single seed has no deviation."
)
ONE_SEED = "single seed, no deviation"


def shown(head: str, words: Callable[[float], str]) -> Shown:
    """Return how a mean over seeds is shown: text on pages, mean and deviation in the CSV."""
    parts = {"": "mean", "_deviation": "deviation"}
    return Shown(head, lambda mean: mean_text(mean, words), parts=parts)


def one_seed(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    """Return a note if there is a single seed, with any number of repeats."""
    return _by_reason(group, ((ONE_SEED, e) for e in rows if learning.seeds(group, e) == 1))


def shorter(group: ConditionGroup, rows: Iterable[Row]) -> list[str]:
    """Return notes on omitted runs: other runs at their place trained more epochs."""
    shorter_runs = []
    for row in rows:
        numbers = sorted({learning.epochs(record) for record in group.records(row) if record.ranks})
        if numbers[1:]:
            less = " and ".join(map(str, numbers[:-1]))
            shorter_runs.append(
                (f"runs of {less} epochs are omitted, others have {numbers[-1]}", row)
            )
    return _by_reason(group, shorter_runs)


def _by_reason(group: ConditionGroup, reasons: Iterable[tuple[str, Row]]) -> list[str]:
    places = [(reason, row.place) for reason, row in reasons]
    return notes.by_reason(places, lambda setup: full_label(setup, group.device))
