"""The lab's quantization steps on a trained network: weights, activations, biases."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Subset

from hpml_jobs.core.quantization import (
    Bound,
    Implementation,
    Latency,
    Quantize,
    Quantized,
    QuantizedParts,
    Reference,
    Step,
)
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.loaders import test_loader
from hpml_jobs.worker.fork_safety import await_idle_threads
from hpml_jobs.worker.quantization import reference
from hpml_jobs.worker.quantization.integer import IntegerNetwork
from hpml_jobs.worker.quantization.layers import Chain, chain
from hpml_jobs.worker.quantization.reference import (
    Network,
    batches_of,
    measure_latency,
    one_thread,
)
from hpml_jobs.worker.quantization.scales import (
    Profile,
    Scheme,
    Weights,
    dequantize,
    describe_outputs,
    profile,
    quantize_weights,
    scales,
)
from hpml_jobs.worker.training import Training

Batch = tuple[Tensor, Tensor]
"""Images and targets."""

WORD = 4
"""Bytes of a parameter in fp32, of a scale, and of a bias in int32."""


def quantize_replica(training: Training, settings: Quantize) -> Quantized:
    """Quantize a copy of the replica and evaluate it on the whole test set.

    The calibration images are training images chosen by the cell's seed, cropped and flipped as in
    training.

    Raises:
        HpmlError: as `quantize`.
    """
    cell, images, test = training.cell, training.loader.dataset, training.test_images
    assert test is not None  # noqa: S101 -- check_quantizable has refused other data
    generator = torch.Generator().manual_seed(cell.seed)
    order = torch.randperm(datasets.length(images), generator=generator)
    indices = order[: settings.calibration].tolist()
    model = training.copy_replica().eval()
    calibration = _batches(training, Subset(images, indices))
    return quantize(model, calibration, _batches(training, test), settings)


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
    model: nn.Module, calibration: Sequence[Batch], test: Sequence[Batch], settings: Quantize
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
    distributions = profile(network, [images for images, _ in calibration], settings.percentile)
    variants, impossible = _possible_variants(network, distributions, settings)
    size = WORD * sum(parameter.numel() for parameter in model.parameters())
    correct, samples = _count_correct(model, test), _count_images(test)
    steps = [Step(what=QuantizedParts.NONE, correct=correct, samples=samples, bytes=size)]
    steps += [weights_step(network, variant, test) for variant in variants]
    steps += [integers_step(network, variant, test) for variant in variants]
    with one_thread():
        torch_result, latencies, missing = compare_with_torch(
            model, variants[0].integers, calibration, test
        )
    return Quantized(
        calibration=_count_images(calibration),
        bias=network.stages[-1].layer.bias is not None,
        spreads=distributions.spreads,
        steps=tuple(steps),
        latencies=tuple(latencies),
        reference=torch_result,
        missing=(*impossible, *missing),
    )


def _possible_variants(
    network: Chain, distributions: Profile, settings: Quantize
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


def make_variant(network: Chain, distributions: Profile, scheme: Scheme) -> Variant:
    """Quantize the network's weights and activations under one scheme.

    Raises:
        HpmlError: a scale would be 0, or an integer does not fit into 32 bits.
    """
    weights = {
        stage.name: quantize_weights(stage.name, stage.layer, scheme) for stage in network.stages
    }
    output_scales = {
        name: scales(describe_outputs(name), row, scheme.bound)
        for name, row in distributions.activations.items()
    }
    return Variant(scheme, weights, IntegerNetwork(network, weights, output_scales))


def weights_step(network: Chain, variant: Variant, test: Sequence[Batch]) -> Step:
    """Evaluate int8 weights; activations and biases stay in fp32."""
    stages = tuple(dequantize(stage, variant.weights[stage.name]) for stage in network.stages)
    return Step(
        what=QuantizedParts.WEIGHTS,
        bound=variant.scheme.bound,
        per_channel=variant.scheme.per_channel,
        correct=_count_correct(network._replace(stages=stages).outputs, test),
        samples=_count_images(test),
        bytes=stored_bytes(network, variant.weights),
    )


def integers_step(network: Chain, variant: Variant, test: Sequence[Batch]) -> Step:
    """Evaluate int8 weights and activations and int32 biases.

    The stored bytes include the scales of the activations.
    """
    correct = _count_correct(variant.integers, test)
    return Step(
        what=QuantizedParts.ALL,
        bound=variant.scheme.bound,
        per_channel=variant.scheme.per_channel,
        correct=correct,
        samples=_count_images(test),
        bytes=stored_bytes(network, variant.weights) + WORD * (1 + len(network.stages)),
        layers=variant.integers.finish(),
    )


def stored_bytes(network: Chain, weights: dict[str, Weights]) -> int:
    """Return the bytes of the parameters: 1 per weight, 4 per scale of weights and per bias."""
    biases = [stage.layer.bias for stage in network.stages if stage.layer.bias is not None]
    words = sum(layer.scales.numel() for layer in weights.values())
    words += sum(bias.numel() for bias in biases)
    return sum(layer.integers.numel() for layer in weights.values()) + WORD * words


def compare_with_torch(
    model: nn.Module, ours: IntegerNetwork, calibration: Sequence[Batch], test: Sequence[Batch]
) -> tuple[Reference | None, list[Latency], list[str]]:
    """Return torch's own quantization, the latency of all networks, and reasons for what failed."""
    batches = batches_of(test[0][0])
    latencies = [measure_latency(Implementation.FP32, model, batch) for batch in batches]
    latencies += [measure_latency(Implementation.OURS, ours, batch) for batch in batches]
    try:
        converted = reference.convert(model, [images for images, _ in calibration])
        torch_result = Reference(
            how=converted.how,
            correct=_count_correct(converted.graph, test),
            samples=_count_images(test),
            bytes=converted.bytes,
        )
    except reference.NoReferenceError as error:
        return None, latencies, [str(error)]
    try:
        latencies += reference.measure_latencies(converted, batches)
    except reference.NoReferenceError as error:
        return torch_result, latencies, [str(error)]
    return torch_result, latencies, []


def _count_images(batches: Sequence[Batch]) -> int:
    return sum(len(targets) for _, targets in batches)


def _count_correct(network: Network, test: Sequence[Batch]) -> int:
    """Return the number of correct test images; of equal outputs the first class counts."""
    return sum(int((network(images).argmax(1) == targets).sum()) for images, targets in test)
