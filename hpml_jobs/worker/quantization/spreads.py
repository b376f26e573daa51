"""Distributions of weights, input and layer outputs on calibration images."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hpml_jobs.core.quantization import BINS, Spread, SpreadOf
from hpml_jobs.worker.quantization.layers import Chain
from hpml_jobs.worker.quantization.scales import Statistics, statistics

INPUT = "input"


class Profile(NamedTuple):
    """The spreads, weights first, and by name the statistics of the input and of layer outputs."""

    spreads: tuple[Spread, ...]
    activations: dict[str, Statistics]


@torch.no_grad()
def profile(network: Chain, images: Sequence[Tensor], percentile: float) -> Profile:
    """Run the network layer by layer on batches of calibration images.

    Raises:
        HpmlError: weights, images or outputs contain NaN or infinity.
    """
    spreads: list[Spread] = []
    for stage in network.stages:
        values = stage.layer.weight.detach().reshape(1, -1)
        weights = statistics(f"the weights of {stage.name}", values, percentile)
        spreads.append(_spread(stage.name, SpreadOf.WEIGHTS, values, weights))
    activations: dict[str, Statistics] = {}
    batches = list(images)
    steps = {INPUT: network.enter} | {stage.name: stage.forward for stage in network.stages}
    for name, forward in steps.items():
        batches = [forward(batch) for batch in batches]
        values = torch.cat([batch.reshape(-1) for batch in batches]).reshape(1, -1)
        activations[name] = statistics(describe_outputs(name), values, percentile)
        spreads.append(_spread(name, SpreadOf.ACTIVATIONS, values, activations[name]))
    return Profile(tuple(spreads), activations)


def describe_outputs(name: str) -> str:
    """Return how a message calls the values of the input or of a layer."""
    return "the calibration images" if name == INPUT else f"the outputs of {name}"


def _spread(name: str, what: SpreadOf, values: Tensor, row: Statistics) -> Spread:
    """Return the distribution of one row of values, with a histogram."""
    least, most, mean, sigma, percentile = (float(statistic) for statistic in row)
    counts, _ = np.histogram(values.numpy(), bins=BINS, range=(least, most))
    return Spread(
        layer=name,
        what=what,
        values=values.numel(),
        least=least,
        most=most,
        mean=mean,
        sigma=sigma,
        percentile=percentile,
        counts=tuple(counts.tolist()),
    )
