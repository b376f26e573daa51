"""The loop of a training epoch where torch raises an error if the host waits for the GPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import torch

from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.worker.epochs import instrumented_epoch
from tests.gpu.bench import Bench
from tests.gpu.catalog import SYNC_PATHS, sync_key
from tests.gpu.figures import Figure, left_out

ITERATIONS = 10
"""Full batches of an epoch; half a batch follows them."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Train a warm-up epoch and an instrumented one for every loader, precision and optimizer."""
    images = ITERATIONS * bench.sizes.batch + bench.sizes.batch // 2
    for loader, precision, optimizer in SYNC_PATHS:
        key = sync_key(loader, precision, optimizer)
        path = TrainingPath(
            precision=None if precision == "plain" else Precision(precision)
        )
        if path.precision and (reason := bench.why_not(path.precision)):
            yield from left_out([key], reason)
            continue
        workload = msgspec.structs.replace(
            bench.workload_of(images), optimizer=optimizer
        )
        cell = bench.cell(
            device=Device.CUDA,  # in a rehearsal too: fp16 and fused steps are those of GPUs
            workload=workload,
            loader=Loader(loader),
            loader_workers=bench.sizes.launched_workers
            if loader == Loader.WORKERS
            else 0,
            path=path,
        )
        training = bench.training(cell)
        try:
            instrumented_epoch(training, 1, span=waits_are_errors(bench))
        except RuntimeError as error:
            yield Figure(key=key, value=0.0, note=str(error).partition("\n")[0])
        else:
            yield Figure(key=key, value=1.0)


@contextmanager
def waits_are_errors(bench: Bench) -> Iterator[None]:
    """Let torch raise an error at operations that wait for the GPU; on the CPU none does."""
    if bench.device is not Device.CUDA:
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
