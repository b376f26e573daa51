"""What ranks hold and read: tables of replicas and of shuffling (lab Q5 and Q7)."""

from itertools import chain
from typing import Annotated, NamedTuple, Self

from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.value import known
from hpml_jobs.report.frame import captions, learning
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.frame.numbers import accuracy, loss
from hpml_jobs.report.frame.table import (
    Column,
    Number,
    Table,
    TableText,
    columns_of,
    left_out,
    line_table,
    missing_rows,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.iterations import by_run, has_curve
from hpml_jobs.results.rows import Row

REPLICAS = (
    "Test accuracy after the last epoch, over processes. Equal: all processes hold the same "
    "values after training."
)


def _range(ends: tuple[float, float]) -> str:
    least, most = map(accuracy, ends)
    return least if least == most else f"{least}..{most}"


class ReplicaLine(NamedTuple):
    """Loss and accuracy (of 1) of a row, and whether its replicas' hashes are equal."""

    epochs: Annotated[int, Column("epochs")]
    seeds: int
    train_loss: Number
    train_accuracy: Number
    test_accuracy: Annotated[Number, Column("mean", accuracy, "test accuracy, %")]
    test_deviation: Number
    ranks: Annotated[
        tuple[float, float] | None,
        Column("lowest..highest", _range, "test accuracy, %", on_page_only=True),
    ]
    test_accuracy_least: Number
    test_accuracy_most: Number
    parameters: Annotated[str | None, Column("parameters", str, "on all processes")]
    buffers: Annotated[str | None, Column("buffers", str, "on all processes")]

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the line of a row."""
        runs, ranks = row.trained, _ranks(row)
        least, most = ranks or (None, None)
        tested = learning.over_seeds(runs, learning.test_accuracy)
        return cls(
            epochs=len(runs[0].trained),
            seeds=learning.seeds(runs),
            train_loss=_mean(learning.over_seeds(runs, learning.training_loss(-1))),
            train_accuracy=_mean(
                learning.over_seeds(runs, learning.training_accuracy(-1))
            ),
            test_accuracy=_mean(tested),
            test_deviation=tested.deviation if tested else None,
            ranks=ranks,
            test_accuracy_least=least,
            test_accuracy_most=most,
            parameters=_same(row, "parameters"),
            buffers=_same(row, "buffers"),
        )


def _mean(mean: Mean | None) -> float | None:
    return mean.mean if mean else None


def replicas(group: ConditionGroup) -> Table | None:
    """Return loss, accuracy, and whether replicas are equal; None if no record has ranks."""
    rows = [row for row in group.timed if row.trained]
    if not rows:
        return None
    missing = left_out(group, "not reported", missing_rows(group.rows, rows))
    text = TableText(
        "replicas",
        "Replicas and accuracy",
        "",
        (REPLICAS,),
        affected=Affected.LEARNING,
    )
    lines = [(row, ReplicaLine.of(row)) for row in rows]
    notes = [*unreadable(group), *missing]
    return line_table(group, text, lines, columns_of(ReplicaLine), notes)


def unreadable(group: ConditionGroup) -> list[str]:
    """Return a note for each reason why runs have no curves, where others have some."""
    if not any(map(has_curve, group.cells)):
        return []
    _, faults = by_run(group.timed, lambda curve: curve.epochs)
    return captions.by_reason(faults, group.device)


def _ranks(row: Row) -> tuple[float, float] | None:
    """Return the least and the greatest accuracy over ranks and runs."""
    ranks = chain.from_iterable(record.ranks for record in row.trained)
    accuracies = known(rank.test_accuracy for rank in ranks)
    return (min(accuracies), max(accuracies)) if accuracies else None


def _same(row: Row, what: str) -> str | None:
    """Return whether the parameters, or buffers, of all replicas of each run have one hash.

    None with one replica, or without a hash.
    """
    has_several, runs = False, []
    for record in row.trained:
        has_several = has_several or len(record.ranks) > 1
        runs.append({getattr(rank, f"{what}_hash") for rank in record.ranks})
    if not has_several or "" in set[str]().union(*runs):
        return None
    return "equal" if all(len(hashes) == 1 for hashes in runs) else "differ"


SHUFFLING = (
    "Different orders: of the training {samples} in the epochs of a process. "
    "DistributedSampler shuffles by seed + epoch, and only set_epoch gives it the epoch: without "
    "it, a process has the same batches in every epoch."
)


class ShufflingLine(NamedTuple):
    """The orders of a row's ranks, and what it learned; `orders` is None where not recorded."""

    set_epoch: Annotated[str, Column("set_epoch", words=True)]
    orders: Annotated[str | None, Column("different orders")]
    seeds: int
    train_loss: Annotated[Mean | None, learning.shown("training loss", loss)]
    test_accuracy: Annotated[Mean | None, learning.shown("test acc., %", accuracy)]

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the line of a row."""
        runs = row.trained
        return cls(
            set_epoch=_set_epoch(row),
            orders=_orders(row),
            seeds=learning.seeds(runs),
            train_loss=learning.over_seeds(runs, learning.training_loss(-1)),
            test_accuracy=learning.over_seeds(runs, learning.test_accuracy),
        )


def shuffling(group: ConditionGroup) -> Table | None:
    """Return the runs with and without set_epoch; None if every cell has it."""
    if not any(numbers.cell and not numbers.cell.set_epoch for numbers in group.cells):
        return None
    rows = [row for row in group.timed if row.trained]
    if not rows:
        return None
    text = TableText(
        "shuffling",
        "Shuffling",
        "",
        (SHUFFLING.format(samples=group.a_cell.workload.samples_name),),
        affected=Affected.LEARNING,
    )
    lines = [(row, ShufflingLine.of(row)) for row in rows]
    return line_table(group, text, lines, columns_of(ShufflingLine))


def _set_epoch(row: Row) -> str:
    cell = row.records[0].cell
    if not cell.strategy.under_torchrun:
        return "not needed"
    return "yes" if cell.set_epoch else "no"


def _orders(row: Row) -> str | None:
    """Return `1 of 5`: distinct orders among the training epochs, over all ranks and runs.

    None where a record does not tell.
    """
    ranks = [rank for record in row.trained for rank in record.ranks]
    numbers = sorted({_different(rank) for rank in ranks})
    if 0 in numbers:
        return None
    ends = "..".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
    return f"{ends} of {len(row.trained[0].trained)}"


def _different(rank: Rank) -> int:
    orders = [epoch.order for epoch in rank.trained]
    return len(set(orders)) if all(orders) else 0
