"""ddp with what only GPUs have: bf16 in channels_last with accumulation, fp16; with tests."""

from collections.abc import Iterator

from hpml_jobs.core.strategies import Device, Loader, Strategy
from hpml_jobs.core.training_path import Precision, TrainingPath
from tests.gpu.bench import Bench
from tests.gpu.catalog import cell_keys
from tests.gpu.figures import Figure, left_out
from tests.gpu.parts.cells import figures_of

ACCUMULATED = TrainingPath(precision=Precision.BF16, channels_last=True, accumulate=2)


def measure(bench: Bench) -> Iterator[Figure]:
    """Run a cell of each path, with a test after every epoch."""
    shared = {
        "strategy": Strategy.DDP,
        "workload": bench.workload_of(bench.sizes.cell_epoch_images),
        "evaluate": True,
    }
    if reason := bench.why_not(Precision.BF16):
        yield from left_out(cell_keys("bf16"), reason)
    else:
        yield from figures_of(
            "bf16", bench.run_cell("bf16", path=ACCUMULATED, **shared)
        )
    if bench.device is Device.CPU:
        yield from left_out(cell_keys("fp16"), "fp16 needs a GPU")
        return
    path = TrainingPath(precision=Precision.FP16)
    run = bench.run_cell(
        "fp16", path=path, loader=Loader.DEVICE, loader_workers=0, **shared
    )
    yield from figures_of("fp16", run)
