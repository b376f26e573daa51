"""Table of the orders in which ranks read their samples, and their effect (lab Q5)."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple, Self

import msgspec

from hpml_jobs.checks.result import Affected
from hpml_jobs.core.record import Rank
from hpml_jobs.report.frame import learning
from hpml_jobs.report.frame.answers import Answer, cells, doubt
from hpml_jobs.report.frame.builder import Shown, TableText, columns_of, line_table
from hpml_jobs.report.frame.captions import cell_words
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.learning import Mean, compare_means, mean_text
from hpml_jobs.report.frame.numbers import accuracy, loss
from hpml_jobs.report.frame.rows import Row, place_of
from hpml_jobs.report.frame.table import Table

SHUFFLING = (
    "Orders: different sequences of training {samples} among the epochs of a rank, by their "
    "hashes. DistributedSampler shuffles by seed + epoch, and only set_epoch gives it the epoch: "
    "without it, a rank has the same {samples} and batches in every epoch. A single process "
    "(single, dp) reshuffles by itself. Training loss of the last epoch; test accuracy after it, "
    "mean over ranks."
)
QUESTION = "Why does ddp need set_epoch (lab Q5)?"


class ShufflingLine(NamedTuple):
    """The orders of a row's ranks, and what it learned; `orders` is None where not recorded."""

    set_epoch: Annotated[str, Shown("set_epoch", words=True)]
    orders: Annotated[str | None, Shown("orders of a rank")]
    seeds: Annotated[int, Shown("seeds")]
    train_loss: Annotated[Mean | None, learning.shown("training loss", loss)]
    test_accuracy: Annotated[Mean | None, learning.shown("test acc., %", accuracy)]

    @classmethod
    def of(cls, group: ConditionGroup, row: Row) -> Self:
        """Return the line of a row."""
        runs = learning.runs(group, row)
        return cls(
            set_epoch=_set_epoch(group, row),
            orders=_orders(group, row),
            seeds=learning.seeds(group, row),
            train_loss=learning.over_seeds(runs, learning.training_loss(-1)),
            test_accuracy=learning.over_seeds(runs, learning.test_accuracy),
        )


def shuffling(group: ConditionGroup) -> Table | None:
    """Return the runs with and without set_epoch; None if every cell has it."""
    if not any(numbers.cell and not numbers.cell.set_epoch for numbers in group.cells):
        return None
    rows = [row for row in group.timed if learning.runs(group, row)]
    if not rows:
        return None
    text = TableText(
        "shuffling",
        "Shuffling",
        "",
        (
            SHUFFLING.format(samples=group.a_cell.workload.samples_name),
            learning.OVER_SEEDS,
        ),
        answer=" ".join([QUESTION, *set_epoch_answers(group, rows)]),
        affected=Affected.LEARNING,
    )
    notes = [*learning.one_seed(group, rows), *learning.shorter(group, rows)]
    lines = [(row, ShufflingLine.of(group, row)) for row in rows]
    return line_table(group, text, lines, columns_of(ShufflingLine), notes)


def _set_epoch(group: ConditionGroup, row: Row) -> str:
    cell = group.records(row)[0].cell
    if not cell.strategy.under_torchrun:
        return "not needed"
    return "yes" if cell.set_epoch else "no"


def _orders(group: ConditionGroup, row: Row) -> str | None:
    """Return `1 of 5`: distinct orders among the training epochs, over all ranks and runs.

    None where a record does not tell.
    """
    ranks = [rank for record in learning.runs(group, row) for rank in record.ranks]
    numbers = sorted({_different(rank) for rank in ranks})
    if 0 in numbers:
        return None
    ends = "..".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
    return f"{ends} of {learning.epochs_of(group, row)}"


def _different(rank: Rank) -> int:
    orders = [epoch.order for epoch in learning.training(rank)]
    return len(set(orders)) if all(orders) else 0


def set_epoch_answers(group: ConditionGroup, rows: Sequence[Row]) -> list[str]:
    """Return a sentence for every place without set_epoch that has a number."""
    at = {row.place: row for row in rows}
    answers = []
    for row in rows:
        record = group.records(row)[0]
        if record.cell.set_epoch:
            continue
        place = place_of(msgspec.structs.replace(record.cell, set_epoch=True))
        answers.append(_answer(group, row, at.get(place)))
    return answers


def _answer(group: ConditionGroup, without: Row, beside: Row | None) -> str:
    """Return `4 GPUs, batch 128 (ddp, no set_epoch): 1 of 5 orders, with it 5 of 5; …`."""
    place, orders = cell_words(without.place, group.device), _orders(group, without) or "unknown"
    if beside is None:
        return f"{place}: {orders} orders of a rank; no cell with set_epoch to compare with."
    parts = [f"{orders} orders of a rank, with it {_orders(group, beside) or 'unknown'}"]
    for what, of, words in (
        ("training loss", learning.training_loss(-1), loss),
        ("test accuracy in %", learning.test_accuracy, accuracy),
    ):
        mean_without, mean_with = (learning.mean_of(group, e, of) for e in (without, beside))
        if mean_without and mean_with:
            against = (
                f"{what} {mean_text(mean_without, words)} against {mean_text(mean_with, words)}"
            )
            parts.append(f"{against} ({compare_means(mean_without, mean_with)})")
    return f"{place}: {'; '.join(parts)}."


Q5 = ("Q5", "Shuffling and set_epoch")


def why_set_epoch(group: ConditionGroup) -> Answer:
    """Answer Q5: why DDP needs `set_epoch`, by the orders that ranks have read."""
    rows = [row for row in group.timed if learning.runs(group, row)]
    without = [
        row for row in rows if any(not record.cell.set_epoch for record in group.records(row))
    ]
    meaning = (
        "DistributedSampler shuffles by seed + epoch, and only set_epoch gives it the epoch; a "
        "single process, and so dp, reshuffles by itself"
    )
    answers = set_epoch_answers(group, rows)
    if not answers:
        why = "needs cells with set_epoch=false (grid=shuffling)"
        text = f"{meaning[0].upper()}{meaning[1:]}. Not measured here: {why}."
        return Answer(*Q5, text, is_answered=False)
    text = f"Without it every epoch repeats one order: {' '.join(answers)} {meaning}."
    evidence = f"Table Shuffling; {cells(group, without)}"
    return Answer(*Q5, text, evidence, doubt(group, without, Affected.LEARNING))
