"""The user's defaults with every cluster profile: each applies where the profile has its key."""

from pathlib import Path
from typing import get_args, get_origin

import msgspec
import pytest
import yaml

from hpml_jobs.cli.main import run
from hpml_jobs.core.built_in import SHAPE_KEYS
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.plan.keys import type_of
from hpml_jobs.plan.sweep import expand
from hpml_jobs.plan.user_config import user_outputs

PROFILES = sorted(path.stem for path in (conf_folder() / "cluster").glob("*.yaml"))
PROFILES.remove("auto")  # becomes one of the others

OF_LOCAL = ("cluster.isolate", "cluster.data_root")
"""The keys of a cluster that mean something on one machine."""

OF_SSH = (*OF_LOCAL, "cluster.hosts", "cluster.python", "cluster.device")
"""The keys of a cluster that mean something on machines that ssh reaches."""

OF_TOKENS = tuple(f"workload.{key}" for key in (*SHAPE_KEYS, "padded_vocab", "unit"))
"""The keys of a workload that digits, which has images, does not have."""

FREE = {
    "cluster.sbatch.reservation": "class",
    "cluster.gpu_types.b300": 2,
    "workload.args.width": 8,
}
"""Names below a key that holds any."""

DEPENDENT = (
    *("recipe.", "workload.limit", "grid"),
    *("workload.code", "workload.imported", "workload.data_sha256"),
    *("cluster.name", "cluster.launcher"),
    *("global_batch", "iterations"),
)
"""Keys that no user sets, recipes, whose values must fit each other, and what excludes others."""


def flat(values, prefix=""):
    """Every key of nested settings, dotted, with its value."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def settings_of(*words):
    """The values of the settings of one cell, by dotted key."""
    (settings,) = expand([*words, "workload=digits"], multirun=False).settings
    return dict(flat(msgspec.to_builtins(settings)))


def other_value(key, value):
    """A value of the key's type that is not its default."""
    if key == "workload.schedule":
        return "mycode:schedule"
    kinds = get_args(type_of(key)) or (type_of(key),)
    choices = [
        choice.value
        for kind in kinds
        if hasattr(kind, "__members__")
        for choice in kind
    ]
    if choices:
        allowed = ["single", "ddp"] if key == "baseline" else choices
        return next(choice for choice in allowed if choice not in (value, "imported"))
    if tuple in map(get_origin, (type_of(key), *kinds)):
        return (2, 3) if key == "window" else ("a",)
    if bool in kinds:
        return not value
    return next(
        other for kind, other in ((int, 31), (float, 0.5), (str, "x")) if kind in kinds
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_every_default_applies_where_its_key_exists(profile, laptop, user_config_file):
    keys = settings_of("cluster=slurm")
    wanted = {
        k: other_value(k, v) for k, v in keys.items() if not k.startswith(DEPENDENT)
    } | FREE
    assert {
        "cluster.account",
        "cluster.container.image",
        "probe_s",
        "data.root",
    } <= wanted.keys()
    file = {}
    for key, value in wanted.items():
        *parents, name = key.split(".")
        group = file
        for parent in parents:
            group = group.setdefault(parent, {})
        group[name] = list(value) if isinstance(value, tuple) else value
    user_config_file.write_text(yaml.safe_dump(file))
    got = settings_of(f"cluster={profile}")
    of_slurm = {*wanted} - {"cluster.hosts"}
    for key, value in wanted.items():
        of_profile = {"local": OF_LOCAL, "ssh": OF_SSH}.get(profile, of_slurm)
        applies = not key.startswith("cluster.") or key in of_profile
        applies = applies and key not in OF_TOKENS
        assert (got.get(key) == value) is applies, key


def test_account_of_slurm_does_not_stop_local_runs(laptop, user_config_file, capsys):
    user_config_file.write_text("cluster: {account: foo}\n")
    words = ["grid=lab", "cluster=local", "device=cpu", "workload=digits"]
    assert run(["plan", *words]) == 0, capsys.readouterr().err
    assert run(["plan", "workload=digits", "cluster=greene", "--all"]) == 0
    assert "#SBATCH --account=foo" in capsys.readouterr().out


@pytest.mark.parametrize("profile", PROFILES)
def test_misspelt_default_is_refused_on_every_cluster(
    profile, laptop, user_config_file
):
    user_config_file.write_text("cluster: {acount: foo}\n")
    with pytest.raises(UsageError, match=r"config.yaml: unknown key cluster.acount"):
        expand([f"cluster={profile}", "workload=digits"], multirun=False)


def test_precedence_of_site_user_and_command_line(
    laptop, site_config_file, user_config_file
):
    site_config_file.write_text(
        "cluster: greene\nbatch: 16\nseed: 5\nminutes: 7\nclusters: {greene: {account: site}}\n"
    )
    user_config_file.write_text("batch: 64\nseed: 6\ncluster: {partition: mine}\n")
    sweep = expand(["workload=digits", "seed=9"], multirun=False)
    (settings,) = sweep.settings
    assert (settings.minutes, settings.batch, settings.seed) == (7, 64, 9)
    cluster = settings.cluster
    assert (cluster.name, cluster.account, cluster.partition) == (
        "greene",
        "site",
        "mine",
    )
    origins = {
        "minutes": str(site_config_file),
        "cluster": str(site_config_file),
        "cluster.account": str(site_config_file),
        "batch": str(user_config_file),
        "cluster.partition": str(user_config_file),
        "seed": "command line",
    }
    assert {key: sweep.origins[key] for key in origins} == origins


def test_user_goes_over_what_the_site_gives_a_cluster(
    laptop, site_config_file, user_config_file
):
    site_config_file.write_text("clusters: {greene: {account: site}}\n")
    user_config_file.write_text("cluster: {account: mine}\n")
    assert settings_of("cluster=greene")["cluster.account"] == "mine"


def test_variable_names_another_file_of_the_site(laptop, site_config_file, monkeypatch):
    site_config_file.write_text("batch: 16\n")
    other = laptop / "site.yaml"
    other.write_text("outputs: /scratch/studies\n")
    monkeypatch.setenv("HPML_JOBS_SITE_CONFIG", str(other))
    assert settings_of("cluster=local")["batch"] == 128
    assert user_outputs() == Path("/scratch/studies")


def test_default_that_a_workload_refuses_names_the_file(laptop, user_config_file):
    user_config_file.write_text("workload: {args: {width: 8}}\n")
    refusal = r"workload.args.width: only your own functions take args, and workload=digits has"
    with pytest.raises(UsageError, match=f"config.yaml: {refusal}"):
        settings_of("cluster=local")
    with pytest.raises(UsageError, match=f"^{refusal}"):
        settings_of("cluster=local", "+workload.args.width=9")


def test_a_file_that_is_not_utf8_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "hpml_jobs" / "config.yaml"
    file.parent.mkdir()
    file.write_bytes(b"study: caf\xe9\n")
    assert run(["plan", "workload=digits"]) == 2
    expected = (
        f"{file} cannot be read: it is not UTF-8 text (byte 11): save it as UTF-8"
    )
    assert expected in capsys.readouterr().err
