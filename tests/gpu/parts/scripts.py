"""An unchanged script against its own clock; its exchange on two GPUs."""

import json
from collections.abc import Iterator

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.measurements import Purpose, Role
from hpml_jobs.core.script import Script
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.workload import Workload
from tests.gpu.bench import ONE_GPU, ROOT, Bench, CellRun
from tests.gpu.catalog import SCRIPTED, keys_of
from tests.gpu.figures import Figure, left_out

BATCH, ITERATIONS = 64, 40
"""Of each epoch on two GPUs."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Run scripts on one GPU against their own clock, and under DDP on two."""
    for name in SCRIPTED:
        run = _run(
            bench, Strategy(name), gpus=1, iterations=20 * bench.sizes.iterations
        )
        yield _clock(bench, f"clock_{name}", run)
    if not bench.has_two_gpus:
        keys = [key for key in keys_of("scripts") if not key.startswith("clock")]
        yield from left_out(keys, ONE_GPU)
        return
    yield from _split(_run(bench, Strategy.DDP, gpus=2))


def _clock(bench: Bench, key: str, run: CellRun) -> Figure:
    """Compare our timed epoch with the second one that the script itself has timed."""
    times = bench.folder / "times.json"
    if run.record is None or not times.exists():
        return Figure(key=key, value=None, note=run.reason)
    seconds = json.loads(times.read_text())
    times.unlink()
    return Figure(
        key=key, value=run.record.epoch_s / seconds[1], note=f"{seconds[1]:.3g} s"
    )


def _run(
    bench: Bench, strategy: Strategy, *, gpus: int, iterations: int = ITERATIONS
) -> CellRun:
    words = f"--parallel {strategy} --number {gpus * BATCH * iterations}"
    script = Script(
        path=str(ROOT / "tests" / "scripts" / "on_gpus.py"),
        args=f"{words} --batch-size {{batch}} --times {bench.folder / 'times.json'}",
    )
    return bench.run_cell(
        f"script {strategy} {gpus}",
        script=script,
        gpus=gpus,
        batch=BATCH,
        strategy=strategy if gpus > 1 else Strategy.SINGLE,
        protocol=Protocol.OUTSIDE,
        workload=Workload(name="script", model="script", data="script"),
        loader_workers=0,
        probe_s=0.0,
    )


def _split(run: CellRun) -> Iterator[Figure]:
    """Compare the bytes with the model's, and the phases with the epoch."""
    rank = run.record.ranks[0] if run.record and run.record.ranks else None
    if rank is None or rank.phases is None or rank.communication is None:
        missing = run.record.facts.missing if run.record and run.record.facts else ()
        yield Figure(key="ddp_bytes", value=None, note=run.reason + "; ".join(missing))
        return
    expected = ITERATIONS * run.record.model.gradient_bytes
    sent = rank.communication.bytes_of(Purpose.GRADIENTS)
    yield Figure(key="ddp_bytes", value=sent / expected)
    exposed_s, total_s = rank.phases.exposed_s, rank.communication.total_s
    yield Figure(key="ddp_exposed", value=exposed_s / total_s)
    instrumented = rank.epoch(Role.INSTRUMENTED)
    yield Figure(key="ddp_overhead", value=instrumented.epoch_s / rank.timed.epoch_s)
