"""Cells by training path, with their images on the device: what a card gives to whole cells."""

from collections.abc import Iterator

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.check_result import Level
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.training_path import CompileMode, Precision, TrainingPath
from tests.gpu.bench import Bench
from tests.gpu.catalog import PATHS
from tests.gpu.figures import Figure, left_out
from tests.gpu.parts.cells import checks_of

BATCH = 512


def path_of(words: str) -> TrainingPath:
    """Return the training path of a name of the catalog: a precision, nhwc, compiled."""
    precision, *others = words.split()
    return TrainingPath(
        precision=Precision(precision),
        channels_last="nhwc" in others,
        compile=CompileMode.DEFAULT if "compiled" in others else None,
    )


def measure(bench: Bench) -> Iterator[Figure]:
    """Run a warm-up epoch and a timed one of each path."""
    for words in PATHS:
        precision = Precision(words.split()[0])
        reason = bench.why_not(precision)
        if precision is Precision.TF32 and bench.device is Device.CPU:
            reason = "TF32 is a mode of GPUs"
        if reason:
            yield from left_out(
                (f"{words} {name}" for name in ("rate", "stall", "failed")), reason
            )
            continue
        run = bench.run_cell(
            words,
            workload=bench.workload_of(bench.sizes.cell_epoch_images),
            batch=BATCH,
            path=path_of(words),
            protocol=Protocol.LAB,
            epochs=2,
            loader=Loader.DEVICE,
            loader_workers=0,
        )
        if run.record is None or not run.is_ok:
            yield Figure(key=f"{words} rate", value=None, note=run.reason)
            continue
        timed = run.record.ranks[0].timed
        yield Figure(key=f"{words} rate", value=timed.samples / timed.epoch_s)
        yield Figure(key=f"{words} stall", value=100 * timed.stall_s / timed.epoch_s)
        failed = checks_of(run.record, Level.FAIL)
        yield Figure(
            key=f"{words} failed", value=float(len(failed)), note=", ".join(failed)
        )
