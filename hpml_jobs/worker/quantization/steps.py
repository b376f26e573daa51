"""The steps of the lab, one after another: a trained network in, what quantization left out."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hpml_jobs.core.quantization import Bound, Latency, Quantize, Quantized, Reference, Step
from hpml_jobs.errors import HpmlError
from hpml_jobs.worker.quantization import reference
from hpml_jobs.worker.quantization.integer import IntegerNetwork
from hpml_jobs.worker.quantization.latency import Network, batches_of, latency, one_thread
from hpml_jobs.worker.quantization.layers import Chain, chain
from hpml_jobs.worker.quantization.scales import scales
from hpml_jobs.worker.quantization.spreads import Profile, profile, whose_outputs
from hpml_jobs.worker.quantization.weights import Scheme, Weights, dequantized, quantize_weights

Batch = tuple[Tensor, Tensor]

WORD = 4
"""Bytes of a parameter in fp32, of a scale, and of a bias in int32."""


class Variant(NamedTuple):
    """The network under one scheme: its weights by layer, and all of it in integers."""

    scheme: Scheme
    weights: dict[str, Weights]
    integers: IntegerNetwork


@torch.no_grad()
def quantize(
    model: nn.Module, calibration: Sequence[Batch], test: Sequence[Batch], asked: Quantize
) -> Quantized:
    """Quantize a trained network that is on the CPU in eval mode; batches are (images, targets).

    Raises:
        HpmlError: an unsupported layer, no images, values that are not finite, or no scheme that
            is possible: a scale of 0, an integer that does not fit. Where some are, the others are
            in `missing`.
    """
    network = chain(model)
    for words, batches in (("calibration", calibration), ("test", test)):
        if not _images(batches):
            raise HpmlError(f"quantization has no {words} images")
    seen = profile(network, [images for images, _ in calibration], asked.percentile)
    variants, impossible = _possible(network, seen, asked)
    size = WORD * sum(parameter.numel() for parameter in model.parameters())
    right, samples = _correct(model, test), _images(test)
    steps = [Step(what="fp32", correct=right, samples=samples, bytes=size)]
    steps += [weights_step(network, one, test) for one in variants]
    steps += [integers_step(network, one, test) for one in variants]
    with one_thread():
        found, times, missing = beside_torch(model, variants[0].integers, calibration, test)
    return Quantized(
        calibration=_images(calibration),
        bias=network.stages[-1].layer.bias is not None,
        spreads=seen.spreads,
        steps=tuple(steps),
        latencies=tuple(times),
        reference=found,
        missing=(*impossible, *missing),
    )


def _possible(network: Chain, seen: Profile, asked: Quantize) -> tuple[list[Variant], list[str]]:
    """The network under every scheme, and why it cannot be under some."""
    variants, impossible = list[Variant](), list[HpmlError]()
    for per_channel in (False, True) if asked.per_channel else (False,):
        for bound in Bound:
            scheme = Scheme(bound, asked.percentile, per_channel)
            try:
                variants.append(variant(network, seen, scheme))
            except HpmlError as fault:
                impossible.append(fault)
    if not variants:
        raise impossible[0]
    return variants, list(dict.fromkeys(map(str, impossible)))


def variant(network: Chain, seen: Profile, scheme: Scheme) -> Variant:
    """The network's weights and all of it in integers, as the scheme says."""
    weights = {
        stage.name: quantize_weights(stage.name, stage.layer, scheme) for stage in network.stages
    }
    activations = {
        name: scales(whose_outputs(name), found, scheme.bound)
        for name, found in seen.activations.items()
    }
    return Variant(scheme, weights, IntegerNetwork(network, weights, activations))


def weights_step(network: Chain, one: Variant, test: Sequence[Batch]) -> Step:
    """int8 weights; everything else in fp32, biases too."""
    stages = tuple(dequantized(stage, one.weights[stage.name]) for stage in network.stages)
    return Step(
        what="weights",
        bound=one.scheme.bound,
        per_channel=one.scheme.per_channel,
        correct=_correct(network._replace(stages=stages).outputs, test),
        samples=_images(test),
        bytes=stored_bytes(network, one.weights),
    )


def integers_step(network: Chain, one: Variant, test: Sequence[Batch]) -> Step:
    """int8 weights and activations, int32 biases; the scales of activations are stored too."""
    correct = _correct(one.integers, test)
    return Step(
        what="integers",
        bound=one.scheme.bound,
        per_channel=one.scheme.per_channel,
        correct=correct,
        samples=_images(test),
        bytes=stored_bytes(network, one.weights) + WORD * (1 + len(network.stages)),
        layers=one.integers.told(),
    )


def stored_bytes(network: Chain, weights: dict[str, Weights]) -> int:
    """1 for every weight, 4 for every scale of weights and every value of a bias."""
    biases = [stage.layer.bias for stage in network.stages if stage.layer.bias is not None]
    words = sum(one.scales.numel() for one in weights.values())
    words += sum(bias.numel() for bias in biases)
    return sum(one.integers.numel() for one in weights.values()) + WORD * words


def beside_torch(
    model: nn.Module, ours: IntegerNetwork, calibration: Sequence[Batch], test: Sequence[Batch]
) -> tuple[Reference | None, list[Latency], list[str]]:
    """torch's own quantization, how long everything takes, and what could not be found out."""
    batches = batches_of(test[0][0])
    times = [latency("fp32", model, batch) for batch in batches]
    times += [latency("ours int8", ours, batch) for batch in batches]
    try:
        converted = reference.convert(model, [images for images, _ in calibration])
        found = Reference(
            how=converted.how,
            correct=_correct(converted.graph, test),
            samples=_images(test),
            bytes=converted.bytes,
        )
    except reference.NoReferenceError as fault:
        return None, times, [str(fault)]
    try:
        times += reference.latencies(converted, batches)
    except reference.NoReferenceError as fault:
        return found, times, [str(fault)]
    return found, times, []


def _images(batches: Sequence[Batch]) -> int:
    return sum(len(targets) for _, targets in batches)


def _correct(network: Network, test: Sequence[Batch]) -> int:
    """How many of the test images are right; of equal outputs the first class counts."""
    return sum(int((network(images).argmax(1) == targets).sum()) for images, targets in test)
