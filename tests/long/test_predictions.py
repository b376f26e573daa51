"""A batch that was not measured on 2 processes, predicted and then measured."""

import json
from math import log

import pytest

pytestmark = pytest.mark.long

DIGITS = ("cluster=local", "device=cpu", "workload=digits", "loader_workers=0", "data.limit=2048")


def test_prediction_of_a_batch_holds_when_it_is_measured(program):
    """The band is of the errors on two left-out cells; every process has a CPU of its own."""
    cells = ("-m", *DIGITS, "study=look", "probe_s=2")
    program.ok(*cells, "gpus=1", "batch=32,64,128", timeout_s=3_000)
    program.ok(*cells, "gpus=2", "batch=32,128", timeout_s=3_000)
    (group,) = json.loads(program.ok("predict", "look", "gpus=2", "batch=64", "--json"))["groups"]
    (prediction,) = group["predictions"]
    points = prediction["error"]["points"]
    assert {(point["gpus"], point["batch"]) for point in points} == {(2, 32), (2, 128)}

    program.ok(*cells, "gpus=2", "batch=64", timeout_s=3_000)
    (after,) = json.loads(program.ok("predict", "look", "gpus=2", "batch=96", "--json"))["groups"]
    times_s = {(place["gpus"], place["batch"]): place["step_s"] for place in after["measured"]}
    assert (2, 64) in times_s, f"the machine is disturbed: {after['notes']}"
    error = log(times_s[2, 64] / prediction["model_s"])
    print(f"error {error:+.3f}, band {prediction['low_s']:.4f} to {prediction['high_s']:.4f} s")
    width = log(prediction["high_s"] / prediction["step_s"])
    assert abs(error) < 2 * width
