"""The lab's quantization steps on a trained network."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.quantization import (
    Bound,
    QuantizationStep,
    Quantized,
    QuantizedParts,
)
from hpml_jobs.core.quantize_settings import Quantize
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.loaders import test_loader
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.quantization.integer import IntegerNetwork
from hpml_jobs.worker.quantization.layers import (
    ActivationProfile,
    Chain,
    Scheme,
    Weights,
    chain,
    dequantize,
    describe_outputs,
    profile,
    quantize_weights,
    scales,
)
from hpml_jobs.worker.training import Training

Batch = tuple[Tensor, Tensor]
"""Images and targets."""

Network = Callable[[Tensor], Any]
"""Images to outputs."""

WORD = 4
"""Bytes of a parameter in fp32, of a scale, and of a bias in int32."""


def quantize_replica(training: Training) -> dict[str, Any]:
    """Quantize a copy of the replica, evaluate it on the whole test set, and return the results.

    The calibration images are training images chosen by the cell's seed, cropped and flipped as in
    training.

    Raises:
        HpmlError: as `quantize`.
    """
    cell, images, test = training.cell, training.loader.dataset, training.test_images
    settings = cell.quantize
    assert settings is not None and test is not None  # noqa: S101 -- check_quantizable has refused other data
    generator = torch.Generator().manual_seed(cell.seed)
    order = torch.randperm(datasets.length(images), generator=generator)
    indices = order[: settings.calibration].tolist()
    model = training.copy_replica().eval()
    calibration = _batches(training, Subset(images, indices))
    quantized = quantize(model, calibration, _batches(training, test), settings)
    part: dict[str, Any] = msgspec.to_builtins(quantized)
    return part


def _batches(training: Training, images: datasets.Images) -> list[Batch]:
    """Load all images into memory, because every step needs them."""
    await_idle_threads()
    loader = test_loader(images, training.cell, training.strategy.devices[0])
    return [(inputs, targets) for inputs, targets in loader]


class Variant(NamedTuple):
    """The network under one scheme: its weights by layer, and all of it in integers."""

    scheme: Scheme
    weights: dict[str, Weights]
    integers: IntegerNetwork


@torch.no_grad()
def quantize(
    model: nn.Module,
    calibration: Sequence[Batch],
    test: Sequence[Batch],
    settings: Quantize,
) -> Quantized:
    """Quantize a trained network, which must be on the CPU and in eval mode.

    Schemes that are impossible (a scale of 0, an integer that does not fit) are in `missing`.

    Raises:
        HpmlError: an unsupported layer, no images, NaN or infinity, or no possible scheme.
    """
    network = chain(model)
    for name, batches in (("calibration", calibration), ("test", test)):
        if not _count_images(batches):
            raise HpmlError(f"quantization has no {name} images")
    distributions = profile(
        network, [images for images, _ in calibration], settings.percentile
    )
    variants, impossible = _possible_variants(network, distributions, settings)
    size = WORD * sum(parameter.numel() for parameter in model.parameters())
    correct, samples = _count_correct(model, test), _count_images(test)
    steps = [
        QuantizationStep(
            what=QuantizedParts.NONE, correct=correct, samples=samples, bytes=size
        )
    ]
    for what in (QuantizedParts.WEIGHTS, QuantizedParts.ALL):
        steps += [variant_step(network, variant, test, what) for variant in variants]
    return Quantized(
        calibration=_count_images(calibration),
        bias=network.stages[-1].layer.bias is not None,
        spreads=distributions.spreads,
        steps=tuple(steps),
        missing=tuple(impossible),
    )


def _possible_variants(
    network: Chain, distributions: ActivationProfile, settings: Quantize
) -> tuple[list[Variant], list[str]]:
    """Return the network under every possible scheme, and the reasons why others are impossible.

    Raises:
        HpmlError: no scheme is possible.
    """
    variants, errors = list[Variant](), list[HpmlError]()
    for per_channel in (False, True) if settings.per_channel else (False,):
        for bound in Bound:
            scheme = Scheme(bound, settings.percentile, per_channel)
            try:
                variants.append(make_variant(network, distributions, scheme))
            except HpmlError as error:
                errors.append(error)
    if not variants:
        raise errors[0]
    return variants, list(dict.fromkeys(map(str, errors)))


def make_variant(
    network: Chain, distributions: ActivationProfile, scheme: Scheme
) -> Variant:
    """Quantize the network's weights and activations under one scheme.

    Raises:
        HpmlError: a scale would be 0, or an integer does not fit into 32 bits.
    """
    weights = {
        stage.name: quantize_weights(stage.name, stage.layer, scheme)
        for stage in network.stages
    }
    output_scales = {
        name: scales(describe_outputs(name), row, scheme.bound)
        for name, row in distributions.activations.items()
    }
    return Variant(scheme, weights, IntegerNetwork(network, weights, output_scales))


def variant_step(
    network: Chain, variant: Variant, test: Sequence[Batch], what: QuantizedParts
) -> QuantizationStep:
    """Evaluate int8 weights; with QuantizedParts.ALL also int8 activations and int32 biases.

    The stored bytes are 1 per weight, 4 per bias and per scale of weights; with all parts also per
    scale of activations.
    """
    stages, weights = network.stages, variant.weights.values()
    words = sum(layer.scales.numel() for layer in weights)
    words += sum(
        stage.layer.bias.numel() for stage in stages if stage.layer.bias is not None
    )
    if what is QuantizedParts.ALL:
        words += 1 + len(stages)
        outputs: Network = variant.integers
    else:
        dequantized = tuple(
            dequantize(stage, variant.weights[stage.name]) for stage in stages
        )
        outputs = network._replace(stages=dequantized).outputs
    return QuantizationStep(
        what=what,
        bound=variant.scheme.bound,
        per_channel=variant.scheme.per_channel,
        correct=_count_correct(outputs, test),
        samples=_count_images(test),
        bytes=sum(layer.integers.numel() for layer in weights) + WORD * words,
        layers=variant.integers.finish() if what is QuantizedParts.ALL else (),
    )


def _count_images(batches: Sequence[Batch]) -> int:
    return sum(len(targets) for _, targets in batches)


def _count_correct(network: Network, test: Sequence[Batch]) -> int:
    """Return the number of correct test images; of equal outputs the first class counts."""
    return sum(
        int((network(images).argmax(1) == targets).sum()) for images, targets in test
    )
