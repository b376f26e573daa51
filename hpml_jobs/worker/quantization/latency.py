"""How long a network takes on the CPU for a batch, on one thread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hpml_jobs.core.quantization import Latency

BATCHES = (1, 100)
"""Images at a time."""

WARMUP = 5
RUNS = (20, 500)
"""As many as `ENOUGH_S` allows, but so many at least and at most."""

ENOUGH_S = 0.3

Network = Callable[[Tensor], Any]
"""Images to outputs."""


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@torch.no_grad()
def latency(what: str, network: Network, images: Tensor) -> Latency:
    """Time the network on these images as one batch, again and again."""
    for _ in range(WARMUP):
        network(images)
    least, most = RUNS
    seconds: list[float] = []
    end = perf_counter() + ENOUGH_S
    while len(seconds) < least or (len(seconds) < most and perf_counter() < end):
        start = perf_counter()
        network(images)
        seconds.append(perf_counter() - start)
    p10_s, median_s, p90_s = (float(np.percentile(seconds, share)) for share in (10, 50, 90))
    return Latency(
        what=what,
        batch=len(images),
        runs=len(seconds),
        median_s=median_s,
        p10_s=p10_s,
        p90_s=p90_s,
    )


def batches_of(images: Tensor) -> list[Tensor]:
    """A batch of every size in `BATCHES`; images repeat where there are too few."""
    repeated = images.repeat(-(-max(BATCHES) // len(images)), *[1] * (images.ndim - 1))
    return [repeated[:size].contiguous() for size in BATCHES]
