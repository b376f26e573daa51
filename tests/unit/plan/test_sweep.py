"""Combinations of the command line, grids, the user's configs and the user's defaults."""

import pytest

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.plan.sweep import expand


def sweep_of(*overrides, multirun=True, config_dir=None):
    """A sweep of the digits on Greene, unless name otherwise."""
    given = {word.split("=")[0] for word in overrides}
    common = {"cluster": "cluster=greene", "workload": "workload=digits"}
    overrides = (
        *overrides,
        *(word for key, word in common.items() if key not in given),
    )
    return expand(list(overrides), multirun=multirun, config_dir=config_dir)


def points(sweep):
    return [(settings.gpus, settings.batch) for settings in sweep.settings]


def test_sweep_is_product_with_last_key_fastest(working_folder):
    assert points(sweep_of("gpus=1,2", "batch=32,64")) == [
        (1, 32),
        (1, 64),
        (2, 32),
        (2, 64),
    ]


def test_grid_sweeps_without_multirun(working_folder):
    lab = sweep_of("grid=lab", multirun=False)
    assert len(lab.settings) == 9
    assert {settings.strategy for settings in lab.settings} == {Strategy.DDP}
    assert lab.origins["gpus"] == "grid=lab"


def test_command_line_values_replace_grid_ranges(working_folder):
    sweep = sweep_of("grid=lab", "gpus=1,2", "strategy=dp", multirun=False)
    assert len(sweep.settings) == 6
    assert {settings.strategy for settings in sweep.settings} == {Strategy.DP}
    assert sweep.origins["gpus"] == "command line"
    assert sweep.origins["batch"] == "grid=lab"


def write_config(folder, place, text):
    path = folder / "configs" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder / "configs"


def test_user_configs_are_found_and_may_extend_package_ones(working_folder):
    write_config(
        working_folder,
        "cluster/mine.yaml",
        "defaults: [slurm, _self_]\nname: mine\nsbatch: {qos: fast}\n",
    )
    folder = write_config(
        working_folder,
        "grid/two.yaml",
        "blocks:\n- {gpus: [1]}\n- {gpus: [2], batch: [8, 16]}\n",
    )
    sweep = sweep_of("cluster=mine", "grid=two", config_dir=folder)
    assert points(sweep) == [(1, 128), (2, 8), (2, 16)]
    assert sweep.settings[0].cluster.sbatch == {"qos": "fast"}
    with pytest.raises(UsageError, match=r"choose one of .*greene, local, mine, slurm"):
        sweep_of("cluster=other", config_dir=folder)


def test_workload_auto_follows_device_and_reports_it(laptop):
    here = expand(["cluster=local"], multirun=False)
    assert here.settings[0].workload.name == "digits"
    assert here.notes == ["workload=auto: digits with device=cpu"]
    there = expand(["cluster=greene"], multirun=False)
    assert there.settings[0].workload.name == "resnet18_cifar10"
    assert there.notes == ["workload=auto: resnet18_cifar10 with device=cuda"]
    asked_for = expand(["cluster=greene", "device=cpu"], multirun=False)
    assert asked_for.settings[0].workload.name == "digits"
    assert asked_for.settings[0].device is Device.CPU


# ---- personal defaults ----


def test_user_config_overrides_defaults_not_command_line(
    working_folder, user_config_file
):
    user_config_file.write_text(
        "batch: 64\ndata: {root: /scratch/me}\n"
        "clusters:\n  greene: {account: mine, container: {image: /i.sif}}\n"
        "  torch: {account: other}\n"
    )
    (settings,) = sweep_of(multirun=False).settings
    assert (settings.batch, settings.data.root) == (64, "/scratch/me")
    assert (settings.cluster.account, settings.cluster.container.image) == (
        "mine",
        "/i.sif",
    )
    (settings,) = sweep_of("cluster=torch", "batch=32", multirun=False).settings
    assert (settings.batch, settings.cluster.account) == (32, "other")
    assert settings.cluster.container.image is None


def test_user_config_recipe_does_not_override_grid(working_folder, user_config_file):
    user_config_file.write_text("recipe: goyal\n")
    compared = expand(["grid=large_batch"], multirun=False).settings
    names = {settings.recipe.name for settings in compared}
    assert names == {"plain", "scaled", "goyal"}
    (alone,) = expand(["gpus=2"], multirun=False).settings
    assert alone.recipe.name == "goyal"


def test_user_config_cluster_is_the_default(laptop, user_config_file):
    user_config_file.write_text("cluster: torch\nworkload: synthetic\n")
    (settings,) = expand([], multirun=False).settings
    assert (settings.cluster.name, settings.workload.name) == ("torch", "synthetic")
    (settings,) = sweep_of(multirun=False).settings
    assert (settings.cluster.name, settings.workload.name) == ("greene", "digits")


OWN = ("workload=custom", "workload.model=mygpt:build", "workload.data=mygpt:dataset")


@pytest.mark.parametrize("mark", ["", "+"])
def test_args_are_swept_with_their_types(working_folder, mark):
    words = [
        f"{mark}workload.args.width=8,0.5,true,wide",
        f"{mark}workload.args.tied=false",
    ]
    args = [settings.workload.args for settings in sweep_of(*OWN, *words).settings]
    assert args == [{"tied": False, "width": width} for width in (8, 0.5, True, "wide")]
    assert [type(each["width"]) for each in args] == [int, float, bool, str]
