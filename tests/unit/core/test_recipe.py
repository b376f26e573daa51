"""Recipes that cannot be followed are refused with one line; their names in words."""

import msgspec
import pytest

from hpml_jobs.core.cell import Cell, Protocol
from hpml_jobs.core.conditions import requested_conditions
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.recipe import COSINE, Recipe, cosine_factor
from hpml_jobs.core.strategies import Device, Strategy, SyncBuffers

from ..builders import DIGITS

WARMUP = Recipe(name="warmup", scaled=True, warmup_epochs=2)


def cell(**changes):
    values = {
        "gpus": 4,
        "batch": 32,
        "strategy": Strategy.DDP,
        "workload": DIGITS,
        "epochs": 5,
    }
    return Cell(**(values | changes))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"warmup_epochs": 2},
            "recipe.warmup_epochs=2 with recipe.scaled=false: there is no",
        ),
        (
            {"warmup_epochs": -1, "scaled": True},
            "recipe.warmup_epochs=-1: use 0 or more",
        ),
        ({"warmup_epochs": float("nan"), "scaled": True}, "use 0 or more"),
        ({"reference_batch": 0}, "recipe.reference_batch=0: use 1 or more"),
        ({"reference_batch": 64}, "recipe.reference_batch=64 with recipe.scaled=false"),
        (
            {"scaled": True, "warmup_epochs": 2, "drop_epochs": (1,)},
            r"recipe.drop_epochs=\[1\] with recipe.warmup_epochs=2: the rate cannot drop while",
        ),
        ({"drop_epochs": (3, 2)}, r"recipe.drop_epochs=\[3, 2\]: epochs after which"),
        ({"drop_epochs": (0,)}, r"recipe.drop_epochs=\[0\]"),
        (
            {"final_share": 1.5},
            "recipe.final_share=1.5: the share of the peak rate .* 0 to 1",
        ),
        ({"final_share": float("nan")}, "recipe.final_share=nan"),
        (
            {"final_share": 0.1, "drop_epochs": (1,)},
            r"recipe.drop_epochs=\[1\] with recipe.final_share=0.1: the cosine already lowers",
        ),
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
        (
            {"recipe": Recipe(name="cosine", warmup_epochs=5, final_share=0.1)},
            "recipe=cosine: warming up takes 5 of epochs=5, nothing is left for the cosine",
        ),
        (
            {"recipe": Recipe(drop_epochs=(5,))},
            "the rate drops after epoch 5, .* epochs=5",
        ),
        (
            {"set_epoch": False, "gpus": 1, "strategy": Strategy.SINGLE},
            "one process shuffles",
        ),
        (
            {"sync_buffers": SyncBuffers.ON, "strategy": Strategy.ALLREDUCE},
            "sync_buffers=on with strategy=allreduce: only ddp can choose, allreduce is .*=off",
        ),
        (
            {"sync_buffers": SyncBuffers.SYNCBN, "protocol": Protocol.FULL},
            "sync_buffers=syncbn with protocol=full: .* take protocol=lab",
        ),
    ],
)
def test_recipe_unsuitable_for_cell_is_refused(changes, words):
    with pytest.raises(UsageError, match=rf"^[^\n]*{words}[^\n]*$"):
        cell(**({"protocol": Protocol.LAB, "device": Device.CPU} | changes))


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


def test_cosine_has_hand_made_rates():
    """W = 3 of 11 iterations: quarters up to 1, then 0.1 + 0.9 (1 + cos(pi (i - 3) / 8)) / 2."""
    factors = [cosine_factor(iteration, 3, 11, 0.1) for iteration in range(12)]
    assert factors[:4] == [0.25, 0.5, 0.75, 1.0]
    assert factors[7] == pytest.approx(0.55)
    assert factors[5] == pytest.approx(0.1 + 0.45 * (1 + 0.5**0.5))
    assert factors[11] == pytest.approx(0.1)
    assert factors[3:] == sorted(factors[3:], reverse=True)


def test_cosine_that_is_not_scaled_at_a_batch_is_the_same():
    scaled = msgspec.structs.replace(COSINE, scaled=True)
    assert scaled.at(128) == COSINE
    assert scaled.at(512) == scaled
    assert (COSINE.label, scaled.label) == ("cosine", "cosine scaled")
    other = Recipe(name="cosine", warmup_epochs=0.5, final_share=0.2)
    assert other.label == "cosine warm-up 0.5 to 0.2"


def test_usual_recipe_of_an_optimizer_is_no_treatment():
    """Cells of AdamW with a cosine have a baseline; with another recipe they are a row of it."""
    adamw = msgspec.structs.replace(DIGITS, optimizer="adamw")
    usual, plain = cell(workload=adamw, recipe=COSINE), cell(workload=adamw)
    assert (usual.treatment, plain.treatment) == ("", "plain")
    single = {"gpus": 1, "strategy": Strategy.SINGLE, "workload": adamw}
    assert cell(**single, recipe=COSINE).is_baseline
    assert not cell(**single).is_baseline
    assert requested_conditions(usual) == requested_conditions(plain)
    short = cell(
        workload=adamw, recipe=msgspec.structs.replace(COSINE, warmup_epochs=1)
    )
    assert short.treatment == ""
    assert requested_conditions(short) != requested_conditions(usual)
    assert cell(recipe=COSINE).treatment == "cosine"
    slugs = [
        each.slug.rpartition("-")[0] for each in (usual, plain, cell(recipe=COSINE))
    ]
    assert slugs == [
        "ddp-4gpu-b32-digits-adamw-cosine",
        "ddp-4gpu-b32-digits-adamw-plain",
        "ddp-4gpu-b32-digits-cosine",
    ]


@pytest.mark.parametrize(
    ("keys", "changes", "words"),
    [
        (
            {"schedule": "m:decay"},
            {"recipe": COSINE},
            "recipe=cosine with workload.schedule=m:dec",
        ),
        (
            {"optimizer": "m:lion"},
            {"strategy": Strategy.ZERO1},
            "strategy=zero1 with workload.optimizer=m:lion: .*; use strategy=fsdp or ddp",
        ),
        (
            {"optimizer": "m:lion"},
            {"recipe": Recipe(name="goyal", scaled=True, decay_norm=False)},
            "recipe=goyal with workload.optimizer=m:lion: your own optimizer decides what decays",
        ),
    ],
)
def test_recipe_or_strategy_that_own_code_replaces_is_refused(keys, changes, words):
    workload = msgspec.structs.replace(DIGITS, **keys)
    with pytest.raises(UsageError, match=rf"^[^\n]*{words}[^\n]*$"):
        cell(workload=workload, **changes)


def test_treatment_is_in_label_and_slug():
    plain = cell()
    assert plain.treatment == ""
    treated = cell(recipe=WARMUP, set_epoch=False, sync_buffers=SyncBuffers.OFF)
    assert treated.treatment == "warmup 2, no set_epoch, buffers off"
    assert "-warmup-no_set_epoch-sync_off-" in treated.slug
    assert plain.replicas_share_buffers
    assert not treated.replicas_share_buffers
    goyal = Recipe(
        name="goyal",
        scaled=True,
        reference_batch=256,
        drop_epochs=(3,),
        decay_norm=False,
    )
    assert goyal.label == "goyal from batch 256 drops 3"
    assert len({plain.digest, treated.digest, cell(evaluate=True).digest}) == 3
