"""What training learns: Table 4, counted iterations, and the picture of the loss."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from math import ceil, log
from statistics import median
from typing import Annotated, Any, NamedTuple, Self

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.measurements import Role
from hpml_jobs.core.record import Record
from hpml_jobs.core.value import known_mean
from hpml_jobs.core.workload import Loss
from hpml_jobs.report.frame import captions, learning, picture
from hpml_jobs.report.frame.captions import by_reason, cell_words
from hpml_jobs.report.frame.learning import Mean
from hpml_jobs.report.frame.numbers import accuracy, aside, count, loss, milliseconds
from hpml_jobs.report.frame.picture import (
    Axes,
    Panel,
    Picture,
    cut,
    panels,
)
from hpml_jobs.report.frame.table import (
    Column,
    Number,
    Table,
    TableText,
    columns_of,
    left_out,
    line_table,
)
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.iterations import (
    Curve,
    NoArraysError,
    by_run,
    has_curve,
    read_curve,
)
from hpml_jobs.results.rows import Row

TABLE_4 = (
    "After the last epoch: average training loss, training accuracy (mean of the epoch), and "
    "accuracy on the whole test set{samples}, mean over processes. Global batch: of all {units}. "
    "lr: of the last iteration. ±: standard deviation over seeds."
)
TEXT = (
    "Bits per byte: test loss / ln 2, on held-out text. Unigram: entropy of the frequencies of its "
    "bytes, the loss of a model that knows nothing else."
)


def test_loss(record: Record) -> float | None:
    """Return the loss on the whole test set after the last epoch, where there is no accuracy."""
    return (
        None if learning.test_accuracy(record) is not None else mean_test_loss(record)
    )


def bits_per_byte(nats_per_token: float, bytes_per_token: float) -> float:
    """Return a cross entropy in bits per byte of text: loss / (ln 2 x bytes per token).

    Losses of models with different tokens can be compared in it.

    >>> bits_per_byte(log(256), 1)
    8.0
    """
    return nats_per_token / (log(2) * bytes_per_token)


def mean_test_loss(record: Record) -> float | None:
    """Return the mean loss on the whole test set after the last epoch: the mean over ranks."""
    return known_mean(rank.test_loss for rank in record.ranks)


def test_bits_per_byte(record: Record) -> float | None:
    """Return the loss on the held-out text in bits per byte; None without text.

    Another loss than cross entropy has no bits.
    """
    loss = mean_test_loss(record)
    workload = record.cell.workload
    size = workload.bytes_per_token
    if loss is None or size is None or workload.loss != Loss.CROSS_ENTROPY:
        return None
    return bits_per_byte(loss, size)


def unigram_bits_per_byte(record: Record) -> float | None:
    """Return the unigram entropy of the held-out text; None without text."""
    facts = record.facts
    return facts.text.unigram_bits_per_byte if facts and facts.text else None


def bits(value: float) -> str:
    """Return bits per byte with three decimals.

    >>> bits(2.34567)
    '2.346'
    """
    return f"{value:.3f}"


class LearningLine(NamedTuple):
    """What a row learned; accuracies are of 1, and in the CSV only where samples are text."""

    global_batch: Annotated[int, Column("global batch", count)]
    lr: Annotated[Number, Column("lr", "{:.4g}".format)]
    epochs: Annotated[int, Column("epochs")]
    seeds: Annotated[int, Column("seeds")]
    train_loss: Annotated[Mean | None, learning.shown("training loss", loss)]
    train_accuracy: Annotated[Mean | None, learning.shown("{training}", accuracy)]
    test_accuracy: Annotated[Mean | None, learning.shown("{test}", accuracy)]
    test_loss: Annotated[Mean | None, learning.shown("test loss", loss)]
    test_bits_per_byte: Annotated[Mean | None, learning.shown("test bits/byte", bits)]
    unigram_bits_per_byte: Annotated[Number, Column("unigram bits/byte", bits)]

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the line of a row."""
        runs = row.trained
        last = runs[0].trained[-1].lr
        return cls(
            global_batch=row.global_batch,
            lr=last[1] if last else None,
            epochs=len(runs[0].trained),
            seeds=learning.seeds(runs),
            train_loss=learning.over_seeds(runs, learning.training_loss(-1)),
            train_accuracy=learning.over_seeds(runs, learning.training_accuracy(-1)),
            test_accuracy=learning.over_seeds(runs, learning.test_accuracy),
            test_loss=learning.over_seeds(runs, test_loss),
            test_bits_per_byte=learning.over_seeds(runs, test_bits_per_byte),
            unigram_bits_per_byte=unigram_bits_per_byte(runs[0]),
        )


TEXT_ONLY = ("test_loss", "test_bits_per_byte", "unigram_bits_per_byte")


def table4(group: ConditionGroup) -> Table | None:
    """Return training quality by place; None unless more was requested than the protocol needs."""
    evaluated_slugs = {
        result.slug for result in group.cells if result.cell and _learns(result.cell)
    }
    rows = [row for row in group.rows if evaluated_slugs & set(row.cells)]
    shown_rows = [row for row in rows if row.timing and row.trained]
    if not shown_rows:
        return None
    tested = shown_rows[0].trained[0].ranks[0].test_samples
    samples = aside(f"{tested:,} samples" * bool(tested))
    how = [TABLE_4.format(units=captions.units(group.device), samples=samples)]
    without: Sequence[str] = TEXT_ONLY
    training, test = "training acc., %", "test acc., %"
    if has_text(shown_rows):
        how.append(TEXT)
        without, training, test = (), "", ""
    heads = columns_of(LearningLine, without=without, training=training, test=test)
    text = TableText(
        "table4",
        "Table 4: training quality, last epoch",
        "Table 4",
        tuple(how),
        affected=Affected.LEARNING,
    )
    notes = left_out(group, "", (row for row in rows if not row.timing))
    lines = [(row, LearningLine.of(row)) for row in shown_rows]
    return line_table(group, text, lines, heads, notes)


def has_text(rows: Iterable[Row]) -> bool:
    """Return whether samples of any of these rows are text."""
    records = (record for row in rows for record in row.records)
    return any(test_bits_per_byte(record) is not None for record in records)


def _learns(cell: Cell) -> bool:
    # its bits per byte are always shown
    is_text = cell.workload.bytes_per_token is not None
    return cell.evaluate or is_text or cell.epochs > cell.protocol.epochs


ITERATIONS = (
    "Step: milliseconds of an iteration of the timed epoch, the longest of all processes: mean "
    "without the first one. Loss: mean over processes in the middle and in the last of the first I "
    "iterations of training, those of the warm-up epoch."
)


class IterationLine(NamedTuple):
    """The iterations of an epoch, medians over runs; the mean is without the first of them."""

    mean_step_s: Annotated[float, Column("step, ms", milliseconds)]
    iterations: Annotated[float, Column("I", "{:.0f}".format)]
    loss_half: Annotated[float, Column("at I/2", loss, "loss")]
    loss_end: Annotated[float, Column("at I", loss, "loss")]

    @classmethod
    def of(cls, curve: Curve) -> Self:
        """Return the line of a run."""
        number = next(
            n for n, epoch in enumerate(curve.epochs) if epoch.role == Role.TIMED
        )
        count = curve.epochs[number].iterations
        start = curve.starts[number]
        steps_s = curve.step_s[start + 1 : start + count]
        losses = curve.loss[:count]
        return cls(
            mean_step_s=float(steps_s.mean()),
            iterations=count,
            loss_half=float(losses[count // 2 - 1]),
            loss_end=float(losses[-1]),
        )


def iterations(group: ConditionGroup) -> Table | None:
    """Return what reports that count iterations show; None if no cell has `iterations=`."""
    requested = {r.slug for r in group.cells if r.cell and r.cell.epoch_iterations}
    rows = [row for row in group.timed if requested & set(row.cells)]
    if not rows:
        return None
    values, faults = by_run(group.timed, IterationLine.of)
    text = TableText(
        "iterations",
        "Iterations",
        "",
        (ITERATIONS, captions.runs(rows)),
        affected=Affected.TIME,
    )
    lines = [
        (row, IterationLine(*map(median, zip(*runs, strict=True))))
        for row in rows
        if (runs := [values[r.slug] for r in row.timed_records if r.slug in values])
    ]
    notes = by_reason(faults, group.device)
    return line_table(group, text, lines, columns_of(IterationLine), notes)


POINTS = 2_000
"""The most points of a thin line: more are invisible, but enlarge the SVG."""

LINES = 16
"""The most lines: the legend names each of them, by colour and dashes."""

CAPTION = (
    "The first run of each setting. Thin: iterations; thick: smoothed (mean over a fortieth of the "
    "run)."
)


def loss_picture(groups: Sequence[ConditionGroup]) -> Picture | None:
    """Plot the training loss by epoch, of recipes if there are any; None if no run has curves."""
    setups = {}
    losses: dict[str, dict[str, Curve]] = {}
    with_recipes = [
        group
        for group in groups
        if any(r.cell and r.cell.recipe_label for r in group.cells)
    ]
    for group in with_recipes or groups:
        for row in sorted(group.timed, key=lambda row: row.batch_per_gpu):
            curve = _curve(row)
            if curve is not None:
                label = cell_words(row.place, group.device)
                setups[label] = row.setup
                losses.setdefault(group.name, {})[label] = curve
    # baselines, then those with the most GPUs
    labels = sorted(
        setups,
        key=lambda label: (not setups[label].is_baseline, -setups[label].gpus),
    )
    drawn = sorted(labels[:LINES], key=lambda label: setups[label].order)
    pairs = product(picture.DASHES, picture.COLOURS)
    looks = {
        label: picture.Look(colour, dashes).line
        for label, (dashes, colour) in zip(drawn, pairs, strict=False)
    }
    loss_panels, missing = cut([Panel(*panel) for panel in losses.items()])
    return panels(
        "Training loss",
        loss_panels,
        partial(_draw, looks=looks),
        caption=[CAPTION],
        legend=looks,
        missing=labels[LINES:] + missing,
    )


def _curve(row: Row) -> Curve | None:
    """Return the curve of the row's first run that has one."""
    for result in filter(has_curve, row.measured_cells):
        try:
            return read_curve(result)
        except NoArraysError:  # the table of replicas has it in its notes
            continue
    return None


def _draw(
    axis: Axes, panel: Panel[dict[str, Curve]], *, looks: Mapping[str, dict[str, Any]]
) -> list[str]:
    """Draw the runs of a group; return the loss at the end of each in words."""
    import numpy as np  # noqa: PLC0415 - heavy

    texts = []
    most = 0.0
    for label, look in looks.items():
        curve = panel.data.get(label)
        if curve is None:
            continue
        values = curve.loss
        iterations = len(values) / len(curve.epochs)
        every = ceil(len(values) / POINTS)
        fortieth = max(1, len(values) // 40)
        smooth = np.convolve(values, np.full(fortieth, 1 / fortieth), mode="valid")
        at = (np.arange(len(smooth)) + (fortieth + 1) / 2) / iterations
        few = ceil(len(smooth) / 200)
        thin = np.arange(1, len(values) + 1, every) / iterations
        axis.plot(thin, values[::every], color=look["color"], lw=0.5, alpha=0.3)
        axis.plot(at[::few], smooth[::few], **look, lw=1.4)
        most = max(most, float(smooth.max()))
        words = filter(None, (panel.title, label, f"{smooth[-1]:.3g}"))
        texts.append(": ".join(words))
    axis.set(xlabel="epoch", ylabel="training loss")
    if axis.get_ylim()[1] > 2 * most > 0:  # high peaks of thin lines are clipped
        axis.set_ylim(top=1.3 * most)
    return texts
