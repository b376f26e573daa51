"""Answers about time: the epoch by batch on one GPU (Q1), speedups, weak and strong (Q2)."""

from collections.abc import Sequence

from hpml_jobs.core.cell import Cell, Outcome
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.text import counted
from hpml_jobs.extras.course.words import (
    cells,
    doubt,
    is_parallel,
    main_rows,
    need,
    unanswered,
    unusable,
    usable,
)
from hpml_jobs.report.frame.captions import (
    asides,
    cell_words,
    mark,
    one_work,
    shown,
    unit,
    units,
)
from hpml_jobs.report.frame.numbers import count, milliseconds, ratio, seconds
from hpml_jobs.report.page.formats import Answer
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.pairs import Pair, pairs
from hpml_jobs.results.rows import Row

Q1 = ("Q1", "Time on one {unit} by batch")
Q2 = ("Q2", "Speedup, weak and strong scaling")

SIZES = 4
"""The most sizes, and the most batches of a size, that a sentence lists."""


def epoch_by_batch(group: ConditionGroup) -> Answer:
    """Answer Q1: the time of one epoch on one GPU for every batch, up to the memory's limit."""
    gpu = unit(group.device)
    question, title = Q1[0], Q1[1].format(unit=gpu)
    rows = [
        row for row in group.rows if row.is_baseline and row.path == group.main_path
    ]
    measured = [row for row in rows if row.timing]
    timed = usable(group, measured, Affected.TIME)
    if measured and not timed:
        return unusable(question, title, f"Table Q1; {cells(group, measured)}")
    if not timed:
        needed = f"needs single-{gpu} cells (gpus=1 batch=32,128,512)"
        return unanswered(question, title, need(group, _is_single, needed))
    limit = [] if group.imported else [_limit(rows, timed, gpu)]
    parts = [_times(group, timed), *_change(group, timed), *limit]
    return Answer(
        question,
        title,
        " ".join(parts),
        f"Table Q1; {cells(group, timed)}",
        doubt(group, measured, Affected.TIME),
    )


def _is_single(cell: Cell) -> bool:
    return cell.gpus == 1


def _times(group: ConditionGroup, timed: Sequence[Row]) -> str:
    has_train = all(row.timing and row.timing.train_s is not None for row in timed)
    texts = []
    for row in timed:
        if row.timing:
            value = row.timing.train_s if has_train else row.timing.epoch_s
            time_s = shown(seconds(value or 0.0), group, Affected.TIME, row)
            texts.append(f"{time_s} s at batch {row.batch_per_gpu}")
    what = (
        "without data loading, with copies to the device, gradients and update"
        if has_train
        else "data loading included: the time without it is not reported"
    )
    work = one_work(group.work)
    verb = "takes" if group.work is None else "take"
    size = f"one {unit(group.device)}"
    return f"{work[0].upper()}{work[1:]} on {size} {verb} {', '.join(texts)} ({what})."


def _change(group: ConditionGroup, timed: Sequence[Row]) -> list[str]:
    """Return how the epoch changes from the smallest batch to the largest."""
    first, last = timed[0], timed[-1]
    before, after = first.timing, last.timing
    if first is last or before is None or after is None:
        return []
    factor = before.epoch_s / after.epoch_s
    word = "shorter" if factor >= 1 else "longer"
    times = shown(ratio(max(factor, 1 / factor)), group, Affected.TIME, first, last)
    text = (
        f"From batch {first.batch_per_gpu} to {last.batch_per_gpu} the time becomes "
        f"{times} times {word}"
    )
    if before.iterations and after.iterations:
        text += f", with {count(after.iterations)} instead of {count(before.iterations)} iterations"
    if before.samples and after.samples:
        ms_before = milliseconds(before.epoch_s / before.samples)
        ms_after = milliseconds(after.epoch_s / after.samples)
        text += (
            f"; a sample takes {shown(ms_after, group, Affected.TIME, last)} instead of "
            f"{shown(ms_before, group, Affected.TIME, first)} ms"
        )
    return [f"{text}."]


def _limit(rows: Sequence[Row], timed: Sequence[Row], gpu: str) -> str:
    """Return which batch the memory cannot hold."""
    too_large = [row.batch_per_gpu for row in rows if row.outcome is Outcome.OOM]
    if too_large:
        return (
            f"Batch {min(too_large)} does not fit into the memory of one {gpu}; the largest "
            f"batch that was measured is {timed[-1].batch_per_gpu}."
        )
    return (
        f"No batch up to {timed[-1].batch_per_gpu} ran out of memory; grid=ladder measures which "
        "batch does."
    )


def speedups(group: ConditionGroup) -> Answer:
    """Answer Q2: speedups at a fixed batch per GPU, and what strong scaling gives."""
    gpu, gpus = unit(group.device), units(group.device)
    rows = main_rows(group)
    if not rows:
        needed = f"needs cells of several {gpus} (gpus=1,2,4)"
        return unanswered(*Q2, need(group, is_parallel, needed))
    strategy = rows[0].strategy.value
    measured = [row for row in rows if group.reference(row) not in (None, row)]
    if not measured:
        needed = "no cell has a smaller one to compare with at its batch (gpus=1)"
        return unanswered(*Q2, need(group, _is_single, needed))
    compared = _with_usable_reference(group, measured)
    if not compared:
        return unusable(*Q2, f"Table 1 of {strategy}; {cells(group, measured)}")
    is_single = all(row.reference and row.reference.is_baseline for row in compared)
    over = f"one {gpu}" if is_single else "the smallest size"
    text = (
        f"Speedup over {over} at the same batch per {gpu}, {strategy}: "
        f"{_by_size(group, compared)}. With a fixed batch per {gpu} the global batch grows with "
        f"the number of {gpus}: this is weak scaling. {_strong(group, compared)}"
    )
    tables = f"Table 1 of {strategy}"
    if pairs(group):
        tables += ", table Scaling"
    return Answer(
        *Q2,
        text,
        f"{tables}; {cells(group, compared)}",
        doubt(group, rows, Affected.TIME),
    )


def _with_usable_reference(group: ConditionGroup, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that no check calls wrong, nor what they are compared with."""
    compared = []
    for row in usable(group, rows, Affected.TIME):
        reference = group.reference(row)
        if reference and usable(group, [reference], Affected.TIME):
            compared.append(row)
    return compared


def _by_size(group: ConditionGroup, rows: Sequence[Row]) -> str:
    by_setup: dict[str, list[str]] = {}
    for row in rows:
        label = counted(row.gpus, unit(group.device), units(group.device))
        label += f" ({text})" if (text := asides(row.setup)) else ""
        if row.timing and row.speedup is not None:
            speedup = mark(ratio(row.speedup), is_doubtful=group.doubts_ratio(row))
            time_s = shown(seconds(row.timing.epoch_s), group, Affected.TIME, row)
            by_setup.setdefault(label, []).append(
                f"{speedup} at batch {row.batch_per_gpu} ({time_s} s)"
            )
    sizes = [
        f"{label}: {', '.join(texts[:SIZES])}{_more(len(texts), 'batch', 'batches')}"
        for label, texts in list(by_setup.items())[:SIZES]
    ]
    return "; ".join(sizes) + _more(len(by_setup), "size", "sizes")


def _more(number: int, what: str, plural: str) -> str:
    return (
        f" and {counted(number - SIZES, what, plural)} more" if number > SIZES else ""
    )


def _strong(group: ConditionGroup, compared: Sequence[Row]) -> str:
    """Return what strong scaling gives, by a data point that weak scaling has too."""
    gpu = unit(group.device)
    points = [
        pair
        for pair in pairs(group)
        if pair.parallel in compared and usable(group, [pair.reference], Affected.TIME)
    ]
    if not points:
        row = compared[-1]
        return (
            f"No data point of strong scaling: it needs a cell of fewer {units(group.device)} at "
            f"the same global batch, for example gpus=1 batch={row.gpus * row.batch_per_gpu}."
        )
    point = max(points, key=lambda pair: (pair.parallel.gpus, pair.global_batch))
    lower = sum(_is_lower(pair) for pair in points)
    looks = "worse" if _is_lower(point) else "no worse"
    weak = mark(
        ratio(point.parallel.speedup or 0.0),
        is_doubtful=group.doubts_ratio(point.parallel),
    )
    strong = shown(
        ratio(point.speedup), group, Affected.TIME, point.parallel, point.reference
    )
    times_s = [
        shown(seconds(row.figures.epoch_s), group, Affected.TIME, row)
        for row in (point.parallel, point.reference)
    ]
    return (
        f"Strong scaling, with a fixed global batch, looks {looks}: "
        f"{cell_words(point.parallel.place, group.device)} has a speedup of {weak} at the same "
        f"batch per {gpu}, and of {strong} at the same global batch of "
        f"{point.global_batch} ({times_s[0]} s against "
        f"{times_s[1]} s of {cell_words(point.reference.place, group.device)}). "
        f"It is lower in {lower} of {counted(len(points), 'pair')} of cells."
    )


def _is_lower(pair: Pair) -> bool:
    return pair.parallel.speedup is not None and pair.speedup < pair.parallel.speedup
