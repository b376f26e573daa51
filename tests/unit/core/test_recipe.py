"""Recipes that cannot be followed are refused with one line; their names in words."""

import msgspec
import pytest

from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.quantization import Quantize
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import Device, Strategy, SyncBuffers
from hpml_jobs.errors import UsageError

from ..builders import DIGITS

WARMUP = Recipe(name="warmup", scaled=True, warmup_epochs=2)


def cell(**changes):
    values = {"gpus": 4, "batch": 32, "strategy": Strategy.DDP, "workload": DIGITS, "epochs": 5}
    return Cell(**(values | changes))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"warmup_epochs": 2}, "recipe.warmup_epochs=2 with recipe.scaled=false: there is no"),
        ({"warmup_epochs": -1, "scaled": True}, "recipe.warmup_epochs=-1: must be 0 or more"),
        ({"warmup_epochs": float("nan"), "scaled": True}, "must be 0 or more"),
        ({"reference_batch": 0}, "recipe.reference_batch=0: must be 1 or more"),
        ({"reference_batch": 64}, "recipe.reference_batch=64 with recipe.scaled=false"),
        (
            {"scaled": True, "warmup_epochs": 2, "drop_epochs": (1,)},
            r"recipe.drop_epochs=\[1\] with recipe.warmup_epochs=2: the rate cannot drop while",
        ),
        ({"drop_epochs": (3, 2)}, r"recipe.drop_epochs=\[3, 2\]: epochs after which"),
        ({"drop_epochs": (0,)}, r"recipe.drop_epochs=\[0\]"),
    ],
)
def test_impossible_recipe_is_refused(values, words):
    with pytest.raises(UsageError, match=rf"^[^\n]*{words}[^\n]*$"):
        Recipe(**values)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"recipe": msgspec.structs.replace(WARMUP, warmup_epochs=6)},
            "recipe=warmup: warming up takes 6 epochs, the cell trains epochs=5; take epochs=6",
        ),
        ({"recipe": Recipe(drop_epochs=(5,))}, "the rate drops after epoch 5, .* epochs=5"),
        ({"set_epoch": False, "gpus": 1, "strategy": Strategy.SINGLE}, "one process shuffles"),
        (
            {"sync_buffers": SyncBuffers.ON, "strategy": Strategy.ALLREDUCE},
            "sync_buffers=on with strategy=allreduce: only ddp can choose, allreduce is .*=off",
        ),
        (
            {"sync_buffers": SyncBuffers.SYNCBN, "protocol": Protocol.FULL},
            "sync_buffers=syncbn with protocol=full: .* take protocol=lab",
        ),
        ({"quantize": Quantize(calibration=9)}, "quantize with strategy=ddp: .* take gpus=1"),
        (
            {"quantize": Quantize(calibration=9), "gpus": 1, "strategy": Strategy.SINGLE},
            "quantize with workload.model=digits_cnn: it understands lenet, lenet_bias, or your",
        ),
    ],
)
def test_recipe_unsuitable_for_cell_is_refused(changes, words):
    with pytest.raises(UsageError, match=rf"^[^\n]*{words}[^\n]*$"):
        cell(**({"protocol": Protocol.LAB, "device": Device.CPU} | changes))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"calibration": 0}, "quantize.calibration=0: activations are profiled on 1 training"),
        ({"calibration": 1, "percentile": 0}, "quantize.percentile=0: must be above 0"),
        ({"calibration": 1, "percentile": 100.5}, "quantize.percentile=100.5: must be above 0"),
    ],
)
def test_quantization_without_scale_is_refused(values, words):
    with pytest.raises(UsageError, match=words):
        Quantize(**values)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("name", ["plain", "scaled", "mine"])
def test_different_recipes_have_different_labels(name, scaled):
    labels = {Recipe(name=name, scaled=other).label for other in (True, False)}
    assert len(labels) == 2
    assert Recipe(name=name, scaled=scaled).label in labels


def test_recipe_without_effect_at_batch_is_plain():
    assert WARMUP.at(128) == Recipe()
    assert WARMUP.at(256) == WARMUP
    goyal = msgspec.structs.replace(WARMUP, decay_norm=False)
    assert goyal.at(128) == goyal


def test_treatment_is_in_label_and_slug():
    plain = cell()
    assert plain.treatment == ""
    treated = cell(recipe=WARMUP, set_epoch=False, sync_buffers=SyncBuffers.OFF)
    assert treated.treatment == "warmup 2, no set_epoch, buffers off"
    assert "-warmup-no_set_epoch-sync_off-" in treated.slug
    assert plain.replicas_share_buffers
    assert not treated.replicas_share_buffers
    goyal = Recipe(
        name="goyal", scaled=True, reference_batch=256, drop_epochs=(3,), decay_norm=False
    )
    assert goyal.label == "goyal from batch 256 drops 3"
    assert len({plain.digest, treated.digest, cell(evaluate=True).digest}) == 3
