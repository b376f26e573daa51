"""Latency of a network per batch, on one CPU thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpml_jobs.core.quantization import Implementation, Latency

BATCHES = (1, 100)
"""Batch sizes."""

WARMUP_RUNS = 5
MIN_RUNS, MAX_RUNS = 20, 500
BUDGET_S = 0.3
"""The timed runs stop after this time, but not before `MIN_RUNS`."""

Network = Callable[[Tensor], Any]
"""Images to outputs."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread inside the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def measure_latency(what: Implementation, network: Network, images: Tensor) -> Latency:
    """Time the network repeatedly on these images as one batch."""
    for _ in range(WARMUP_RUNS):
        network(images)
    seconds: list[float] = []
    end = perf_counter() + BUDGET_S
    while len(seconds) < MIN_RUNS or (len(seconds) < MAX_RUNS and perf_counter() < end):
        start = perf_counter()
        network(images)
        seconds.append(perf_counter() - start)
    p10_s, median_s, p90_s = (float(np.percentile(seconds, percent)) for percent in (10, 50, 90))
    return Latency(
        what=what,
        batch=len(images),
        runs=len(seconds),
        median_s=median_s,
        p10_s=p10_s,
        p90_s=p90_s,
    )


def batches_of(images: Tensor) -> list[Tensor]:
    """Return a batch of each size in `BATCHES`; images repeat if there are too few."""
    repeated = images.repeat(-(-max(BATCHES) // len(images)), *[1] * (images.ndim - 1))
    return [repeated[:size].contiguous() for size in BATCHES]
