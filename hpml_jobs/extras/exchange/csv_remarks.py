"""Remarks on imported timings: assumptions, missing values, contradictions."""

from collections.abc import Iterable, Iterator, Sequence

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.formulas import iterations
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import counted
from hpml_jobs.core.workload import Workload
from hpml_jobs.extras.exchange.csv_columns import RateUnit, Rules
from hpml_jobs.extras.exchange.csv_records import line_of

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
    without = sum(record.imported.train_s is None for record in records if record.imported)
    if without:
        rows = f"{without} of {total} rows" if without < total else "every row"
        yield f"train_s is missing in {rows}: residual communication includes data loading there"
    yield from _contradictions(records)


def _rates(records: Sequence[Record], rules: Rules) -> Iterator[str]:
    """Yield what rates and their batches are of, and rates that look like those of one GPU."""
    units = {record.imported.unit for record in records if record.imported}
    if units - {None, RateUnit.ITERATION}:
        yield (
            "rate is of one GPU (rate_of=gpu); it was multiplied by gpus"
            if rules.rate_is_per_gpu
            else "rate is of all GPUs together (rate_of=all); if it is of one GPU, give rate_of=gpu"
        )
    if units - {None} and not rules.batch_is_global:
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
    series: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        imported, cell = record.imported, record.cell
        if (
            imported
            and imported.unit not in (None, RateUnit.ITERATION)
            and not imported.rate_is_per_gpu
        ):
            key = cell.workload, cell.gpu_type, cell.batch, cell.repeat
            series.setdefault(key, []).append(record)
    for members in series.values():
        ordered = sorted(members, key=lambda record: record.cell.gpus)
        first, last = ordered[0], ordered[-1]
        if (
            last.cell.gpus > first.cell.gpus
            and first.epoch_s < SERIES_GROWTH * last.epoch_s
        ):
            yield first, last


def _assumptions(records: Sequence[Record]) -> Iterator[str]:
    works: dict[Workload, int | None] = {}
    for record in records:
        work = record.imported.work_samples if record.imported else None
        works.setdefault(record.cell.workload, work)
    for workload, work in works.items():
        images = _epoch_words(workload, work)
        if workload.parameters is None:
            size = "an unknown number of parameters (no bandwidth is computed)"
        else:
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
    groups: dict[tuple[Workload, str | None], list[Cell]] = {}
    for record in records:
        key = record.cell.workload, record.cell.gpu_type
        groups.setdefault(key, []).append(record.cell)
    for (workload, gpu_type), cells in groups.items():
        with_baseline = {cell.batch for cell in cells if cell.gpus == 1}
        smallest = min(cell.gpus for cell in cells)
        without = sorted({cell.batch for cell in cells} - with_baseline)
        if without:
            name = " on ".join(part for part in (workload.name, gpu_type) if part)
            batches = ", ".join(str(batch) for batch in without)
            text = f"no gpus=1 row of {name} at batch {batches} per GPU: no speedup and no residual"
            if not with_baseline and smallest < max(cell.gpus for cell in cells):
                text += f"; baseline=smallest compares with {smallest} GPUs"
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
