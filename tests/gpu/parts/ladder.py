"""A ladder of batches by the command line, until the card's memory is full."""

from collections.abc import Iterator

from hpml_jobs.core.cell import Outcome
from tests.gpu.bench import Bench
from tests.gpu.figures import Figure
from tests.gpu.parts.front_door import run_study

FACTOR = 4


def measure(bench: Bench) -> Iterator[Figure]:
    """Run a ladder of at most four batches; the largest is beyond the memory of any card."""
    largest = bench.sizes.ladder_batch
    words = ["grid=ladder", "gpus=1", f"ladder.start={largest // FACTOR**3}"]
    words += [f"ladder.factor={FACTOR}", "protocol=lab", "loader=device"]
    finished, folders = run_study(bench, "ladder", words, images=largest, limit_s=240)
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
