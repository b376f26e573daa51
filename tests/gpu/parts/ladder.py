"""Growing batches by the command line, until the card's memory is full."""

import sys
from collections.abc import Iterator

from hpml_jobs.core.cell import Outcome
from hpml_jobs.study.cell_folder import CellFolder
from tests.gpu.bench import Bench
from tests.gpu.figures import Figure

FACTOR = 4


def measure(bench: Bench) -> Iterator[Figure]:
    """Run four batches; the largest is beyond the memory of any card."""
    largest = bench.sizes.ladder_batch
    batches = ",".join(str(largest // FACTOR**step) for step in (3, 2, 1, 0))
    outputs = bench.folder / "outputs"
    words = [
        *(sys.executable, "-m", "hpml_jobs", "-m", f"batch={batches}", "gpus=1"),
        *("protocol=lab", "loader=device", "workload=synthetic"),
        *(f"workload.images={largest}", "workload.parameters=null"),
        *(f"workload.model={bench.sizes.workload.model}", "study=ladder"),
        *("cluster=local", f"device={bench.device.value}", f"outputs={outputs}"),
    ]
    finished = bench.command(words, {}, 240)
    folders = [CellFolder(path) for path in (outputs / "ladder" / "cells").glob("*")]
    yield Figure(key="code", value=float(finished.code), note=finished.last_line)
    ends = {folder.read().cell.batch: folder.last_end() for folder in folders}
    outcomes = {batch: end.outcome for batch, end in sorted(ends.items()) if end}
    note = (
        ", ".join(f"{batch}: {outcome}" for batch, outcome in outcomes.items())
        or "no cell ran"
    )
    yield Figure(key="oom", value=float(Outcome.OOM in outcomes.values()), note=note)
    records = [
        folder.read_record() for folder in folders if folder.record_json.exists()
    ]
    # that of the largest batch has none
    trained = [record for record in records if record.ranks]
    most = max(trained, key=lambda record: record.cell.batch, default=None)
    peak_bytes = most.ranks[0].peak_memory_bytes if most else None
    yield Figure(
        key="largest", value=float(most.cell.batch) if most else None, note=note
    )
    reason = "" if peak_bytes else "no statistics of memory"
    yield Figure(
        key="peak_gb", value=peak_bytes / 1e9 if peak_bytes else None, note=reason
    )
