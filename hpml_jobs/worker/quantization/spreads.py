"""How weights, input and every layer's outputs are spread: what scales are made from."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hpml_jobs.core.quantization import BINS, Spread
from hpml_jobs.worker.quantization.layers import Chain
from hpml_jobs.worker.quantization.scales import Statistics, statistics

INPUT = "input"


class Profile(NamedTuple):
    """The spreads, weights first; statistics of the input and of every layer's outputs by name."""

    spreads: tuple[Spread, ...]
    activations: dict[str, Statistics]


@torch.no_grad()
def profile(network: Chain, images: Sequence[Tensor], percentile: float) -> Profile:
    """Run the network layer by layer on calibration images, and look at everything.

    Raises:
        HpmlError: weights, images or outputs are NaN or infinite.
    """
    spreads: list[Spread] = []
    for stage in network.stages:
        values = stage.layer.weight.detach().reshape(1, -1)
        found = statistics(f"the weights of {stage.name}", values, percentile)
        spreads.append(_spread(stage.name, "weights", values, found))
    activations: dict[str, Statistics] = {}
    handed = list(images)
    hands = {INPUT: network.enter} | {stage.name: stage.hand_on for stage in network.stages}
    for name, hand_on in hands.items():
        handed = [hand_on(batch) for batch in handed]
        values = torch.cat([batch.reshape(-1) for batch in handed]).reshape(1, -1)
        activations[name] = statistics(whose_outputs(name), values, percentile)
        spreads.append(_spread(name, "activations", values, activations[name]))
    return Profile(tuple(spreads), activations)


def whose_outputs(name: str) -> str:
    """How a message calls the input's or a layer's values."""
    return "the calibration images" if name == INPUT else f"the outputs of {name}"


def _spread(name: str, what: str, values: Tensor, found: Statistics) -> Spread:
    least, most, mean, sigma, percentile = (float(one) for one in found)
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
