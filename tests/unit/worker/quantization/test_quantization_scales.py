"""Bounds, scales and integers of tensors with known values."""

import pytest
import torch

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.quantization import BINS, Bound
from hpml_jobs.worker.quantization.layers import (
    Scheme,
    chain,
    count_clipped,
    nearest,
    profile,
    quantize_weights,
    scales,
    statistics,
    to_int8,
    to_int32,
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


def test_integers_are_rounded_and_clipped():
    integers = nearest(
        torch.tensor([0.24, 0.26, -0.26, 100.0, -100.0]), torch.tensor(0.5)
    )
    assert integers.tolist() == [0, 1, -1, 200, -200]
    assert count_clipped(integers) == 2
    assert to_int8("they", integers).tolist() == [0, 1, -1, 127, -128]
    assert to_int8("they", integers).dtype is torch.int8


@pytest.mark.parametrize("bad", [0.5, float("nan")])
def test_non_integer_value_is_refused(bad):
    with pytest.raises(
        HpmlError, match=r"the outputs of fc1 contain NaN or a fraction"
    ):
        to_int8("the outputs of fc1", torch.tensor([1.0, bad]))


def test_value_beyond_32_bits_is_refused():
    assert (
        to_int32("it", torch.tensor([2.0**31 - 1, -5.0], dtype=torch.float64)).dtype
        is torch.int32
    )
    for bad in (2.0**31, float("nan")):
        with pytest.raises(
            HpmlError, match=r"the bias of fc3 reach .* fit into 32 bits"
        ):
            to_int32("the bias of fc3", torch.tensor([bad]).double())


@pytest.mark.parametrize("bound", Bound)
def test_zero_scale_error_names_the_tensor(bound):
    with pytest.raises(
        HpmlError, match=r"the weights of conv1 are 0 up to their bound, so"
    ):
        scales("the weights of conv1", statistics("", torch.zeros(1, 5), 99.9), bound)
    rows = torch.stack([KNOWN[0], torch.zeros(4)])
    with pytest.raises(
        HpmlError, match=r"the weights of fc1, output channel 1, are 0 up to"
    ):
        scales("the weights of fc1", statistics("", rows, 99.9), bound)


def test_percentile_of_zero_is_refused():
    sparse = torch.tensor([[0.0] * 9 + [5.0]])
    with pytest.raises(HpmlError, match=r"0 up to their bound.*quantize\.percentile"):
        scale_of(sparse, Bound.PERCENTILE, 90)
    assert scale_of(sparse, Bound.PERCENTILE, 91) == [5 / 127]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_values_error_names_the_tensor(bad):
    with pytest.raises(HpmlError, match=r"the weights of fc2 contain NaN or infinity"):
        statistics("the weights of fc2", torch.tensor([[1.0, bad]]), 99.9)


@pytest.mark.parametrize("bound", [Bound.RANGE, Bound.PERCENTILE])
def test_per_channel_scale_is_never_worse_for_weights(bound):
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(3, 8, 5)
    with torch.no_grad():
        layer.weight *= torch.logspace(-2, 0, 8).reshape(-1, 1, 1, 1)
    errors = [
        (
            quantize_weights("conv", layer, Scheme(bound, 99.9, each)).values
            - layer.weight
        )
        .abs()
        .mean()
        for each in (False, True)
    ]
    assert errors[1] < errors[0]
    linear = torch.nn.Linear(4, 2)
    with torch.no_grad():
        linear.weight.copy_(KNOWN.repeat(2, 1))
    same = [
        quantize_weights("fc", linear, Scheme(bound, 99.9, each))
        for each in (False, True)
    ]
    assert torch.equal(same[0].integers, same[1].integers)
    assert (len(same[0].scales), len(same[1].scales)) == (1, 2)


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
