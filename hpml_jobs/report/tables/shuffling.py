"""Table of the orders in which ranks took their images, and what that does (lab Q5)."""

import msgspec

from hpml_jobs.core.record import Rank
from hpml_jobs.report.merge import learning as learnt
from hpml_jobs.report.merge.entries import Entry, row_of
from hpml_jobs.report.merge.scope import Scope
from hpml_jobs.report.table import Table
from hpml_jobs.report.tables.builder import About, Column, Columns, label, places, table
from hpml_jobs.report.text.numbers import accuracy, loss

SHUFFLING = (
    "Orders: different sequences of training images among the epochs of a rank, by their hashes. "
    "DistributedSampler shuffles by seed + epoch, and set_epoch alone tells it the epoch: without, "
    "every epoch has the images of a rank, and its batches, again. One process (single, dp) "
    "shuffles anew by itself. Training loss of the last epoch; test accuracy after it, mean over "
    "ranks."
)
QUESTION = "Why does ddp need set_epoch (lab Q5)?"


def shuffling(scope: Scope) -> Table | None:
    """With and without set_epoch; None where every cell has it."""
    if not any(found.cell and not found.cell.set_epoch for found in scope.alike.cells):
        return None
    own = [entry for entry in scope.timed if learnt.runs(scope, entry)]
    if not own:
        return None
    heads: tuple[Columns[Entry], ...] = (
        Columns("set_epoch", (Column("set_epoch", "", lambda e: _set_epoch(scope, e)),), text=True),
        Columns("orders of a rank", (Column("orders", "", lambda e: _orders(scope, e)),)),
        Columns("seeds", (Column("seeds", "", lambda e: learnt.seeds(scope, e)),)),
        *learnt.columns(scope, "train_loss", "training loss", learnt.of_training(-1, "loss"), loss),
        *learnt.columns(scope, "test_accuracy", "test acc., %", learnt.test_accuracy, accuracy),
    )
    about = About(
        "shuffling",
        "Shuffling",
        "",
        (SHUFFLING, learnt.OVER_SEEDS),
        answer=" ".join([QUESTION, *_answers(scope, own)]),
    )
    said = [*learnt.one_seed(scope, own), *learnt.shorter(scope, own)]
    return table(scope, about, places(scope, own, heads), said)


def _set_epoch(scope: Scope, entry: Entry) -> str:
    cell = scope.records(entry)[0].cell
    if not cell.strategy.under_torchrun:
        return "not needed"
    return "yes" if cell.set_epoch else "no"


def _orders(scope: Scope, entry: Entry) -> str | None:
    """`1 of 5`: different orders among the epochs of training, over all ranks and runs.

    None where a record does not tell.
    """
    ranks = [rank for record in learnt.runs(scope, entry) for rank in record.ranks]
    found = sorted({_different(rank) for rank in ranks})
    if 0 in found:
        return None
    ends = "..".join(map(str, dict.fromkeys((found[0], found[-1]))))
    return f"{ends} of {learnt.epochs_of(scope, entry)}"


def _different(rank: Rank) -> int:
    orders = [epoch.order for epoch in learnt.training(rank)]
    return len(set(orders)) if all(orders) else 0


def _answers(scope: Scope, own: list[Entry]) -> list[str]:
    """A sentence for every place without set_epoch that has a number."""
    at = {(entry.row, entry.batch_per_gpu): entry for entry in own}
    told = []
    for entry in own:
        record = scope.records(entry)[0]
        if record.cell.set_epoch:
            continue
        row = row_of(msgspec.structs.replace(record.cell, set_epoch=True))
        told.append(_answer(scope, entry, at.get((row, entry.batch_per_gpu))))
    return told


def _answer(scope: Scope, without: Entry, beside: Entry | None) -> str:
    """`ddp 4-GPU (no set_epoch) b128: 1 of 5 orders, with it 5 of 5; training loss …`."""
    place, orders = label(scope, without), _orders(scope, without) or "unknown"
    if beside is None:
        return f"{place}: {orders} orders of a rank; no cell with set_epoch stands beside it."
    parts = [f"{orders} orders of a rank, with it {_orders(scope, beside) or 'unknown'}"]
    for what, of, words in (
        ("training loss", learnt.of_training(-1, "loss"), loss),
        ("test accuracy in %", learnt.test_accuracy, accuracy),
    ):
        one, other = (learnt.over_seeds(learnt.runs(scope, e), of) for e in (without, beside))
        if one and other:
            against = f"{what} {one.told(words)} against {other.told(words)}"
            parts.append(f"{against} ({learnt.apart(one, other)})")
    return f"{place}: {'; '.join(parts)}."
