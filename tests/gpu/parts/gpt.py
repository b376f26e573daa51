"""GPT-2 124M in bf16, compiled: tokens/s and MFU of a whole cell."""

from collections.abc import Iterator

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.formulas import flop_per_s, utilization
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.training_path import CompileMode, Precision, TrainingPath
from hpml_jobs.results.gpus import flop_of, peak_of
from tests.gpu.bench import Bench
from tests.gpu.catalog import keys_of
from tests.gpu.figures import Figure, left_out
from tests.gpu.parts.cells import checks_of

BATCH = 8
"""It fits into 16 GB; on an H200 an iteration takes about 15 ms, far more than its launches."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Run a warm-up epoch, in which torch compiles, and a timed one."""
    if reason := bench.why_not(Precision.BF16):
        yield from left_out(keys_of("gpt"), reason)
        return
    mode = CompileMode.DEFAULT if bench.device is Device.CUDA else None
    run = bench.run_cell(
        "gpt",
        workload=bench.sizes.transformer,
        batch=BATCH,
        path=TrainingPath(precision=Precision.BF16, compile=mode),
        protocol=Protocol.LAB,
        epochs=2,
        loader=Loader.DEVICE,
        loader_workers=0,
    )
    record = run.record
    if record is None or not record.samples or not record.units:
        yield Figure(key="tokens", value=None, note=run.reason)
        return
    yield Figure(key="tokens", value=record.units / record.epoch_s)
    failed = checks_of(record, Level.FAIL)
    yield Figure(key="failed", value=float(len(failed)), note=", ".join(failed))
    flop, peak = flop_of(record).figure, peak_of(record)
    if flop is None or peak is None:
        yield Figure(
            key="mfu", value=None, note="the card's peak is not known", is_left_out=True
        )
        return
    reached = flop_per_s(flop, record.samples, record.epoch_s)
    yield Figure(key="mfu", value=utilization(reached, peak.flop_per_s))
