"""Tables of what large batches learn: after the last epoch (lab Q4, Table 4), and by epoch."""

from collections.abc import Callable, Sequence

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.record import Record
from hpml_jobs.report.merge import learning as learnt
from hpml_jobs.report.merge.entries import Entry
from hpml_jobs.report.merge.scope import Scope
from hpml_jobs.report.table import Block, Line, Sheet, Table
from hpml_jobs.report.tables.builder import About, Column, Columns, label, left_out, places, table
from hpml_jobs.report.text.captions import units
from hpml_jobs.report.text.numbers import DASH, accuracy, count, loss

TABLE_4 = (
    "Of the last epoch: average training loss, training accuracy (as seen while training), and "
    "accuracy on the whole test set after it, mean over ranks. Global batch: of all {units}; lr: "
    "of the last iteration."
)
EVALUATION = (
    "Accuracy on the whole test set after each epoch, every rank on its share, counted exactly; "
    "average training loss of the epoch."
)
COLUMNS, ABREAST = 8, 3
"""So many epochs have a column on a page (the CSV has all), and so many stay beside each other."""


def table4(scope: Scope) -> Table | None:
    """What was learnt, place by place; None where nobody asked for more than the protocol's."""
    asked = {found.slug for found in scope.alike.cells if found.cell and _learns(found.cell)}
    entries = [entry for entry in scope.entries if asked & set(entry.cells)]
    own = [entry for entry in entries if entry.timing and learnt.runs(scope, entry)]
    if not own:
        return None
    heads: tuple[Columns[Entry], ...] = (
        Columns("global batch", (Column("global_batch", "", _global_batch, count),)),
        Columns("lr", (Column("lr", "", lambda e: _lr(learnt.runs(scope, e)[0]), _rate),)),
        Columns("epochs", (Column("epochs", "", lambda e: learnt.epochs_of(scope, e)),)),
        Columns("seeds", (Column("seeds", "", lambda e: learnt.seeds(scope, e)),)),
        *learnt.columns(scope, "train_loss", "training loss", learnt.of_training(-1, "loss"), loss),
        *learnt.columns(
            scope,
            "train_accuracy",
            "training acc., %",
            learnt.of_training(-1, "accuracy"),
            accuracy,
        ),
        *learnt.columns(scope, "test_accuracy", "test acc., %", learnt.test_accuracy, accuracy),
    )
    caption = (TABLE_4.format(units=units(scope.device)), learnt.OVER_SEEDS)
    about = About("table4", "Table 4: what was learnt, last epoch", "Table 4", caption)
    lost = left_out(scope, "", (entry for entry in entries if not entry.timing))
    said = [*learnt.one_seed(scope, own), *learnt.shorter(scope, own), *lost]
    return table(scope, about, places(scope, own, heads), said)


def _learns(cell: Cell) -> bool:
    return cell.evaluate or cell.epochs > cell.protocol.epochs


def _global_batch(entry: Entry) -> int:
    return entry.gpus * entry.batch_per_gpu


def _lr(record: Record) -> float | None:
    last = learnt.training(record.ranks[0])[-1].lr
    return last[1] if last else None


def _rate(value: float) -> str:
    return f"{value:.4g}"


def evaluation(scope: Scope) -> Table | None:
    """Test accuracy and training loss after each epoch; None where no epoch was evaluated."""
    own = [e for e in scope.timed if any(map(learnt.was_evaluated, scope.records(e)))]
    if not own:
        return None
    most = max(learnt.epochs_of(scope, entry) for entry in own)
    shown = shown_epochs(most)
    heads = [
        tuple(str(n + 1) for n in shown[i : i + ABREAST]) for i in range(0, len(shown), ABREAST)
    ]
    return Table(
        label="evaluation",
        title="Accuracy and loss by epoch",
        corner="after epoch",
        blocks=tuple(
            Block(head=head, columns=columns)
            for head in ("test accuracy, %", "training loss")
            for columns in heads
        ),
        lines=tuple(
            Line(
                label=label(scope, entry),
                texts=(
                    *(_told(scope, entry, learnt.evaluated(n), accuracy) for n in shown),
                    *(_told(scope, entry, learnt.of_training(n, "loss"), loss) for n in shown),
                ),
            )
            for entry in own
        ),
        caption=(EVALUATION, learnt.OVER_SEEDS),
        setting=scope.setting,
        notes=(*learnt.one_seed(scope, own), *learnt.shorter(scope, own)),
        sheet=_sheet(scope, own),
    )


def shown_epochs(epochs: int) -> list[int]:
    """The epochs that have a column, from 0: all, or the first, the last and some between.

    >>> shown_epochs(3), shown_epochs(90)
    ([0, 1, 2], [0, 13, 25, 38, 51, 64, 76, 89])
    """
    if epochs <= COLUMNS:
        return list(range(epochs))
    return [round(number * (epochs - 1) / (COLUMNS - 1)) for number in range(COLUMNS)]


def _told(scope: Scope, entry: Entry, of: learnt.OfRun, words: Callable[[float], str]) -> str:
    found = learnt.over_seeds(learnt.runs(scope, entry), of)
    return found.told(words) if found else DASH


_SHEET = (
    *("strategy", "gpus", "nodes", "treatment", "batch", "epoch", "runs", "seeds"),
    *("test_accuracy", "test_accuracy_deviation", "train_loss", "train_loss_deviation"),
)


def _sheet(scope: Scope, own: Sequence[Entry]) -> Sheet:
    """A row for every place and epoch."""
    rows = []
    for entry in own:
        place = (entry.strategy.value, entry.gpus, entry.nodes, entry.treatment)
        runs, seeds = learnt.runs(scope, entry), learnt.seeds(scope, entry)
        for number in range(learnt.epochs_of(scope, entry)):
            tested = learnt.over_seeds(runs, learnt.evaluated(number))
            trained = learnt.over_seeds(runs, learnt.of_training(number, "loss"))
            rows.append(
                (
                    *(*place, entry.batch_per_gpu, number + 1, len(runs), seeds),
                    *(tested or (None, None)),
                    *(trained or (None, None)),
                )
            )
    return Sheet(columns=_SHEET, rows=tuple(rows))
