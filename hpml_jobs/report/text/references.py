"""What speedups and efficiencies are against, in words: one GPU, or the smallest size."""

from collections.abc import Iterable

from hpml_jobs.core.strategies import Baseline, Device
from hpml_jobs.core.text import counted
from hpml_jobs.report.merge.groups import ConditionGroup
from hpml_jobs.report.merge.rows import BASELINE_SETUP, Row, reference_of
from hpml_jobs.report.text.captions import unit, units
from hpml_jobs.slurm.states import Outcome

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
    return counted(numbers[0] if numbers else 1, unit(device), units(device))


def head(rows: Iterable[Row], device: Device) -> str:
    """Return the heading of columns of ratios: `against 16 GPUs, same batch`."""
    text = size_text(rows, device)
    return f"against {text.removesuffix(f' {unit(device)}')}, same batch"


def without_plain_loop(group: ConditionGroup) -> bool:
    """Return whether ratios of the group are against more than the plain loop on one GPU."""
    return any(row.reference not in (None, BASELINE_SETUP) for row in group.timed)


def suggestion(group: ConditionGroup) -> str:
    """Return the line that names `baseline=smallest`, where it would give more ratios; or nothing.

    It would where a batch has several sizes of a strategy and no single-GPU cell. A cell that was
    requested may still come, except one that is out of memory.
    """
    if group.baseline is not Baseline.SINGLE:
        return ""
    awaited = {
        row.batch_per_gpu
        for row in group.rows
        if row.is_baseline and row.outcome is not Outcome.OOM
    }
    sizes_at: dict[int, set[int]] = {}
    for row in group.timed:
        if row.reference is None and row.batch_per_gpu not in awaited:
            same_batch = [r for r in group.timed if r.batch_per_gpu == row.batch_per_gpu]
            smallest = reference_of(row, same_batch, Baseline.SMALLEST)
            if smallest and smallest.gpus < row.gpus:
                sizes_at.setdefault(row.batch_per_gpu, set()).add(smallest.gpus)
    if not sizes_at:
        return ""
    has_any = any(row.reference for row in group.timed)
    batches = f" at batch {', '.join(map(str, sorted(sizes_at)))}" if has_any else ""
    against = sorted(set().union(*sizes_at.values()))
    size = " or ".join(map(str, against))
    return (
        f"no single-{unit(group.device)} cell{batches}: baseline=smallest compares with {size} "
        f"{units(group.device)}"
    )
