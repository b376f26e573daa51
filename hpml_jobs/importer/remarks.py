"""What is to be known about imported timings: assumed, missing, or in contradiction."""

from collections.abc import Iterator, Sequence

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.formulas import iterations
from hpml_jobs.core.record import Record
from hpml_jobs.core.workload import Workload
from hpml_jobs.importer.records import Rules, line_of


def remarks(records: Sequence[Record], rules: Rules) -> Iterator[str]:
    """What was assumed, what is missing, and what contradicts itself, a line each."""
    if rules.batch_is_global:
        yield "batch is the global batch: it was divided by gpus"
    yield from _assumptions(records)
    yield from _without_baseline(records)
    total = len(records)
    loading = sum(record.imported.train_s is None for record in records if record.imported)
    if loading:
        rows = f"all {total} rows" if loading == total else f"{loading} of {total} rows"
        yield f"{rows} have no train_s: residual communication there includes data loading"
    yield from _contradictions(records)


def _assumptions(records: Sequence[Record]) -> Iterator[str]:
    for workload in dict.fromkeys(record.cell.workload for record in records):
        images = f"{workload.images:,} images per epoch"
        if workload.parameters is None:
            size = "unknown parameters, so no bandwidth"
        else:
            size = f"{workload.parameters:,} parameters"
        yield f"{workload.name}: {images}, {size} (else: images=, parameters=, or columns)"


def _without_baseline(records: Sequence[Record]) -> Iterator[str]:
    """Batches without a gpus=1 row of the same model and GPU kind."""
    kinds: dict[tuple[Workload, str | None], list[Cell]] = {}
    for record in records:
        key = record.cell.workload, record.cell.gpu_type
        kinds.setdefault(key, []).append(record.cell)
    for (workload, gpu_type), cells in kinds.items():
        single = {cell.batch for cell in cells if cell.gpus == 1}
        without = sorted({cell.batch for cell in cells} - single)
        if without:
            of = " on ".join(part for part in (workload.name, gpu_type) if part)
            batches = ", ".join(str(batch) for batch in without)
            yield f"no gpus=1 row of {of} at batch {batches} per GPU: no speedup and no residual"


def _contradictions(records: Sequence[Record]) -> Iterator[str]:
    """Rows whose iterations are not those of their batch: often it is the global batch."""
    for record in records:
        cell = record.cell
        expected = iterations(cell.workload.images or 0, cell.gpus, cell.batch)
        if record.iterations != expected:
            yield (
                f"line {line_of(record)}: {record.iterations} iterations, where {cell.gpus} x "
                f"{cell.batch} images take {expected} of {cell.workload.images}: is its batch per "
                "GPU, or global (batch_is=)?"
            )
