"""Remarks on imported timings: assumptions, missing values, contradictions."""

from collections.abc import Iterable, Iterator, Sequence

from hpml_jobs.core.formulas import iterations
from hpml_jobs.core.measurements import Imported
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted
from hpml_jobs.core.workload import Workload
from hpml_jobs.extras.exchange.csv_columns import Rules, is_throughput
from hpml_jobs.extras.exchange.csv_records import imported_of, line_of
from hpml_jobs.results.rows import by_key

LARGEST_NODE = 16
"""The most GPUs of one node that is sold (DGX-2)."""

SERIES_GROWTH = 1.1
"""Least growth of the rate from the fewest to the most GPUs that is a rate of all GPUs together."""


def remarks(records: Sequence[Record], rules: Rules) -> Iterator[str]:
    """Yield a line for each assumption, missing value and contradiction."""
    if rules.batch_is_global:
        yield "batch is the global batch (batch_is=global); it was divided by gpus"
    yield from _rates(records, rules)
    yield from _assumptions(records)
    yield from _without_nodes(records)
    yield from _without_baseline(records)
    total = len(records)
    without = sum(imported_of(record).train_s is None for record in records)
    if without:
        rows = f"{without} of {total} rows" if without < total else "every row"
        yield f"train_s is missing in {rows}: residual communication includes data loading there"
    yield from _contradictions(records)


def _rates(records: Sequence[Record], rules: Rules) -> Iterator[str]:
    """Yield what rates and their batches are of, and rates that look like those of one GPU."""
    units = {imported_of(record).unit for record in records}
    if any(map(is_throughput, units)):
        yield (
            "rate is of one GPU (rate_of=gpu); it was multiplied by gpus"
            if rules.rate_is_per_gpu
            else "rate is of all GPUs together (rate_of=all); if it is of one GPU, give rate_of=gpu"
        )
    if any(units) and not rules.batch_is_global:
        yield "batch is that of one GPU (batch_is=per_gpu); if it is of all, give batch_is=global"
    for first, last in _hardly_growing(records):
        name = last.cell.workload.name
        yield (
            f"line {line_of(last)}: the rate of {name} on {last.cell.gpus} GPUs is only "
            f"{first.epoch_s / last.epoch_s:.2f} times that on {first.cell.gpus}: if rates are of "
            "one GPU, give rate_of=gpu"
        )


def _hardly_growing(records: Iterable[Record]) -> Iterator[tuple[Record, Record]]:
    """Yield the fewest and the most GPUs of each series whose rate of all GPUs hardly grows.

    A rate per GPU looks like this.
    """
    of_all = [record for record in records if _is_rate_of_all(imported_of(record))]
    for members in by_key((_series(record), record) for record in of_all).values():
        ordered = sorted(members, key=lambda record: record.cell.gpus)
        first, last = ordered[0], ordered[-1]
        is_larger = last.cell.gpus > first.cell.gpus
        if is_larger and first.epoch_s < SERIES_GROWTH * last.epoch_s:
            yield first, last


def _is_rate_of_all(imported: Imported) -> bool:
    return is_throughput(imported.unit) and not imported.rate_is_per_gpu


def _series(record: Record) -> tuple[object, ...]:
    cell = record.cell
    return cell.workload, cell.gpu_type, cell.batch, cell.repeat


def _assumptions(records: Sequence[Record]) -> Iterator[str]:
    by_workload = by_key((record.cell.workload, record) for record in records)
    for workload, members in by_workload.items():
        images = _epoch_words(workload, imported_of(members[0]).work_samples)
        size = "an unknown number of parameters (no bandwidth is computed)"
        if workload.parameters is not None:
            size = f"{workload.parameters:,} parameters"
        key = "images" if workload.samples_name == "images" else "samples"
        yield f"{workload.name}: {images}, {size}; change with {key}=, parameters= or columns"


def _without_nodes(records: Sequence[Record]) -> Iterator[str]:
    """Yield the row with the most GPUs on one node, if no node is that large."""
    largest = max(records, key=lambda record: record.cell.gpus_per_node)
    gpus, nodes = largest.cell.gpus, largest.cell.nodes
    if largest.cell.gpus_per_node > LARGEST_NODE:
        yield (
            f"line {line_of(largest)}: {gpus} GPUs count as {counted(nodes, 'node')}; give "
            "gpus_per_node= or a column nodes"
        )


def _epoch_words(workload: Workload, work: int | None) -> str:
    name = workload.samples_name
    if workload.images is not None:
        return f"{workload.images:,} {name} per epoch"
    unknown = f"an unknown number of {name} per epoch"
    if work is not None:
        return f"{unknown} (times are those of {work:,} {name})"
    return f"{unknown} (no iterations; equal shares of the GPUs are assumed)"


def _without_baseline(records: Sequence[Record]) -> Iterator[str]:
    """Yield batches without a gpus=1 row of the same model and GPU model."""
    cells = [record.cell for record in records]
    groups = by_key(((cell.workload, cell.gpu_type), cell) for cell in cells)
    for (workload, gpu_type), members in groups.items():
        with_baseline = {cell.batch for cell in members if cell.gpus == 1}
        without = {cell.batch for cell in members} - with_baseline
        if without:
            name = f"{workload.name} on {gpu_type}" if gpu_type else workload.name
            batches = ", ".join(map(str, sorted(without)))
            text = f"no gpus=1 row of {name} at batch {batches} per GPU: no speedup and no residual"
            sizes = {cell.gpus for cell in members}
            if not with_baseline and len(sizes) > 1:
                text += f"; baseline=smallest compares with {min(sizes)} GPUs"
            yield text


def _contradictions(records: Sequence[Record]) -> Iterator[str]:
    """Yield rows whose iterations contradict their batch: often it is the global batch."""
    for record in records:
        cell = record.cell
        if cell.workload.images is None:
            continue
        expected = iterations(cell.workload.images, cell.gpus, cell.batch)
        if record.iterations != expected:
            yield (
                f"line {line_of(record)}: {record.iterations} iterations, but {cell.gpus} GPUs x "
                f"batch {cell.batch} need {expected} for {cell.workload.images} images; if batch "
                "is the global batch, give batch_is=global"
            )
