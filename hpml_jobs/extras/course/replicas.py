"""What ranks hold and read: tables of replicas and of shuffling, and the answers Q5 and Q7."""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple, Self

import msgspec

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.place import place_of
from hpml_jobs.core.rank import Rank
from hpml_jobs.core.record import Record
from hpml_jobs.extras.course.words import (
    cells,
    compare_means,
    doubt,
    need,
    unanswered,
    unusable,
    usable,
)
from hpml_jobs.report.frame import curves, learning
from hpml_jobs.report.frame.builder import (
    GroupContext,
    Number,
    Shown,
    TableText,
    columns_of,
    left_out,
    line_table,
    rest,
)
from hpml_jobs.report.frame.captions import cell_words, shown
from hpml_jobs.report.frame.learning import Mean, mean_text
from hpml_jobs.report.frame.numbers import accuracy, loss, significant
from hpml_jobs.report.frame.table import Table
from hpml_jobs.report.page.formats import Answer
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row

REPLICAS = (
    "Loss and accuracy of the last epoch of training, over all samples of all ranks. Test: the "
    "whole test set on each rank's replica; mean over ranks, and least..most over the ranks of "
    "all runs. Replicas: whether the hashes of parameters and of buffers (BatchNorm) are equal on"
    " all ranks after the last epoch (lab Q7)."
)


def _range(ends: tuple[float, float]) -> str:
    least, most = map(accuracy, ends)
    return least if least == most else f"{least}..{most}"


def _loss(value: float) -> str:
    return significant(value, 4)


class ReplicaLine(NamedTuple):
    """Loss and accuracy (of 1) of a row, and whether its replicas' hashes are equal."""

    epochs: Annotated[int, Shown("epochs")]
    seeds: Annotated[int, Shown("seeds")]
    train_loss: Annotated[Number, Shown("loss", _loss, "last epoch")]
    train_accuracy: Annotated[Number, Shown("acc. %", accuracy, "last epoch")]
    test_accuracy: Annotated[Number, Shown("mean", accuracy, "test accuracy, %")]
    test_deviation: Annotated[Number, Shown("dev.", accuracy, "test accuracy, %")]
    ranks: Annotated[
        tuple[float, float] | None,
        Shown("ranks", _range, "test accuracy, %", on_page_only=True),
    ]
    test_accuracy_least: Number
    test_accuracy_most: Number
    parameters: Annotated[str | None, Shown("parameters", str, "replicas' hashes")]
    buffers: Annotated[str | None, Shown("buffers", str, "replicas' hashes")]

    @classmethod
    def of(cls, group: ConditionGroup, row: Row) -> Self:
        """Return the line of a row."""
        runs, ranks = learning.runs(group, row), _ranks(group, row)
        least, most = ranks or (None, None)
        tested = learning.over_seeds(runs, learning.test_accuracy)
        return cls(
            epochs=learning.epochs_of(group, row),
            seeds=learning.seeds(group, row),
            train_loss=_mean(learning.over_seeds(runs, learning.training_loss(-1))),
            train_accuracy=_mean(
                learning.over_seeds(runs, learning.training_accuracy(-1))
            ),
            test_accuracy=_mean(tested),
            test_deviation=tested.deviation if tested else None,
            ranks=ranks,
            test_accuracy_least=least,
            test_accuracy_most=most,
            parameters=_same(group, row, "parameters"),
            buffers=_same(group, row, "buffers"),
        )


def _mean(mean: Mean | None) -> float | None:
    return mean.mean if mean else None


def replicas(context: GroupContext) -> Table | None:
    """Return loss, accuracy, and whether replicas are equal; None if no record has ranks."""
    group = context.group
    rows = [row for row in group.timed if learning.runs(group, row)]
    if not rows:
        return None
    missing = left_out(group, "not reported", rest(group.rows, rows))
    comparison = buffer_comparison(group, rows)
    answer = f"{QUESTION} {comparison}" if comparison else ""
    text = TableText(
        "replicas",
        "Replicas and accuracy",
        "",
        (REPLICAS, learning.OVER_SEEDS),
        answer=answer,
        affected=Affected.LEARNING,
    )
    lines = [(row, ReplicaLine.of(group, row)) for row in rows]
    notes = [*learning.shorter(group, rows), *curves.unreadable(group), *missing]
    return line_table(group, text, lines, columns_of(ReplicaLine), notes)


def _ranks(group: ConditionGroup, row: Row) -> tuple[float, float] | None:
    """Return the least and the greatest accuracy over ranks and runs."""
    accuracies = [
        rank.test_accuracy
        for record in learning.runs(group, row)
        for rank in record.ranks
        if rank.test_accuracy is not None
    ]
    return (min(accuracies), max(accuracies)) if accuracies else None


def _spread(record: Record) -> float:
    """Return the greatest difference of the ranks' test accuracies, as a share of 1."""
    accuracies = [
        rank.test_accuracy for rank in record.ranks if rank.test_accuracy is not None
    ]
    return max(accuracies) - min(accuracies) if accuracies else 0.0


def _same(group: ConditionGroup, row: Row, what: str) -> str | None:
    """Return whether the parameters, or buffers, of all replicas of each run have one hash.

    None with one replica, or without a hash.
    """
    has_several, runs = False, []
    for record in learning.runs(group, row):
        has_several = has_several or len(record.ranks) > 1
        runs.append({getattr(rank, f"{what}_hash") for rank in record.ranks})
    if not has_several or "" in set[str]().union(*runs):
        return None
    return "equal" if all(len(hashes) == 1 for hashes in runs) else "differ"


QUESTION = "Would gradients alone be enough (lab Q7)?"


def buffer_comparison(group: ConditionGroup, rows: Sequence[Row]) -> str:
    """Compare cells with a requested sync_buffers with the other cells at their place."""
    chose = [e for e in rows if group.records(e)[0].cell.sync_buffers is not None]
    places = {_without_setup(row) for row in chose}
    compared = [row for row in rows if _without_setup(row) in places]
    if not compared:
        return ""
    texts = "; ".join(_replica_text(group, row) for row in compared)
    drifted = [row for row in compared if _same(group, row, "buffers") == "differ"]
    kept = all(_same(group, row, "parameters") == "equal" for row in drifted)
    if drifted and kept:
        return f"They keep parameters equal, but not BatchNorm's buffers. {texts}."
    return f"{texts}."


def _without_setup(row: Row) -> tuple[object, ...]:
    """Return a row's place without its treatment."""
    return row.gpus, row.nodes, row.strategy, row.batch_per_gpu


def parameters_and_buffers(
    group: ConditionGroup, row: Row
) -> tuple[str | None, str | None]:
    """Return whether parameters, and whether buffers, are equal on all ranks; None if unknown."""
    return _same(group, row, "parameters"), _same(group, row, "buffers")


def _replica_text(group: ConditionGroup, row: Row) -> str:
    """Return `4 GPUs, batch 512 (ddp, buffers off): parameters equal, buffers differ, loss …`."""
    parts = [
        f"{what} {same}"
        for what in ("parameters", "buffers")
        if (same := _same(group, row, what))
    ]
    last = learning.mean_of(group, row, learning.training_loss(-1))

    def marked(mean: Mean, words: Callable[[float], str]) -> str:
        return shown(mean_text(mean, words), group, Affected.LEARNING, row)

    parts += [f"training loss {marked(last, loss)}"] if last else []
    tested = learning.mean_of(group, row, learning.test_accuracy)
    if tested:
        apart = max(_spread(record) for record in learning.runs(group, row))
        parts.append(f"test accuracy {marked(tested, accuracy)} %")
        parts.append(f"ranks of one run differ by {accuracy(apart)} points at most")
    return f"{cell_words(row.place, group.device)}: {', '.join(parts)}"


SHUFFLING = (
    "Orders: different sequences of training {samples} among the epochs of a rank, by their "
    "hashes. DistributedSampler shuffles by seed + epoch, and only set_epoch gives it the epoch: "
    "without it, a rank has the same {samples} and batches in every epoch. A single process "
    "(single, dp) reshuffles by itself. Training loss of the last epoch; test accuracy after it, "
    "mean over ranks."
)
WHY_SET_EPOCH = "Why does ddp need set_epoch (lab Q5)?"


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


def shuffling(context: GroupContext) -> Table | None:
    """Return the runs with and without set_epoch; None if every cell has it."""
    group = context.group
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
        answer=" ".join([WHY_SET_EPOCH, *set_epoch_answers(group, rows)]),
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
        answers.append(_set_epoch_answer(group, row, at.get(place)))
    return answers


def _set_epoch_answer(group: ConditionGroup, without: Row, beside: Row | None) -> str:
    """Return `4 GPUs, batch 128 (ddp, no set_epoch): 1 of 5 orders, with it 5 of 5; …`."""
    place = cell_words(without.place, group.device)
    orders = _orders(group, without) or "unknown"
    if beside is None:
        return f"{place}: {orders} orders of a rank; no cell with set_epoch to compare with."
    parts = [
        f"{orders} orders of a rank, with it {_orders(group, beside) or 'unknown'}"
    ]
    for what, value_of, words in (
        ("training loss", learning.training_loss(-1), loss),
        ("test accuracy in %", learning.test_accuracy, accuracy),
    ):
        mean_without = learning.mean_of(group, without, value_of)
        mean_with = learning.mean_of(group, beside, value_of)
        if mean_without and mean_with:
            text, text_with = (
                mean_text(mean_without, words),
                mean_text(mean_with, words),
            )
            compared = compare_means(mean_without, mean_with)
            parts.append(f"{what} {text} against {text_with} ({compared})")
    return f"{place}: {'; '.join(parts)}."


Q5 = ("Q5", "Shuffling and set_epoch")


def why_set_epoch(group: ConditionGroup) -> Answer:
    """Answer Q5: why DDP needs `set_epoch`, by the orders that ranks have read."""
    rows = [row for row in group.timed if learning.runs(group, row)]
    without = [
        row
        for row in rows
        if any(not record.cell.set_epoch for record in group.records(row))
    ]
    meaning = (
        "DistributedSampler shuffles by seed + epoch, and only set_epoch gives it the epoch; a "
        "single process, and so dp, reshuffles by itself"
    )
    answers = set_epoch_answers(group, rows)
    if not answers:
        needed = "needs cells with set_epoch=false (grid=shuffling)"
        why = need(group, _has_no_set_epoch, needed)
        text = f"{meaning[0].upper()}{meaning[1:]}. Not measured here: {why}."
        return Answer(*Q5, text, is_answered=False)
    text = f"Without it every epoch repeats one order: {' '.join(answers)} {meaning}."
    evidence = f"Table Shuffling; {cells(group, without)}"
    return Answer(*Q5, text, evidence, doubt(group, without, Affected.LEARNING))


def _has_no_set_epoch(cell: Cell) -> bool:
    return not cell.set_epoch


Q7 = ("Q7", "Gradients alone")
BUFFERS = "needs cells with sync_buffers=off beside the others (grid=buffers)"


def gradients_enough(group: ConditionGroup) -> Answer:
    """Answer Q7: whether ranks that exchange gradients only hold the same model."""
    parallel = [row for row in group.timed if row.gpus > 1]
    rows = usable(group, parallel, Affected.LEARNING)
    measured = [row for row in parallel if any(parameters_and_buffers(group, row))]
    hashed = [row for row in rows if row in measured]
    compared = buffer_comparison(group, rows)
    if compared:
        return Answer(
            *Q7,
            compared,
            f"Table Replicas and accuracy; {cells(group, hashed)}",
            doubt(group, hashed, Affected.LEARNING),
        )
    if measured and not hashed:
        return unusable(*Q7, f"Table Replicas and accuracy; {cells(group, measured)}")
    needed = need(group, _chooses_buffers, BUFFERS)
    if not hashed:
        return unanswered(*Q7, needed)
    text = f"Only in part: {_hashes(group, hashed)}."
    text += f" The effect on accuracy is not measured: {needed}."
    return Answer(
        *Q7,
        text,
        f"Table Replicas and accuracy; {cells(group, hashed)}",
        is_answered=False,
    )


def _chooses_buffers(cell: Cell) -> bool:
    return cell.sync_buffers is not None


def _hashes(group: ConditionGroup, rows: Sequence[Row]) -> str:
    """Return for each strategy whether replicas end equal, by their hashes."""
    texts: dict[str, None] = {}
    for row in rows:
        parameters, buffers = parameters_and_buffers(group, row)
        epochs = learning.epochs_of(group, row)
        strategy = row.strategy.value
        texts[
            f"after {epochs} epochs of {strategy} the parameters of all ranks are "
            f"{_equal(parameters)}, their BatchNorm buffers are {_equal(buffers)}"
        ] = None
    return "; ".join(texts)


def _equal(same: str | None) -> str:
    return {"equal": "equal", "differ": "different"}.get(same or "", "unknown")
