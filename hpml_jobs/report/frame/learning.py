"""Training quality of runs, by epoch and over seeds: numbers, their columns and their words.

Means of a run are over all samples of all ranks. Of a row, only the runs that trained the most
epochs count: the last epoch of a shorter run is not comparable.
"""

from collections.abc import Callable, Iterable
from statistics import fmean, stdev
from typing import NamedTuple

from hpml_jobs.core.measurements import Epoch
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import by_key, known_mean
from hpml_jobs.report.frame.table import Column

OfRun = Callable[[Record], float | None]
"""A function that returns a number of one run, or None if the run has none."""


class Mean(NamedTuple):
    """The mean over seeds and their sample standard deviation, None with one seed."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[tuple[int, float | None]]) -> "Mean | None":
        """Return the mean over the known values, each with its seed; None if none is known.

        A seed counts once, with the mean over its repeats.

        >>> Mean.of([(0, 0.25), (0, 0.75)]), Mean.of([(0, 0.25), (0, 0.75), (1, 0.5), (2, None)])
        (Mean(mean=0.5, deviation=None), Mean(mean=0.5, deviation=0.0))
        """
        repeats = by_key((seed, value) for seed, value in values if value is not None)
        if not repeats:
            return None
        means = [fmean(repeat_values) for repeat_values in repeats.values()]
        deviation = stdev(means) if len(means) > 1 else None
        return cls(fmean(means), deviation)


def over_seeds(records: Iterable[Record], quantity: OfRun) -> Mean | None:
    """Return the mean over seeds of a number of each run."""
    return Mean.of((record.cell.seed, quantity(record)) for record in records)


def seeds(records: Iterable[Record]) -> int:
    """Return how many seeds some runs have."""
    return len({record.cell.seed for record in records})


def training_loss(number: int) -> OfRun:
    """Return the loss of an epoch of training (from 0; -1 is the last), over all samples."""
    return _mean_over_samples(number, lambda epoch: epoch.loss)


def training_accuracy(number: int) -> OfRun:
    """Return the accuracy of an epoch of training; None if outputs are not class scores."""
    accuracy = _mean_over_samples(number, lambda epoch: epoch.accuracy)
    return lambda record: accuracy(record) if _has_class_scores(record) else None


def _mean_over_samples(number: int, quantity: Callable[[Epoch], float | None]) -> OfRun:
    def mean(record: Record) -> float | None:
        trained = [rank.trained for rank in record.ranks]
        epochs_of_ranks = [epochs[number] for epochs in trained if epochs[number:]]
        values = [(quantity(epoch), epoch.samples) for epoch in epochs_of_ranks]
        weighted = [value * samples for value, samples in values if value is not None]
        samples = sum(samples for _, samples in values)
        is_known = samples and len(weighted) == len(values)
        return sum(weighted) / samples if is_known else None

    return mean


def _has_class_scores(record: Record) -> bool:
    """Return whether outputs are class scores; without them there is no accuracy."""
    tested = [rank for rank in record.ranks if rank.test_samples]
    return all(rank.test_accuracy is not None for rank in tested)


def test_accuracy(record: Record) -> float | None:
    """Return the accuracy on the whole test set after the last epoch: the mean over ranks."""
    return known_mean(rank.test_accuracy for rank in record.ranks)


def shown(head: str, words: Callable[[float], str]) -> Column:
    """Return how a mean over seeds is shown: text on pages, mean and deviation in the CSV."""
    parts = {"": "mean", "_deviation": "deviation"}
    return Column(head, lambda mean: mean_text(mean, words), parts=parts)


def mean_text(mean: Mean, words: Callable[[float], str]) -> str:
    """Return a mean with its deviation.

    >>> from hpml_jobs.report.frame.numbers import accuracy
    >>> mean_text(Mean(0.7132, 0.0041), accuracy), mean_text(Mean(0.7132, None), accuracy)
    ('71.32 ± 0.41', '71.32')
    """
    if mean.deviation is None:
        return words(mean.mean)
    return f"{words(mean.mean)} ± {words(mean.deviation)}"
