"""Full table of what was learnt: loss and accuracy, and whether replicas are the same (lab Q7)."""

from collections.abc import Callable, Iterable
from statistics import fmean, stdev

from hpml_jobs.record import Rank, Record
from hpml_jobs.report import captions
from hpml_jobs.report.entries import Entry
from hpml_jobs.report.full import About, Column, Columns, left_out, places, rest, table
from hpml_jobs.report.layout import Table
from hpml_jobs.report.measured import TRAINED
from hpml_jobs.report.numbers import significant
from hpml_jobs.report.scope import Scope

REPLICAS = (
    "Loss and accuracy of the last epoch of training: means over all samples of all ranks, then "
    "over runs. Test: whole test set, each rank with its own replica; mean over ranks and runs, "
    "deviation over runs (seeds and repeats; one run has none), least..most over ranks. Replicas: "
    "hashes of parameters and of buffers (BatchNorm) of all ranks after the last epoch (lab Q7)."
)


def replicas(scope: Scope) -> Table | None:
    """Loss, accuracy, and whether replicas are equal; None where no rank was there to tell."""
    own = [e for e in scope.timed if any(record.ranks for record in scope.records(e))]
    if not own:
        return None

    def over_runs(of: Callable[[Record], float | None]) -> Callable[[Entry], float | None]:
        return lambda entry: _mean(of(record) for record in scope.records(entry))

    heads: tuple[Columns[Entry], ...] = (
        Columns("epochs", (Column("epochs", "", lambda e: _epochs(scope, e)),)),
        Columns(
            "last epoch",
            (
                Column("train_loss", "loss", over_runs(_last("loss")), _loss),
                Column("train_accuracy", "acc. %", over_runs(_last("accuracy")), _accuracy),
            ),
        ),
        Columns(
            "test accuracy, %",
            (
                Column("test_accuracy", "mean", over_runs(_test), _accuracy),
                Column("test_deviation", "dev.", lambda e: _deviation(scope, e), _accuracy),
                Column("", "ranks", lambda e: _ranks(scope, e), _range),
            ),
        ),
        Columns(
            "",
            (
                Column("test_accuracy_least", "", lambda e: (_ranks(scope, e) or (None,))[0]),
                Column("test_accuracy_most", "", lambda e: (_ranks(scope, e) or (None,))[-1]),
            ),
        ),
        Columns(
            "replicas' hashes",
            (
                Column("parameters", "parameters", lambda e: _same(scope, e, _parameters)),
                Column("buffers", "buffers", lambda e: _same(scope, e, _buffers)),
            ),
        ),
    )
    lost = rest(scope.entries, own)
    about = About("replicas", "Replicas and accuracy", "", (REPLICAS, captions.runs(own)), False)
    return table(scope, about, places(scope, own, heads), left_out(scope, "not told", lost))


def _epochs(scope: Scope, entry: Entry) -> int:
    return max(_trained(record) for record in scope.records(entry))


def _trained(record: Record) -> int:
    return sum(epoch.role in TRAINED for epoch in record.ranks[0].epochs) if record.ranks else 0


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _last(field: str) -> Callable[[Record], float | None]:
    """Of the last epoch of training, over all samples."""

    def value(record: Record) -> float | None:
        last = [[e for e in rank.epochs if e.role in TRAINED][-1] for rank in record.ranks]
        samples = sum(epoch.samples for epoch in last)
        if not samples:
            return None
        return float(sum(getattr(epoch, field) * epoch.samples for epoch in last) / samples)

    return value


def _test(record: Record) -> float | None:
    return _mean(rank.test_accuracy for rank in record.ranks)


def _deviation(scope: Scope, entry: Entry) -> float | None:
    found = [value for r in scope.records(entry) if (value := _test(r)) is not None]
    return stdev(found) if len(found) > 1 else None


def _ranks(scope: Scope, entry: Entry) -> tuple[float, float] | None:
    """Least and most over ranks and runs."""
    found = [
        rank.test_accuracy
        for record in scope.records(entry)
        for rank in record.ranks
        if rank.test_accuracy is not None
    ]
    return (min(found), max(found)) if found else None


def _range(ends: tuple[float, float]) -> str:
    least, most = map(_accuracy, ends)
    return least if least == most else f"{least}..{most}"


def _same(scope: Scope, entry: Entry, of: Callable[[Rank], str]) -> str | None:
    """Whether all replicas of each run have one hash; None where there is one, or none is known."""
    runs = [{of(rank) for rank in record.ranks} for record in scope.records(entry)]
    several = any(len(record.ranks) > 1 for record in scope.records(entry))
    if not several or any("" in hashes for hashes in runs):
        return None
    return "equal" if all(len(hashes) == 1 for hashes in runs) else "differ"


def _parameters(rank: Rank) -> str:
    return rank.parameters_hash


def _buffers(rank: Rank) -> str:
    return rank.buffers_hash


def _loss(value: float) -> str:
    return significant(value, 4)


def _accuracy(share: float) -> str:
    return f"{100 * share:.2f}"
