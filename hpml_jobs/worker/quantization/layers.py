"""What can be quantized: a network's layers, in the order in which it runs them, and images."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hpml_jobs.core.cell import Cell
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.data import datasets

Weighted = nn.Conv2d | nn.Linear

SUPPORTED = (
    "quantization supports Conv2d (one group, no dilation, padded with zeros), Linear, ReLU, "
    "MaxPool2d, Flatten, Identity and Dropout in an nn.Sequential"
)

TEST_BYTES = 4_000_000_000
"""Memory for the test images at most; they are kept because every step evaluates them."""

CALIBRATION_BYTES = 500_000_000
"""Memory for the calibration images at most; the outputs of every layer are kept too."""


class Stage(NamedTuple):
    """A layer with weights, and the modules between it and the next such layer."""

    name: str
    layer: Weighted
    then: tuple[nn.Module, ...]

    def forward(self, values: Tensor) -> Tensor:
        """Return the input of the next layer in fp32."""
        return apply(self.then, self.layer(values))


class Chain(NamedTuple):
    """A network as a sequence of stages; `entry` are the modules before the first layer."""

    entry: tuple[nn.Module, ...]
    stages: tuple[Stage, ...]

    def enter(self, images: Tensor) -> Tensor:
        """Return the input of the first layer in fp32."""
        return apply(self.entry, images)

    def outputs(self, images: Tensor) -> Tensor:
        """Return the outputs of the last layer in fp32."""
        values = self.enter(images)
        for stage in self.stages:
            values = stage.forward(values)
        return values


def apply(modules: Iterable[nn.Module], values: Tensor) -> Tensor:
    """Apply ReLU, pooling and flattening to values of any dtype; never in place."""
    for module in modules:
        values = values.relu() if isinstance(module, nn.ReLU) else module(values)
    return values


def chain(model: nn.Module) -> Chain:
    """Return the network's layers in order, without computing anything.

    Raises:
        HpmlError: an unsupported layer, or no layer with weights.
    """
    entry: list[nn.Module] = []
    layers: list[tuple[str, Weighted, list[nn.Module]]] = []
    for name, module in model.named_modules(remove_duplicate=False):
        if type(module) in (nn.Sequential, nn.Identity, nn.Dropout):
            continue
        if (layer := _weighted(name, module)) is not None:
            layers.append((name or type(module).__name__, layer, []))
        elif type(module) in (nn.ReLU, nn.MaxPool2d, nn.Flatten):
            (layers[-1][2] if layers else entry).append(module)
        else:
            raise _unsupported(name, module)
    if not layers:
        raise HpmlError(f"the network has no layer with weights: {SUPPORTED}")
    return Chain(
        tuple(entry), tuple(Stage(name, layer, tuple(then)) for name, layer, then in layers)
    )


def _weighted(name: str, module: nn.Module) -> Weighted | None:
    """Return the module if it has weights, else None.

    Raises:
        HpmlError: an unsupported kind of convolution.
    """
    if type(module) is nn.Linear:
        return module
    if type(module) is not nn.Conv2d:
        return None
    is_supported = (
        module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
    )
    if not is_supported or isinstance(module.padding, str):
        raise _unsupported(name, module)
    return module


def _unsupported(name: str, module: nn.Module) -> HpmlError:
    where = f"layer {name}" if name else "the network"
    description = str(module).split("\n", maxsplit=1)[0].rstrip("(")
    return HpmlError(f"{where} is {description}: {SUPPORTED}")


def check_quantizable(cell: Cell, model: nn.Module, data: datasets.Data) -> None:
    """Check the cell's model and data set, before training.

    Raises:
        HpmlError: an unsupported layer, no test set, targets that are not classes, or too many
            images for memory.
    """
    chain(model)
    name, test = cell.workload.data, data.test
    if test is None or not datasets.length(test):
        raise HpmlError(f"workload.data={name} has no test images, which quantization needs")
    image, target = datasets.first_batch(test, 1)
    if (
        not isinstance(image, Tensor)
        or not isinstance(target, Tensor)
        or target.dtype != torch.int64
    ):
        raise HpmlError(
            f"workload.data={name} has targets that are not class numbers, which quantization needs"
        )
    image_bytes = image.numel() * image.element_size()
    calibration = cell.quantize.calibration if cell.quantize else 0
    for part, number, limit_bytes, remedy in (
        ("test", datasets.length(test), TEST_BYTES, "set data.limit="),
        ("calibration", calibration, CALIBRATION_BYTES, "reduce quantize.calibration="),
    ):
        if number * image_bytes > limit_bytes:
            raise HpmlError(
                f"{number} {part} images of {image_bytes:,} bytes need "
                f"{number * image_bytes / 1e9:.3g} GB of memory "
                f"(limit {limit_bytes / 1e9:.3g} GB): "
                f"{remedy}"
            )
