"""CUDA graphs (compile=reduce-overhead) at a small batch, under the whole protocol."""

from collections.abc import Iterator

from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.training_path import CompileMode, Precision, TrainingPath
from tests.gpu.bench import Bench
from tests.gpu.catalog import keys_of
from tests.gpu.figures import Figure, left_out
from tests.gpu.parts.cells import figures_of

BATCH = 32
"""Small: launches from Python would decide how long an iteration takes."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Run a cell whose iterations are replayed as graphs, and the same without."""
    if reason := bench.why_not(Precision.BF16):
        yield from left_out(keys_of("graphs"), reason)
        return
    mode = CompileMode.REDUCE_OVERHEAD if bench.device is Device.CUDA else None
    for key, compiled in (("eager", None), ("graphs", mode)):
        run = bench.run_cell(
            key,
            workload=bench.workload_of(bench.sizes.cell_epoch_images // 2),
            batch=BATCH,
            path=TrainingPath(
                precision=Precision.BF16, channels_last=True, compile=compiled
            ),
            loader=Loader.DEVICE,
            loader_workers=0,
        )
        yield from figures_of(key, run)
