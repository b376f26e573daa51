"""The latency of a network, and torch's own post-training quantization (PyTorch 2 export, torchao).

The default of X86InductorQuantizer: static; activations uint8 per tensor with a zero point; weights
int8 per output channel, symmetric. No failure here fails the cell: it becomes one line of text.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import version
from operator import attrgetter
from textwrap import shorten
from time import perf_counter
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hpml_jobs.core.quantization import Implementation, Latency
from hpml_jobs.errors import HpmlError

BATCHES = (1, 100)
"""Batch sizes."""

WARMUP_RUNS = 5
MIN_RUNS, MAX_RUNS = 20, 500
BUDGET_S = 0.3
"""The timed runs stop after this time, but not before `MIN_RUNS`."""

P = ParamSpec("P")
R = TypeVar("R")

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


class NoReferenceError(HpmlError):
    """torch's quantization failed; the message says why in one line."""


class Converted(NamedTuple):
    """The quantized network as a graph of torch.export, which simulates int8 in fp32."""

    how: str
    graph: Any

    @property
    def bytes(self) -> int:
        """Bytes of the graph's tensors: int8 weights, scales and zero points, biases.

        The scales of activations are constants in its code and do not count.
        """
        names = {str(node.target) for node in self.graph.graph.nodes if node.op == "get_attr"}
        tensors = [attrgetter(name)(self.graph) for name in names]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _raises_one_line(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Turn any error of the function into a NoReferenceError of one line; hide warnings."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                with warnings.catch_warnings(), torch.no_grad():
                    warnings.simplefilter("ignore")
                    return function(*args, **kwargs)
            except ModuleNotFoundError as error:
                raise NoReferenceError(
                    f"{what}: {error.name} is not installed (pip install 'hpml-jobs[worker]')"
                ) from error
            except Exception as error:
                first = (str(error).strip() or type(error).__name__).split("\n\n")[0]
                raise NoReferenceError(f"{what}: {shorten(first, 300)}") from error

        return wrapped

    return decorate


@_raises_one_line("torch's own quantization")
def convert(model: nn.Module, images: Sequence[Tensor]) -> Converted:
    """Export the model, observe batches of calibration images, and convert.

    Raises:
        NoReferenceError: torchao is not installed, or something in it failed.
    """
    from torchao.quantization.pt2e import quantize_pt2e  # noqa: PLC0415 -- three seconds
    from torchao.quantization.pt2e.quantizer import (  # noqa: PLC0415
        x86_inductor_quantizer as x86,
    )

    # A batch of 1 would become a constant of the exported graph.
    two = images[0][:1].repeat(2, *[1] * (images[0].ndim - 1))
    exported: Any = torch.export.export(
        model, (two,), dynamic_shapes=({0: torch.export.Dim("batch")},)
    ).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = quantize_pt2e.prepare_pt2e(exported, quantizer)
    for batch in images:
        prepared(batch)
    how = f"torchao {version('torchao')}, PyTorch 2 export, X86InductorQuantizer"
    return Converted(how, quantize_pt2e.convert_pt2e(prepared))


@_raises_one_line(f"the latency of {Implementation.TORCH}")
def measure_latencies(converted: Converted, batches: Sequence[Tensor]) -> list[Latency]:
    """Compile the network with inductor and frozen weights, and time it on each batch.

    It needs a C++ compiler. It uses a temporary cache, so that no earlier result is read.

    Raises:
        NoReferenceError: there is no compiler, or something in torch failed.
    """
    from torch._inductor import config  # noqa: PLC0415 -- seconds

    with _temporary_cache(), config.patch(freezing=True, compile_threads=1):
        network: Network = torch.compile(converted.graph, dynamic=False)
        return [measure_latency(Implementation.TORCH, network, batch) for batch in batches]


@contextmanager
def _temporary_cache() -> Iterator[None]:
    from torch._inductor.utils import fresh_inductor_cache  # noqa: PLC0415 -- seconds

    with tempfile.TemporaryDirectory(prefix="hpml-jobs-inductor-") as folder:
        try:
            with fresh_inductor_cache(dir=folder):
                yield
        finally:
            torch.compiler.reset()
