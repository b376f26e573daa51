"""A small network trained on real digits, quantized step by step, and by torch itself."""

import sys
import threading

import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

from hpml_jobs.core.quantization import Bound, Quantize, Quantized
from hpml_jobs.errors import HpmlError
from hpml_jobs.study.files import encode
from hpml_jobs.worker import models
from hpml_jobs.worker.data.images import DigitImages
from hpml_jobs.worker.quantization import reference
from hpml_jobs.worker.quantization.latency import latency, one_thread
from hpml_jobs.worker.quantization.layers import check
from hpml_jobs.worker.quantization.steps import quantize

LAYERS = ["conv1", "conv2", "fc1", "fc2", "fc3"]
CHANNELS = {"conv1": 6, "conv2": 16, "fc1": 120, "fc2": 84, "fc3": 10}
WEIGHTS = 61_770
ASKED = Quantize(calibration=300, percentile=99.9, per_channel=True)


def batches(images, number):
    found = [images[index] for index in range(number)]
    return [default_collate(found[start : start + 50]) for start in range(0, number, 50)]


@pytest.fixture(scope="module")
def trained():
    """A LeNet that has seen 1,500 digits four times; the first 300 of them; the test images."""
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
def found(trained):
    """What quantization says of it on a machine without a C++ compiler."""
    from torch._inductor import config  # noqa: PLC0415 -- seconds

    with config.patch({"cpp.cxx": (None, "no-such-compiler")}):
        return quantize(*trained, ASKED)


def test_steps_are_complete_and_in_lab_order(found):
    assert [(step.what, step.bound, step.per_channel) for step in found.steps] == [
        ("fp32", None, False),
        *(
            (what, bound, each)
            for what in ("weights", "integers")
            for each in (False, True)
            for bound in Bound
        ),
    ]
    assert found.calibration == 300
    assert found.bias
    assert all(step.samples == 297 for step in found.steps)


def test_quantized_accuracy_is_close_to_fp32(found):
    fp32, *others = found.steps
    assert fp32.accuracy > 0.85
    for step in others:  # 3-sigma cuts off what matters, as the lab is to show
        lost = 0.02 if step.bound is Bound.RANGE else 0.05 if step.what == "weights" else 0.2
        assert step.accuracy >= fp32.accuracy - lost, step
    assert found.reference is not None
    assert found.reference.accuracy >= fp32.accuracy - 0.02


def test_bytes_are_of_stored_tensors(found):
    bytes_of = {(step.what, step.per_channel): step.bytes for step in found.steps}
    channels = sum(CHANNELS.values())
    assert bytes_of == {
        ("fp32", False): 4 * (WEIGHTS + 10),
        ("weights", False): WEIGHTS + 4 * (5 + 10),
        ("weights", True): WEIGHTS + 4 * (channels + 10),
        ("integers", False): WEIGHTS + 4 * (5 + 10 + 6),
        ("integers", True): WEIGHTS + 4 * (channels + 10 + 6),
    }
    # torch's zero points are int64, though they are all 0; its bias is fp32
    assert found.reference.bytes == WEIGHTS + (4 + 8) * channels + 4 * 10


def test_layers_report_scales_accumulators_and_clipping(found):
    for step in found.steps:
        assert [layer.name for layer in step.layers] == (LAYERS if step.what == "integers" else [])
        for layer in step.layers:
            assert len(layer.weight_scales) == (CHANNELS[layer.name] if step.per_channel else 1)
            assert layer.accumulator_least < 0 < layer.accumulator_most < 2**31
            assert (layer.bias_least is None) is (layer.name != "fc3")
            assert layer.outputs % 297 == 0
            if step.bound is Bound.RANGE:
                assert layer.weights_clipped == 0
        for before, after in zip(step.layers, step.layers[1:], strict=False):
            assert before.output_scale == after.input_scale
    sigma = next(one for one in found.steps if (one.what, one.bound) == ("integers", Bound.SIGMA))
    assert sum(layer.clipped for layer in sigma.layers) > 0
    assert sum(layer.weights_clipped for layer in sigma.layers) > 0


def test_spreads_cover_all_weights_inputs_and_outputs(found):
    assert [(one.layer, one.what) for one in found.spreads] == [
        *((name, "weights") for name in LAYERS),
        *((name, "activations") for name in ["input", *LAYERS]),
    ]
    values = {(one.layer, one.what): one.values for one in found.spreads}
    assert values["conv1", "activations"] == 300 * 6 * 14 * 14
    assert values["fc1", "weights"] == 400 * 120
    assert all(sum(one.counts) == one.values for one in found.spreads)


def test_no_compiler_omits_only_torch_latency(found):
    (words,) = found.missing
    assert words.startswith("the latency of torch int8: ")
    assert "no-such-compiler" in words
    assert "\n" not in words
    assert found.reference.how.startswith("torchao ")
    assert [(one.what, one.batch) for one in found.latencies] == [
        *(("fp32", batch) for batch in (1, 100)),
        *(("ours int8", batch) for batch in (1, 100)),
    ]
    assert all(0 < one.p10_s <= one.median_s <= one.p90_s for one in found.latencies)


def test_quantized_result_round_trips_through_json(found):
    import msgspec  # noqa: PLC0415

    assert msgspec.json.decode(encode(found), type=Quantized) == found


def test_no_torchao_keeps_other_results(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchao.quantization.pt2e", None)
    model, calibration, test = trained
    left = quantize(model, calibration[:1], test[:1], Quantize(calibration=50))
    assert left.reference is None
    assert left.missing == (
        "torch's own quantization: torchao.quantization.pt2e is not installed "
        "(pip install 'hpml-jobs[worker]')",
    )
    assert len(left.steps) == 7
    assert {one.what for one in left.latencies} == {"fp32", "ours int8"}


def test_quantize_leaves_network_unchanged(trained, found):
    model, _, _ = trained
    assert all(parameter.dtype is torch.float32 for parameter in model.parameters())
    assert found.steps[0].correct == sum(
        int((model(images).argmax(1) == targets).sum()) for images, targets in trained[2]
    )


@pytest.mark.parametrize("which", ["calibration", "test"])
def test_empty_data_sets_are_refused(trained, which):
    model, calibration, test = trained
    sets = {"calibration": calibration, "test": test} | {which: []}
    with pytest.raises(HpmlError, match=f"quantization has no {which} images"):
        quantize(model, sets["calibration"], sets["test"], ASKED)


def broken(trained, change):
    model = models.lenet_bias(10).eval()
    model.load_state_dict(trained[0].state_dict())
    with torch.no_grad():
        change(model)
    return quantize(model, trained[1], trained[2], ASKED)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.fc2.weight[3, 4].fill_(float("nan")), "the weights of fc2 are not"),
        (lambda model: model.conv2.weight[0].fill_(float("inf")), "the weights of conv2 are not"),
        (lambda model: model.fc3.bias.fill_(float("nan")), "the outputs of fc3 are not all finite"),
        (lambda model: model.fc1.weight.zero_(), "the weights of fc1 are all 0: their scale"),
        (lambda model: model.fc1.weight.abs_().neg_(), "the outputs of fc1 are all 0: their scale"),
    ],
)
def test_missing_scale_error_names_the_layer(trained, change, words):
    with pytest.raises(HpmlError, match=words):
        broken(trained, change)


def test_impossible_scheme_is_reported_and_others_are_kept(trained):
    """A channel of zeros has no scale of its own; the layer has one."""
    found = broken(trained, lambda model: model.fc1.weight[7].zero_())
    assert any("of fc1, output channel 7, are all 0" in words for words in found.missing)
    assert not any(step.per_channel for step in found.steps)
    assert len(found.steps) == 7


def test_unsupported_network_is_refused_before_training():
    check(models.lenet(10))
    with pytest.raises(HpmlError, match=r"layer 2 is BatchNorm2d.*quantization understands"):
        check(models.digits_cnn(10))


def test_latency_uses_one_thread_and_enough_runs():
    threads = torch.get_num_threads()
    seen = []
    with one_thread():
        found = latency("it", lambda _: seen.append(torch.get_num_threads()), torch.zeros(3, 1))
    assert set(seen) == {1}
    assert torch.get_num_threads() == threads
    assert found.batch == 3
    assert 20 <= found.runs <= len(seen)


@pytest.mark.long
def test_torch_int8_reference_runs(trained):
    threads = threading.active_count()
    converted = reference.convert(trained[0], [images for images, _ in trained[1]])
    found = reference.latencies(converted, [trained[2][0][0][:1], trained[2][0][0]])
    assert [(one.what, one.batch) for one in found] == [("torch int8", 1), ("torch int8", 50)]
    assert threading.active_count() == threads
