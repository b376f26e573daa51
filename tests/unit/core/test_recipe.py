"""Recipes that cannot be followed are refused with one line; their names in words."""

import pytest
from msgspec.structs import replace

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.recipe import PRESETS, Recipe
from hpml_jobs.core.strategies import Strategy, SyncBuffers
from hpml_jobs.results.conditions import requested_conditions

from ..builders import DIGITS

COSINE = PRESETS["cosine"]
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


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("name", ["plain", "scaled", "mine"])
def test_different_recipes_have_different_labels(name, scaled):
    labels = {Recipe(name=name, scaled=other).label for other in (True, False)}
    assert len(labels) == 2
    assert Recipe(name=name, scaled=scaled).label in labels


def test_recipe_without_effect_at_batch_is_plain():
    assert WARMUP.at(128) == Recipe()
    assert WARMUP.at(256) == WARMUP
    goyal = replace(WARMUP, decay_norm=False)
    assert goyal.at(128) == goyal


def test_cosine_of_a_version_before_1_0_is_a_condition_with_its_own_baseline():
    adamw = replace(DIGITS, optimizer="adamw")
    single = {"gpus": 1, "strategy": Strategy.SINGLE, "workload": adamw}
    cosine, plain = cell(**single, recipe=COSINE), cell(**single)
    assert cosine.is_baseline
    assert plain.is_baseline
    assert requested_conditions(cosine) != requested_conditions(plain)
    longer = cell(**single, recipe=replace(COSINE, warmup_epochs=1))
    assert requested_conditions(longer) != requested_conditions(cosine)
    slugs = [each.slug.rpartition("-")[0] for each in (cosine, plain)]
    assert slugs == [
        "single-1gpu-b32-digits-adamw-cosine",
        "single-1gpu-b32-digits-adamw",
    ]


def test_name_of_another_version_is_the_cells_by_its_hash():
    slug = cell().slug
    assert cell().has_slug(slug.replace("digits", "digits-plain"))
    assert not cell().has_slug(slug[:-6] + "0" * 6)


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
