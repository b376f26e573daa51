"""The layers that quantization understands, in the order in which a network runs them."""

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn

from hpml_jobs.errors import HpmlError

Weighted = nn.Conv2d | nn.Linear

SUPPORTED = (
    "quantization understands Conv2d (one group, no dilation, padded with zeros), Linear, ReLU, "
    "MaxPool2d, Flatten, Identity and Dropout in an nn.Sequential"
)


class Stage(NamedTuple):
    """A layer with weights, and what its outputs go through before the next layer gets them."""

    name: str
    layer: Weighted
    then: tuple[nn.Module, ...]

    def hand_on(self, values: Tensor) -> Tensor:
        """In fp32: what the next layer gets."""
        return through(self.then, self.layer(values))


class Chain(NamedTuple):
    """A network as quantization sees it; `entry` is what images go through before any layer."""

    entry: tuple[nn.Module, ...]
    stages: tuple[Stage, ...]

    def enter(self, images: Tensor) -> Tensor:
        """What the first layer gets."""
        return through(self.entry, images)

    def outputs(self, images: Tensor) -> Tensor:
        """Those of the last layer, in fp32."""
        values = self.enter(images)
        for stage in self.stages:
            values = stage.hand_on(values)
        return values


def through(modules: Iterable[nn.Module], values: Tensor) -> Tensor:
    """What ReLU, pooling and flattening make of values of any dtype; never in place."""
    for module in modules:
        values = values.relu() if isinstance(module, nn.ReLU) else module(values)
    return values


def chain(model: nn.Module) -> Chain:
    """The network's layers in order; cheap, nothing is computed.

    Raises:
        HpmlError: a layer that quantization does not understand, or none that has weights.
    """
    entry: list[nn.Module] = []
    found: list[tuple[str, Weighted, list[nn.Module]]] = []
    for name, module in model.named_modules(remove_duplicate=False):
        if type(module) in (nn.Sequential, nn.Identity, nn.Dropout):
            continue
        if (layer := _weighted(name, module)) is not None:
            found.append((name or type(module).__name__, layer, []))
        elif type(module) in (nn.ReLU, nn.MaxPool2d, nn.Flatten):
            (found[-1][2] if found else entry).append(module)
        else:
            raise _unsupported(name, module)
    if not found:
        raise HpmlError(f"the network has no layer with weights: {SUPPORTED}")
    return Chain(
        tuple(entry), tuple(Stage(name, layer, tuple(then)) for name, layer, then in found)
    )


def check(model: nn.Module) -> None:
    """Say at once, before anything is trained, that a network cannot be quantized.

    Raises:
        HpmlError: the same as `chain`.
    """
    chain(model)


def _weighted(name: str, module: nn.Module) -> Weighted | None:
    """The module, where it has weights; refused where it is a convolution that ours are not."""
    if type(module) is nn.Linear:
        return module
    if type(module) is not nn.Conv2d:
        return None
    plain = module.groups == 1 and module.dilation == (1, 1) and module.padding_mode == "zeros"
    if not plain or isinstance(module.padding, str):
        raise _unsupported(name, module)
    return module


def _unsupported(name: str, module: nn.Module) -> HpmlError:
    where = f"layer {name}" if name else "the network"
    words = str(module).split("\n", maxsplit=1)[0].rstrip("(")
    return HpmlError(f"{where} is {words}: {SUPPORTED}")
