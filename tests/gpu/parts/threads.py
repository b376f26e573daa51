"""Convolutions in new threads, with cuDNN's search for the fastest algorithm and without it."""

import threading
from collections.abc import Iterator
from statistics import median

import torch

from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.worker import models
from tests.gpu.bench import Bench
from tests.gpu.figures import Figure


def measure(bench: Bench) -> Iterator[Figure]:
    """Measure forward passes in this thread and in new ones; then look at a training of dp."""
    before = torch.backends.cudnn.benchmark
    try:
        for word, search in (("on", True), ("off", False)):
            torch.backends.cudnn.benchmark = search
            yield from _forwards(bench, word)
        yield _search_of_dp(bench)
    finally:
        torch.backends.cudnn.benchmark = before


def _forwards(bench: Bench, word: str) -> Iterator[Figure]:
    images, _ = bench.resident_batches(1)[0]
    model = models.build(bench.sizes.workload).to(bench.torch_device)
    times_ms: list[float] = []

    def forward() -> None:
        times_ms.append(1e3 * bench.seconds(lambda: model(images)))

    for _ in range(3):
        forward()
    yield Figure(key=f"same_{word}_ms", value=median(times_ms[1:]))
    times_ms.clear()
    for _ in range(bench.sizes.repeats):
        thread = threading.Thread(target=forward)
        thread.start()
        thread.join()
    note = f"{min(times_ms):.3g} to {max(times_ms):.3g}"
    yield Figure(key=f"new_{word}_ms", value=median(times_ms), note=note)


def _search_of_dp(bench: Bench) -> Figure:
    """Return whether a training of dp leaves cuDNN's search on."""
    if bench.device is not Device.CUDA:
        return Figure(key="dp_searches", value=None, note="dp needs a GPU")
    torch.backends.cudnn.benchmark = True
    images = 2 * bench.sizes.batch
    bench.training(bench.cell(strategy=Strategy.DP, workload=bench.workload_of(images)))
    return Figure(key="dp_searches", value=float(torch.backends.cudnn.benchmark))
