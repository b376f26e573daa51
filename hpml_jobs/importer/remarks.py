"""Remarks on imported timings: assumptions, missing values, contradictions."""

from collections.abc import Iterator, Sequence

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.formulas import iterations
from hpml_jobs.core.record import Record
from hpml_jobs.core.workload import Workload
from hpml_jobs.importer.records import Rules, line_of


def remarks(records: Sequence[Record], rules: Rules) -> Iterator[str]:
    """Yield a line for each assumption, missing value and contradiction."""
    if rules.batch_is_global:
        yield "batch is the global batch (batch_is=global); it was divided by gpus"
    yield from _assumptions(records)
    yield from _without_baseline(records)
    total = len(records)
    without = sum(record.imported.train_s is None for record in records if record.imported)
    if without:
        rows = f"{without} of {total} rows" if without < total else "every row"
        yield f"train_s is missing in {rows}: residual communication includes data loading there"
    yield from _contradictions(records)


def _assumptions(records: Sequence[Record]) -> Iterator[str]:
    for workload in dict.fromkeys(record.cell.workload for record in records):
        images = (
            "an unknown number of images per epoch (no iterations; equal shares of the GPUs are "
            "assumed)"
            if workload.images is None
            else f"{workload.images:,} images per epoch"
        )
        if workload.parameters is None:
            size = "an unknown number of parameters (no bandwidth is computed)"
        else:
            size = f"{workload.parameters:,} parameters"
        yield f"{workload.name}: {images}, {size}; change with images=, parameters= or columns"


def _without_baseline(records: Sequence[Record]) -> Iterator[str]:
    """Yield batches without a gpus=1 row of the same model and GPU model."""
    groups: dict[tuple[Workload, str | None], list[Cell]] = {}
    for record in records:
        key = record.cell.workload, record.cell.gpu_type
        groups.setdefault(key, []).append(record.cell)
    for (workload, gpu_type), cells in groups.items():
        with_baseline = {cell.batch for cell in cells if cell.gpus == 1}
        without = sorted({cell.batch for cell in cells} - with_baseline)
        if without:
            name = " on ".join(part for part in (workload.name, gpu_type) if part)
            batches = ", ".join(str(batch) for batch in without)
            yield f"no gpus=1 row of {name} at batch {batches} per GPU: no speedup and no residual"


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
