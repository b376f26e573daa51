"""What runs learnt: losses and accuracies of their epochs of training, with deviations over seeds.

Of a run, means are over all samples of all ranks. Of a place, only the runs that trained the most
epochs are taken: the last epoch of another number of epochs is another thing.
"""

from collections.abc import Callable, Iterable
from statistics import fmean, stdev
from typing import Any, NamedTuple

from hpml_jobs.core.measurements import Epoch
from hpml_jobs.core.record import Rank, Record
from hpml_jobs.report.merge.entries import Entry
from hpml_jobs.report.merge.run_values import TRAINED
from hpml_jobs.report.merge.scope import Scope
from hpml_jobs.report.tables.builder import Column, Columns
from hpml_jobs.report.text import notes
from hpml_jobs.report.text.captions import full_label

OVER_SEEDS = (
    "Mean and sample standard deviation over seeds, of each the mean over its repeats; one seed "
    "has no deviation."
)
ONE_SEED = "one seed, no deviation"

OfRun = Callable[[Record], float | None]
"""A number of one run, where it has it."""


class Mean(NamedTuple):
    """The mean over seeds and their sample standard deviation, None with one seed."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[tuple[int, float | None]]) -> "Mean | None":
        """Over the values that are known, each with its seed; None where none is.

        A seed counts once, with the mean over its repeats.

        >>> Mean.of([(0, 0.25), (0, 0.75)]), Mean.of([(0, 0.25), (0, 0.75), (1, 0.5), (2, None)])
        (Mean(mean=0.5, deviation=None), Mean(mean=0.5, deviation=0.0))
        """
        repeats: dict[int, list[float]] = {}
        for seed, value in values:
            if value is not None:
                repeats.setdefault(seed, []).append(value)
        if not repeats:
            return None
        means = [fmean(own) for own in repeats.values()]
        return cls(fmean(means), stdev(means) if len(means) > 1 else None)

    def told(self, words: Callable[[float], str]) -> str:
        """As it is read.

        >>> from hpml_jobs.report.text.numbers import accuracy
        >>> Mean(0.7132, 0.0041).told(accuracy), Mean(0.7132, None).told(accuracy)
        ('71.32 ± 0.41', '71.32')
        """
        if self.deviation is None:
            return words(self.mean)
        return f"{words(self.mean)} ± {words(self.deviation)}"


def apart(one: Mean, other: Mean) -> str:
    """Whether two means are further apart than their deviations together, in words.

    >>> apart(Mean(0.60, 0.01), Mean(0.65, 0.02)), apart(Mean(0.60, 0.01), Mean(0.62, 0.02))
    ('more than the deviations', 'within the deviations')
    >>> apart(Mean(0.60, None), Mean(0.65, 0.02))
    'one seed cannot tell'
    """
    if one.deviation is None or other.deviation is None:
        return "one seed cannot tell"
    beyond = abs(one.mean - other.mean) > one.deviation + other.deviation
    return "more than the deviations" if beyond else "within the deviations"


def longest(records: Iterable[Record]) -> list[Record]:
    """Those that trained the most epochs; none where no rank was there to tell."""
    found = [record for record in records if record.ranks]
    most = max(map(epochs, found), default=0)
    return [record for record in found if epochs(record) == most]


def runs(scope: Scope, entry: Entry) -> list[Record]:
    """The runs whose learning an entry's numbers are of, by seed and repeat."""
    return longest(scope.records(entry))


def over_seeds(records: Iterable[Record], of: OfRun) -> Mean | None:
    """A number of runs."""
    return Mean.of((record.cell.seed, of(record)) for record in records)


def columns(
    scope: Scope, name: str, head: str, of: OfRun, words: Callable[[float], str]
) -> tuple[Columns[Entry], Columns[Entry]]:
    """A number over seeds: in words for the page, then its mean and deviation for the CSV."""

    def mean(entry: Entry) -> Mean | None:
        return over_seeds(runs(scope, entry), of)

    def part(field: str) -> Callable[[Entry], Any]:
        return lambda entry: getattr(mean(entry), field, None)

    told = Column[Entry]("", "", mean, lambda found: found.told(words))
    ends = (Column(name, "", part("mean")), Column(f"{name}_deviation", "", part("deviation")))
    return Columns(head, (told,)), Columns("", ends)


def training(rank: Rank) -> list[Epoch]:
    """A rank's epochs of training, in their order."""
    return [epoch for epoch in rank.epochs if epoch.role in TRAINED]


def epochs(record: Record) -> int:
    """How many epochs it trained."""
    return len(training(record.ranks[0])) if record.ranks else 0


def epochs_of(scope: Scope, entry: Entry) -> int:
    """How many epochs an entry's runs trained."""
    return max(map(epochs, scope.records(entry)), default=0)


def seeds(scope: Scope, entry: Entry) -> int:
    """How many seeds an entry's runs have."""
    return len({record.cell.seed for record in runs(scope, entry)})


def of_training(number: int, field: str) -> OfRun:
    """The loss or accuracy of an epoch of training (from 0, from behind below)."""

    def value(record: Record) -> float | None:
        if field == "accuracy" and not _tells_classes(record):
            return None
        own = [found[number] for rank in record.ranks if (found := training(rank))[number:]]
        samples = sum(epoch.samples for epoch in own)
        if not samples:
            return None
        return float(sum(getattr(epoch, field) * epoch.samples for epoch in own) / samples)

    return value


def _tells_classes(record: Record) -> bool:
    """Whether outputs are class scores: else nothing can be right, and tests have no accuracy."""
    return not any(rank.test_samples and rank.test_accuracy is None for rank in record.ranks)


def test_accuracy(record: Record) -> float | None:
    """Of the whole test set after the last epoch: the mean over ranks."""
    known = [rank.test_accuracy for rank in record.ranks if rank.test_accuracy is not None]
    return fmean(known) if known else None


def was_evaluated(record: Record) -> bool:
    """Whether it was tested after its epochs of training."""
    return any(epoch.share for rank in record.ranks for epoch in training(rank))


def evaluated(number: int) -> OfRun:
    """Accuracy after an epoch (from 0): the ranks' shares of the test set together."""

    def value(record: Record) -> float | None:
        found = [own[number].share for rank in record.ranks if (own := training(rank))[number:]]
        counted = [
            (share.correct, share.samples) for share in found if share and share.correct is not None
        ]
        samples = sum(tested for _, tested in counted)
        return sum(correct for correct, _ in counted) / samples if samples else None

    return value


def one_seed(scope: Scope, entries: Iterable[Entry]) -> list[str]:
    """A line where there is one seed, however many repeats."""
    return _by_reason(scope, ((ONE_SEED, e) for e in entries if seeds(scope, e) == 1))


def shorter(scope: Scope, entries: Iterable[Entry]) -> list[str]:
    """A line on runs that are left out: others at their place trained more epochs."""
    found = []
    for entry in entries:
        numbers = sorted({epochs(record) for record in scope.records(entry) if record.ranks})
        if numbers[1:]:
            less = " and ".join(map(str, numbers[:-1]))
            found.append((f"runs of {less} epochs, left out beside those of {numbers[-1]}", entry))
    return _by_reason(scope, found)


def _by_reason(scope: Scope, found: Iterable[tuple[str, Entry]]) -> list[str]:
    places = [(why, (entry.row, entry.batch_per_gpu)) for why, entry in found]
    return notes.by_reason(places, lambda row: full_label(row, scope.device))
