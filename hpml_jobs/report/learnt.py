"""What runs learnt: losses and accuracies of their epochs of training, with deviations over runs.

Of a run, means are over all samples of all ranks.
"""

from collections.abc import Callable, Iterable
from statistics import fmean, stdev
from typing import Any, NamedTuple

from hpml_jobs.measures import Epoch
from hpml_jobs.record import Rank, Record
from hpml_jobs.report import notes
from hpml_jobs.report.captions import full_label
from hpml_jobs.report.entries import Entry
from hpml_jobs.report.full import Column, Columns
from hpml_jobs.report.measured import TRAINED
from hpml_jobs.report.scope import Scope

OVER_RUNS = (
    "Mean and standard deviation over runs, which are seeds and repeats; one run has no deviation."
)
ONE_SEED = "one seed, no deviation"

OfRun = Callable[[Record], float | None]
"""A number of one run, where it has it."""


class Mean(NamedTuple):
    """The mean over runs and their standard deviation, None with one run."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Mean | None":
        """Over what is known; None where nothing is."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        return cls(fmean(known), stdev(known) if len(known) > 1 else None)

    def told(self, words: Callable[[float], str]) -> str:
        """As it is read.

        >>> from hpml_jobs.report.numbers import accuracy
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
    """
    if one.deviation is None or other.deviation is None:
        return "one seed cannot tell"
    beyond = abs(one.mean - other.mean) > one.deviation + other.deviation
    return "more than the deviations" if beyond else "within the deviations"


def over_runs(scope: Scope, entry: Entry, of: OfRun) -> Mean | None:
    """A number of an entry's runs."""
    return Mean.of(of(record) for record in scope.records(entry))


def columns(
    scope: Scope, name: str, head: str, of: OfRun, words: Callable[[float], str]
) -> tuple[Columns[Entry], Columns[Entry]]:
    """A number over runs: in words for the page, then its mean and deviation for the CSV."""

    def part(field: str) -> Callable[[Entry], Any]:
        return lambda entry: getattr(over_runs(scope, entry, of), field, None)

    told = Column[Entry]("", "", lambda e: over_runs(scope, e, of), lambda m: m.told(words))
    ends = (Column(name, "", part("mean")), Column(f"{name}_deviation", "", part("deviation")))
    return Columns(head, (told,)), Columns("", ends)


def training(rank: Rank) -> list[Epoch]:
    """A rank's epochs of training, in their order."""
    return [epoch for epoch in rank.epochs if epoch.role in TRAINED]


def epochs(record: Record) -> int:
    """How many epochs it trained."""
    return len(training(record.ranks[0])) if record.ranks else 0


def seeds(scope: Scope, entry: Entry) -> int:
    """How many seeds an entry's runs have."""
    return len({record.cell.seed for record in scope.records(entry)})


def of_training(number: int, field: str) -> OfRun:
    """The loss or accuracy of an epoch of training (from 0, from behind below)."""

    def value(record: Record) -> float | None:
        own = [found[number] for rank in record.ranks if (found := training(rank))[number:]]
        samples = sum(epoch.samples for epoch in own)
        if not samples:
            return None
        return float(sum(getattr(epoch, field) * epoch.samples for epoch in own) / samples)

    return value


def test_accuracy(record: Record) -> float | None:
    """Of the whole test set after the last epoch: the mean over ranks."""
    found = Mean.of(rank.test_accuracy for rank in record.ranks)
    return found.mean if found else None


def evaluated(number: int) -> OfRun:
    """Accuracy after an epoch (from 0): the ranks' shares of the test set together."""

    def value(record: Record) -> float | None:
        found = [own[number].share for rank in record.ranks if (own := training(rank))[number:]]
        shares = [share for share in found if share is not None]
        samples = sum(share.samples for share in shares)
        return sum(share.correct for share in shares) / samples if samples else None

    return value


def one_seed(scope: Scope, entries: Iterable[Entry]) -> list[str]:
    """A line where there is one run."""
    single = [entry for entry in entries if len(entry.runs) == 1]
    places = [(ONE_SEED, (entry.row, entry.batch_per_gpu)) for entry in single]
    return notes.by_reason(places, lambda row: full_label(row, scope.device))
