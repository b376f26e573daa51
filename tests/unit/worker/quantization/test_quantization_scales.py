"""Bounds, scales and integers of tensors with known values."""

import pytest
import torch

from hpml_jobs.core.quantization import BINS, Bound
from hpml_jobs.worker.quantization.layers import (
    chain,
    profile,
    scales,
    statistics,
)

KNOWN = torch.tensor([[-1.0, 0.0, 1.0, 4.0]])  # mean 1, variance 3.5


def scale_of(rows, bound, percentile=99.9):
    return scales(
        "the values", statistics("the values", rows, percentile), bound
    ).tolist()


def test_range_bound_is_largest_absolute_value():
    assert scale_of(KNOWN, Bound.RANGE) == [4 / 127]
    assert scale_of(-KNOWN, Bound.RANGE) == [4 / 127]


def test_sigma_bound_is_end_further_from_zero():
    sigma = 3.5**0.5
    assert scale_of(KNOWN, Bound.SIGMA) == pytest.approx([(1 + 3 * sigma) / 127])
    assert scale_of(-KNOWN, Bound.SIGMA) == pytest.approx([(1 + 3 * sigma) / 127])


@pytest.mark.parametrize(
    ("percentile", "bound"),
    [(100, 1000), (99.9, 999), (99.85, 999), (50, 500), (0.01, 1)],
)
def test_percentile_bound_covers_at_least_its_share(percentile, bound):
    values = torch.arange(1, 1001).float() * torch.tensor([1, -1]).repeat(500)
    assert scale_of(values.reshape(1, -1), Bound.PERCENTILE, percentile) == [
        bound / 127
    ]


def test_per_channel_scale_is_one_per_row():
    rows = torch.stack([KNOWN[0], 2 * KNOWN[0], -3 * KNOWN[0]])
    for bound in Bound:
        scale = scale_of(KNOWN, bound)[0]
        assert scale_of(rows, bound) == pytest.approx([scale, 2 * scale, 3 * scale])


def test_spreads_cover_weights_inputs_and_layer_outputs():
    model = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False), torch.nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -1.0]]))
    images = [torch.tensor([[3.0, 1.0]]), torch.tensor([[0.0, 5.0], [2.0, 1.0]])]
    measured = profile(chain(model), images, 99.9)
    spreads = {(spread.layer, spread.what): spread for spread in measured.spreads}
    assert list(spreads) == [
        ("0", "weights"),
        ("input", "activations"),
        ("0", "activations"),
    ]
    assert (spreads["0", "weights"].least, spreads["0", "weights"].most) == (-1, 1)
    assert spreads["input", "activations"].values == 6
    outputs = spreads["0", "activations"]  # 2, 0 and 1: -5 went through ReLU
    assert (outputs.least, outputs.most, outputs.mean) == (0, 2, 1)
    assert outputs.sigma == pytest.approx((2 / 3) ** 0.5)
    assert len(outputs.counts) == BINS
    assert (sum(outputs.counts), outputs.counts[0], outputs.counts[-1]) == (3, 1, 1)
    assert scales("", measured.activations["0"], Bound.RANGE).tolist() == [2 / 127]
