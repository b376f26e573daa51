"""A small network trained on real digits, quantized step by step."""

import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.quantization import Bound
from hpml_jobs.core.quantize_settings import Quantize
from hpml_jobs.worker import models
from hpml_jobs.worker.data.images import DigitImages
from hpml_jobs.worker.quantization.steps import quantize

LAYERS = ["conv1", "conv2", "fc1", "fc2", "fc3"]
CHANNELS = {"conv1": 6, "conv2": 16, "fc1": 120, "fc2": 84, "fc3": 10}
WEIGHTS = 61_770
SETTINGS = Quantize(calibration=300, percentile=99.9, per_channel=True)


def batches(images, number):
    samples = [images[index] for index in range(number)]
    return [
        default_collate(samples[start : start + 50]) for start in range(0, number, 50)
    ]


@pytest.fixture(scope="module")
def trained():
    """A LeNet after four epochs on 1,500 digits, the first 300 of them, and the test images."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = models.lenet_bias(10)
        train = batches(DigitImages(train=True), 1500)
        optimizer = torch.optim.SGD(model.parameters(), 0.02, 0.9)
        for _ in range(4):
            for images, targets in train:
                nn.functional.cross_entropy(model(images), targets).backward()
                optimizer.step()
                optimizer.zero_grad()
    return model.eval(), train[:6], batches(DigitImages(train=False), 297)


@pytest.fixture(scope="module")
def quantized(trained):
    """The result of quantization on a machine without a C++ compiler."""

    return quantize(*trained, SETTINGS)


def test_steps_are_complete_and_in_lab_order(quantized):
    assert [(step.what, step.bound, step.per_channel) for step in quantized.steps] == [
        ("fp32", None, False),
        *(
            (what, bound, each)
            for what in ("weights", "integers")
            for each in (False, True)
            for bound in Bound
        ),
    ]
    assert quantized.calibration == 300
    assert quantized.bias
    assert all(step.samples == 297 for step in quantized.steps)


def test_quantized_accuracy_is_close_to_fp32(quantized):
    fp32, *steps = quantized.steps
    assert fp32.accuracy > 0.85
    for step in steps:  # 3 sigma clips important values, which the lab demonstrates
        tolerance = (
            0.02
            if step.bound is Bound.RANGE
            else 0.05
            if step.what == "weights"
            else 0.2
        )
        assert step.accuracy >= fp32.accuracy - tolerance, step


def test_bytes_are_of_stored_tensors(quantized):
    bytes_of = {(step.what, step.per_channel): step.bytes for step in quantized.steps}
    channels = sum(CHANNELS.values())
    assert bytes_of == {
        ("fp32", False): 4 * (WEIGHTS + 10),
        ("weights", False): WEIGHTS + 4 * (5 + 10),
        ("weights", True): WEIGHTS + 4 * (channels + 10),
        ("integers", False): WEIGHTS + 4 * (5 + 10 + 6),
        ("integers", True): WEIGHTS + 4 * (channels + 10 + 6),
    }


def test_layers_report_scales_accumulators_and_clipping(quantized):
    for step in quantized.steps:
        assert [layer.name for layer in step.layers] == (
            LAYERS if step.what == "integers" else []
        )
        for layer in step.layers:
            assert len(layer.weight_scales) == (
                CHANNELS[layer.name] if step.per_channel else 1
            )
            assert layer.accumulator_least < 0 < layer.accumulator_most < 2**31
            assert (layer.bias_least is None) is (layer.name != "fc3")
            assert layer.outputs % 297 == 0
            if step.bound is Bound.RANGE:
                assert layer.weights_clipped == 0
        for before, after in zip(step.layers, step.layers[1:], strict=False):
            assert before.output_scale == after.input_scale
    sigma = next(
        item
        for item in quantized.steps
        if (item.what, item.bound) == ("integers", Bound.SIGMA)
    )
    assert sum(layer.clipped for layer in sigma.layers) > 0
    assert sum(layer.weights_clipped for layer in sigma.layers) > 0


def test_quantize_leaves_network_unchanged(trained, quantized):
    model, _, _ = trained
    assert all(parameter.dtype is torch.float32 for parameter in model.parameters())
    assert quantized.steps[0].correct == sum(
        int((model(images).argmax(1) == targets).sum())
        for images, targets in trained[2]
    )


def quantize_changed(trained, change):
    model = models.lenet_bias(10).eval()
    model.load_state_dict(trained[0].state_dict())
    with torch.no_grad():
        change(model)
    return quantize(model, trained[1], trained[2], SETTINGS)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda model: model.fc2.weight[3, 4].fill_(float("nan")),
            "the weights of fc2 contain NaN",
        ),
        (
            lambda model: model.fc3.bias.fill_(float("nan")),
            "the outputs of fc3 contain NaN",
        ),
        (
            lambda model: model.fc1.weight.zero_(),
            "the weights of fc1 are 0 up to their bound",
        ),
    ],
)
def test_missing_scale_error_names_the_layer(trained, change, text):
    with pytest.raises(HpmlError, match=text):
        quantize_changed(trained, change)


@pytest.mark.long
def test_impossible_scheme_is_reported_and_others_are_kept(trained):
    """A channel of zeros has no scale; its layer has item."""
    result = quantize_changed(trained, lambda model: model.fc1.weight[7].zero_())
    assert any(
        "of fc1, output channel 7, are 0 up to" in reason for reason in result.missing
    )
    assert not any(step.per_channel for step in result.steps)
    assert len(result.steps) == 7
