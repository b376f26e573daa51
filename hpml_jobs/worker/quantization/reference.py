"""torch's own post-training quantization (PyTorch 2 export, torchao) of the same network.

X86InductorQuantizer's default: static, activations uint8 per tensor with a zero point, weights
int8 per output channel, symmetric. Nothing here is worth a run: what fails is said in one line.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import version
from operator import attrgetter
from textwrap import shorten
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor, nn

from hpml_jobs.core.quantization import Latency
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.quantization.latency import Network, latency

P = ParamSpec("P")
R = TypeVar("R")

TORCH = "torch int8"
"""The converted network as inductor compiles it: oneDNN's int8 kernels."""


class NoReferenceError(HpmlError):
    """torch could not do it, and why."""


class Converted(NamedTuple):
    """The quantized network as torch.export's graph; it computes in fp32 what int8 would give."""

    how: str
    graph: Any

    @property
    def bytes(self) -> int:
        """Of the tensors that the graph reads: int8 weights, scales and zero points, biases.

        The activations' scales are constants in its code.
        """
        names = {str(node.target) for node in self.graph.graph.nodes if node.op == "get_attr"}
        tensors = [attrgetter(name)(self.graph) for name in names]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _or_one_line(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Anything that goes wrong becomes a NoReferenceError of one line; warnings are not shown."""

    def around(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def tried(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                with warnings.catch_warnings(), torch.no_grad():
                    warnings.simplefilter("ignore")
                    return function(*args, **kwargs)
            except ModuleNotFoundError as fault:
                raise NoReferenceError(
                    f"{what}: {fault.name} is not installed (pip install 'hpml-jobs[worker]')"
                ) from fault
            except Exception as fault:
                first = (str(fault).strip() or type(fault).__name__).split("\n\n")[0]
                raise NoReferenceError(f"{what}: {shorten(first, 300)}") from fault

        return tried

    return around


@_or_one_line("torch's own quantization")
def convert(model: nn.Module, images: Sequence[Tensor]) -> Converted:
    """Export, observe the calibration images, convert.

    Raises:
        NoReferenceError: torchao is not installed, or something in it failed.
    """
    from torchao.quantization.pt2e import quantize_pt2e  # noqa: PLC0415 -- three seconds
    from torchao.quantization.pt2e.quantizer import (  # noqa: PLC0415
        x86_inductor_quantizer as x86,
    )

    two = images[0][:1].repeat(2, *[1] * (images[0].ndim - 1))  # 1 would be taken for fixed
    exported: Any = torch.export.export(
        model, (two,), dynamic_shapes=({0: torch.export.Dim("batch")},)
    ).module()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    observed = quantize_pt2e.prepare_pt2e(exported, quantizer)
    for batch in images:
        observed(batch)
    how = f"torchao {version('torchao')}, PyTorch 2 export, X86InductorQuantizer"
    return Converted(how, quantize_pt2e.convert_pt2e(observed))


@_or_one_line(f"the latency of {TORCH}")
def latencies(converted: Converted, batches: Sequence[Tensor]) -> list[Latency]:
    """The whole network compiled by inductor with frozen weights; it needs a C++ compiler.

    What it writes goes to a folder of its own, which is removed; nothing is read from a cache.

    Raises:
        NoReferenceError: no compiler, or something failed.
    """
    from torch._inductor import config  # noqa: PLC0415 -- seconds

    with _own_cache(), config.patch(freezing=True, compile_threads=1):
        network: Network = torch.compile(converted.graph, dynamic=False)
        return [latency(TORCH, network, batch) for batch in batches]


@contextmanager
def _own_cache() -> Iterator[None]:
    from torch._inductor.utils import fresh_inductor_cache  # noqa: PLC0415 -- seconds

    with tempfile.TemporaryDirectory(prefix="hpml-jobs-inductor-") as folder:
        try:
            with fresh_inductor_cache(dir=folder):
                yield
        finally:
            torch.compiler.reset()
