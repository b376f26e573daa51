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


@pytest.mark.parametrize("word", ["gpus=1,2,4", "gpus=choice(1,2,4)"])
def test_sweep_syntaxes_keep_value_types(working_folder, word):
    assert [settings.gpus for settings in sweep_of(word).settings] == [1, 2, 4]


@pytest.mark.parametrize("multirun", [False, True])
@pytest.mark.parametrize("word", ["hosts=a,b", "hosts=[a,b]", "cluster.hosts=[a,b]"])
def test_hosts_are_one_list_and_mean_ssh(working_folder, word, multirun):
    settings = expand([word, "workload=digits"], multirun=multirun).settings
    assert [list(part.cluster.hosts) for part in settings] == [["a", "b"]]
    assert settings[0].cluster.name == "ssh"


def test_range_is_a_sweep(working_folder):
    assert [settings.seed for settings in sweep_of("seed=range(0,3)").settings] == [
        0,
        1,
        2,
    ]


def test_without_multirun_one_cell_is_planned(working_folder):
    assert points(sweep_of("gpus=2", "batch=64", multirun=False)) == [(2, 64)]


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


def test_grid_may_set_nested_keys(working_folder):
    sweep = sweep_of("grid=smoke", multirun=False)
    assert [settings.data.limit for settings in sweep.settings] == [2048, 2048]


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


def test_key_that_went_is_refused_in_a_profile_of_the_user(working_folder):
    text = "defaults: [slurm, _self_]\nname: old\nqos: fast\n"
    folder = write_config(working_folder, "cluster/old.yaml", text)
    with pytest.raises(UsageError, match=r"cluster.qos went: \+cluster.sbatch.qos="):
        sweep_of("cluster=old", config_dir=folder)


def test_key_that_went_is_refused_in_the_users_file(working_folder, user_config_file):
    user_config_file.write_text("clusters: {greene: {qos: fast}}\n")
    with pytest.raises(UsageError, match=r"config.yaml: cluster.qos went: "):
        sweep_of("gpus=2", "cluster=greene")


def test_key_beside_the_blocks_of_a_grid_is_one_of_every_block(working_folder):
    folder = write_config(
        working_folder,
        "grid/two.yaml",
        "study: both\nbatch: 8\nblocks:\n- {gpus: [1]}\n- {gpus: [2], batch: 16}\n",
    )
    sweep = sweep_of("cluster=greene", "grid=two", config_dir=folder)
    assert points(sweep) == [(1, 8), (2, 16)]
    assert {settings.study for settings in sweep.settings} == {"both"}
    typed = sweep_of("cluster=greene", "grid=two", "study=mine", config_dir=folder)
    assert typed.settings[0].study == "mine"


def test_the_assignment_has_a_study_of_its_own(laptop):
    assert expand(["grid=hw5"], multirun=False).settings[0].study == "hw5"


def test_blocks_have_the_names_of_their_combinations(working_folder):
    folder = write_config(
        working_folder,
        "grid/two.yaml",
        "blocks:\n- {name: Q1, gpus: [1]}\n- {gpus: [2], batch: [8, 16]}\n",
    )
    sweep = sweep_of("cluster=greene", "grid=two", config_dir=folder)
    assert sweep.blocks == ["Q1", "", ""]


def test_plus_adds_sbatch_option_and_tilde_removes_key(working_folder):
    sweep = sweep_of(
        "+cluster.sbatch.reservation=class", "~cluster.mem_gb_per_gpu", multirun=False
    )
    assert sweep.settings[0].cluster.sbatch == {"reservation": "class"}
    assert sweep.settings[0].cluster.mem_gb_per_gpu is None


@pytest.mark.parametrize("name", ["2026", "2026_10", "1e3", "true", "007", "a-b"])
def test_study_name_is_used_as_typed(working_folder, name):
    assert sweep_of(f"study={name}", multirun=False).settings[0].study == name


def test_numeric_account_is_text(working_folder):
    assert (
        sweep_of("cluster.account=0123", multirun=False).settings[0].cluster.account
        == "0123"
    )


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


def test_no_sbatch_selects_local_cluster_and_reports_it(laptop):
    sweep = expand([], multirun=False)
    assert sweep.settings[0].cluster.name == "local"
    assert (
        sweep.notes[0]
        == "no sbatch on PATH: the cells run on this machine (cluster=local)"
    )


@pytest.mark.parametrize(
    ("name", "profile"), [("torch", "torch"), ("Greene", "greene")]
)
def test_cluster_name_selects_profile(slurm, name, profile):
    slurm.set_cluster_name(name)
    sweep = expand(["workload=digits"], multirun=False)
    assert sweep.settings[0].cluster.name == profile
    assert sweep.notes == [f"SLURM's ClusterName is {name}: cluster={profile}"]
    assert sweep.detected == sweep.notes[0]


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


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("sync_buffers", "off", "off"),
        ("window", "5,10", (5, 10)),
        ("window", "null", None),
        ("compile", "true", True),
    ],
)
def test_words_are_read_alike_wherever_they_are(
    working_folder, user_config_file, key, typed, value
):
    config = write_config(
        working_folder, "grid/one.yaml", f"{key}: {typed}\nblocks: [{{gpus: 2}}]\n"
    )
    sweeps = [sweep_of("gpus=2", f"{key}={typed}", multirun=False)]
    sweeps.append(sweep_of("grid=one", config_dir=config))
    user_config_file.write_text(f"{key}: {typed}\n")
    sweeps.append(sweep_of("gpus=2", multirun=False))
    assert [getattr(sweep.first, key) for sweep in sweeps] == [value] * 3


def test_user_config_recipe_does_not_override_grid(working_folder, user_config_file):
    user_config_file.write_text("recipe: goyal\n")
    compared = expand(["grid=large_batch"], multirun=False).settings
    names = {settings.recipe.name for settings in compared}
    assert names == {"plain", "scaled", "goyal"}
    (alone,) = expand(["gpus=2"], multirun=False).settings
    assert alone.recipe.name == "goyal"


def test_plan_reports_values_from_user_config(working_folder, user_config_file):
    user_config_file.write_text("batch: 64\nclusters: {greene: {account: mine}}\n")
    origins = sweep_of("gpus=2", multirun=False).origins
    assert origins["gpus"] == "command line"
    assert origins["batch"] == origins["cluster.account"] == str(user_config_file)
    assert origins["cluster."] == "conf/cluster/greene.yaml"


def test_user_config_cluster_is_the_default(laptop, user_config_file):
    user_config_file.write_text("cluster: torch\nworkload: synthetic\n")
    (settings,) = expand([], multirun=False).settings
    assert (settings.cluster.name, settings.workload.name) == ("torch", "synthetic")
    (settings,) = sweep_of(multirun=False).settings
    assert (settings.cluster.name, settings.workload.name) == ("greene", "digits")


def test_empty_user_config_changes_nothing(working_folder, user_config_file):
    user_config_file.write_text("")
    assert sweep_of(multirun=False).settings[0].batch == 128


OWN = ("workload=custom", "workload.model=mygpt:build", "workload.data=mygpt:dataset")


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("workload.args.name='a','b c'", ["a", "b c"]),
        ('workload.args.name="a, b",c', ["a, b", "c"]),
        ("workload.args.name='1','true'", ["1", "true"]),
        ("workload.args.name=choice('a','b')", ["a", "b"]),
    ],
)
def test_values_in_quotes_are_swept_as_text(working_folder, word, names):
    assert [s.workload.args["name"] for s in sweep_of(*OWN, word).settings] == names


@pytest.mark.parametrize("mark", ["", "+"])
def test_args_are_swept_with_their_types(working_folder, mark):
    words = [
        f"{mark}workload.args.width=8,0.5,true,wide",
        f"{mark}workload.args.tied=false",
    ]
    args = [settings.workload.args for settings in sweep_of(*OWN, *words).settings]
    assert args == [{"tied": False, "width": width} for width in (8, 0.5, True, "wide")]
    assert [type(each["width"]) for each in args] == [int, float, bool, str]
