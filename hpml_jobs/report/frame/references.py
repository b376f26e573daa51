"""Words for what speedups and efficiencies are against."""

from collections.abc import Callable, Iterable, Sequence

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.check_result import Affected
from hpml_jobs.core.place import Place, baseline_setup, setup_order
from hpml_jobs.core.strategies import Baseline, Device
from hpml_jobs.report.frame.captions import asides, shown, size, unit, units
from hpml_jobs.report.frame.numbers import aside, seconds
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row, Timing, reference_among

SMALLEST = "the smallest size"


def sizes(rows: Iterable[Row]) -> list[int]:
    """Return the numbers of GPUs that the rows' ratios are against, ascending."""
    return sorted({row.reference.gpus for row in rows if row.reference})


def size_text(rows: Iterable[Row], device: Device) -> str:
    """Return the size that ratios are against: `1 GPU`, `16 GPUs`, or where several `the smallest
    size`.
    """
    numbers = sizes(rows)
    if len(numbers) > 1:
        return SMALLEST
    return size(numbers[0] if numbers else 1, device)


def head(rows: Iterable[Row], device: Device, same: str = "batch") -> str:
    """Return the heading of columns of ratios: `against 16 GPUs, same batch`."""
    rows = list(rows)
    reference = "1" if sizes(rows) in ([], [1]) else size_text(rows, device)
    return f"against {reference}, same {same}"


def baseline(group: ConditionGroup, rows: Sequence[Row], batches: Sequence[int]) -> str:
    """Return what rows of a group are compared with, and its seconds per epoch at each batch."""
    return _baseline(group, rows, batches, lambda timing: seconds(timing.epoch_s))


def baseline_train(
    group: ConditionGroup, rows: Sequence[Row], batches: Sequence[int]
) -> str:
    """Return the single-GPU baseline with its seconds without data loading."""
    single = [row for row in rows if row.is_baseline]
    known = {row.timing.train_s is not None for row in single if row.timing}

    def words(timing: Timing) -> str:
        return seconds(timing.epoch_s if timing.train_s is None else timing.train_s)

    what = "train_s (Time where unknown)"
    if len(known) < 2:
        what = "Time" if False in known else "train_s"
    return _baseline(group, single, batches, words, f", {what}")


def _baseline(
    group: ConditionGroup,
    rows: Sequence[Row],
    batches: Sequence[int],
    words: Callable[[Timing], str],
    what: str = "",
) -> str:
    """Return each reference with its time at the batches where rows are compared with it."""
    device = group.device
    by_place = {row.place: row for row in rows}
    setups = {row.reference for row in rows if row.reference} or {baseline_setup()}
    compared = {row.batch_per_gpu for row in rows if row.reference}
    texts = []
    for number, setup in enumerate(sorted(setups, key=setup_order)):
        its_batches = {row.batch_per_gpu for row in rows if row.reference == setup}
        parts = []
        for batch in batches:
            row = by_place.get(Place(setup, batch)) if batch in its_batches else None
            if row and row.timing:
                time_s = shown(words(row.timing), group, Affected.TIME, row)
                parts.append(f"{time_s} s at batch {batch}")
            elif batch not in compared and number == 0:
                parts.append(f"none at batch {batch}")
        name = f"{size(setup.gpus, device)}{aside(asides(setup))}{what}"
        texts.append(f"strategy {setup.strategy.value}, {name}: {', '.join(parts)}")
    return f"Baseline: {'; '.join(texts)}."


def without_plain_loop(group: ConditionGroup) -> bool:
    """Return whether ratios of the group are against more than the plain loop on one GPU."""
    return any(row.reference and not row.reference.is_baseline for row in group.timed)


def suggestion(group: ConditionGroup) -> str:
    """Return the line that names `baseline=smallest`, where it would give more ratios; or nothing.

    It would where a batch has several sizes of a strategy and no single-GPU cell. A cell that was
    requested may still come, except one that is out of memory.
    """
    if group.baseline is not Baseline.SINGLE:
        return ""
    awaited = {
        row.ratio_key
        for row in group.rows
        if row.is_baseline and row.outcome is not Outcome.OOM
    }
    sizes_at: dict[int, set[int]] = {}
    for row in group.timed:
        if row.reference is None and row.ratio_key not in awaited:
            comparable = [
                other for other in group.timed if other.ratio_key == row.ratio_key
            ]
            smallest = reference_among(row, comparable, Baseline.SMALLEST)
            if smallest and smallest.gpus < row.gpus:
                sizes_at.setdefault(row.batch_per_gpu, set()).add(smallest.gpus)
    if not sizes_at:
        return ""
    has_any = any(row.reference for row in group.timed)
    batches = f" at batch {', '.join(map(str, sorted(sizes_at)))}" if has_any else ""
    against = sorted(set().union(*sizes_at.values()))
    gpus = " or ".join(map(str, against))
    return (
        f"no single-{unit(group.device)} cell{batches}: baseline=smallest compares with {gpus} "
        f"{units(group.device)}"
    )
