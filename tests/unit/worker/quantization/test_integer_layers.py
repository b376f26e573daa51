"""Layers in integers, compared with a slow reference in Python integers."""

import os
from itertools import product

import pytest
import torch
from torch import nn

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.quantization import Bound
from hpml_jobs.worker.quantization.integer import IntegerLayer, multiply
from hpml_jobs.worker.quantization.layers import Scheme, chain, quantize_weights

INPUT_SCALE, OUTPUT_SCALE = 0.02, 0.05


def int8_values(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def integer_layer(model, *, per_channel=False, output_scale=OUTPUT_SCALE):
    (stage,) = chain(model).stages
    weights = quantize_weights(
        stage.name, stage.layer, Scheme(Bound.RANGE, 99.9, per_channel)
    )
    scales = (torch.tensor([scale]).double() for scale in (INPUT_SCALE, output_scale))
    return IntegerLayer(stage, weights, *scales)


def slow_accumulators(values, layer):
    """Return {(image, output channel, row, column): sum} of a convolution."""
    module, weights = layer.layer, layer.weights.integers.tolist()
    (stride_y, stride_x), (pad_y, pad_x) = module.stride, module.padding
    (kernel_y, kernel_x), images = module.kernel_size, values.tolist()
    number, channels, height, width = values.shape
    heights, widths = (
        (height + 2 * pad_y - kernel_y) // stride_y + 1,
        (width + 2 * pad_x - kernel_x) // stride_x + 1,
    )

    def at(image, channel, row, column):
        inside = 0 <= row < height and 0 <= column < width
        return images[image][channel][row][column] if inside else 0

    bias = [0] * len(weights) if layer.bias is None else layer.bias.tolist()
    return {
        (image, out, row, column): bias[out]
        + sum(
            weights[out][channel][y][x]
            * at(
                image,
                channel,
                row * stride_y + y - pad_y,
                column * stride_x + x - pad_x,
            )
            for channel, y, x in product(
                range(channels), range(kernel_y), range(kernel_x)
            )
        )
        for image, out, row, column in product(
            range(number), range(len(weights)), range(heights), range(widths)
        )
    }


def slow_output(accumulator, weight_scale, output_scale=OUTPUT_SCALE):
    return min(
        127, max(-128, round(accumulator * (INPUT_SCALE * weight_scale / output_scale)))
    )


@pytest.mark.parametrize(("bias", "per_channel"), [(False, False), (True, True)])
def test_convolution_with_stride_and_padding_matches_reference(bias, per_channel):
    torch.manual_seed(1)
    module = nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2), bias=bias)
    layer = integer_layer(nn.Sequential(module), per_channel=per_channel)
    values = int8_values(2, 2, 6, 5)
    slow = slow_accumulators(values, layer)
    accumulators = layer.accumulate(values)
    assert accumulators.dtype is torch.int32
    assert accumulators.shape == module(values.float()).shape
    assert accumulators.numel() == len(slow)
    assert all(int(accumulators[place]) == total for place, total in slow.items())
    outputs = layer(values)
    assert outputs.dtype is torch.int8
    scales = layer.weights.scales.tolist() * (1 if per_channel else 3)
    assert all(
        int(outputs[place]) == slow_output(total, scales[place[1]])
        for place, total in slow.items()
    )
    description = layer.describe()
    assert (description.accumulator_least, description.accumulator_most) == (
        min(slow.values()),
        max(slow.values()),
    )
    assert description.outputs == len(slow)
    assert len(description.weight_scales) == (3 if per_channel else 1)
    assert (description.bias_least is None) is not bias


@pytest.mark.parametrize("per_channel", [False, True])
def test_relu_pool_and_flatten_after_convolution_match(per_channel):
    torch.manual_seed(2)
    tail = (
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2, padding=1),
        nn.Dropout(),
        nn.Flatten(),
    )
    module = nn.Conv2d(1, 3, 3, bias=False)
    with torch.no_grad():
        module.weight *= torch.tensor([1.0, 3.0, 0.2]).reshape(-1, 1, 1, 1)
    layer = integer_layer(nn.Sequential(module, *tail).eval(), per_channel=per_channel)
    values = int8_values(2, 1, 6, 6)
    slow = slow_accumulators(values, layer)
    scales = layer.weights.scales.tolist() * (1 if per_channel else 3)
    expected = []
    for image, out, row, column in product(range(2), range(3), range(3), range(3)):
        window = product((2 * row - 1, 2 * row), (2 * column - 1, 2 * column))
        under = [
            slow[image, out, y, x] for y, x in window if (image, out, y, x) in slow
        ]
        expected.append(slow_output(max(0, *under), scales[out]))
    outputs = layer(values)
    assert outputs.shape == (2, 27)
    assert outputs.flatten().tolist() == expected


def test_products_of_largest_integers_are_exact():
    for left, right in product((-128, 127), repeat=2):
        sums = multiply(
            torch.full((5, 1200), left, dtype=torch.int8),
            torch.full((1200, 7), right, dtype=torch.int8),
        )
        assert sums.dtype is torch.int32
        assert sums.unique().tolist() == [1200 * left * right]


def test_products_are_exact_without_int8_instructions(rank_server, tmp_path):
    script = tmp_path / "products.py"
    script.write_text(
        "import torch; from hpml_jobs.worker.quantization.integer import multiply\n"
        "torch.manual_seed(0)\n"
        "a, b = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((40, 75), (75, 30)))\n"
        "assert torch.equal(multiply(a, b), a.int() @ b.int())\n"
    )
    words = ("tests.unit.worker.observer.observed_script", str(script))
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    ended = rank_server.run(1, tmp_path, *words, environment=environment)
    assert (ended.code, ended.stderr) == (0, "")


def test_layer_accepts_only_int8():
    layer = integer_layer(nn.Sequential(nn.Linear(4, 2)))
    with pytest.raises(HpmlError, match=r"the input of 0 is torch\.float32, not int8"):
        layer(torch.ones(1, 4))
    with pytest.raises(
        HpmlError,
        match=r"the input of 0 has 3 dimensions, but Linear needs batches with 2.*Flatten",
    ):
        layer(int8_values(1, 2, 4))


def test_accumulator_or_bias_beyond_32_bits_is_refused():
    model = nn.Sequential(nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight.fill_(1e-3)
        model[0].bias.fill_(1e9)
    with pytest.raises(
        HpmlError, match=r"the integers of the bias of 0 reach .* 32 bits"
    ):
        integer_layer(model)
    with torch.no_grad():
        model[0].bias.fill_((2**31 - 100) * INPUT_SCALE * 1e-3 / 127)
    with pytest.raises(
        HpmlError, match=r"the accumulators of 0 could reach 2,1\d\d,\d\d\d,\d\d\d"
    ):
        integer_layer(model)


@pytest.mark.parametrize(
    ("model", "description"),
    [
        (nn.Sequential(nn.Conv2d(1, 1, 3), nn.Sigmoid()), r"layer 1 is Sigmoid\(\): "),
        (
            nn.Sequential(nn.Conv2d(2, 2, 3, groups=2)),
            r"layer 0 is Conv2d\(2, 2, .*groups=2",
        ),
        (nn.ModuleList([nn.Linear(2, 2)]), r"the network is ModuleList: "),
        (nn.Sequential(nn.ReLU()), "no layer with weights"),
    ],
)
def test_unsupported_layer_is_named_with_supported_ones(model, description):
    with pytest.raises(HpmlError, match=f"{description}.*quantization supports Conv2d"):
        chain(model)
