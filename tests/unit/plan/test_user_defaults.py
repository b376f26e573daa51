"""The user's defaults with every cluster profile: each applies where the profile has its key."""

from pathlib import Path

import msgspec
import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import conf_folder
from hpml_jobs.plan.sweep import expand
from hpml_jobs.plan.user_config import user_outputs

PROFILES = sorted(path.stem for path in (conf_folder() / "cluster").glob("*.yaml"))
PROFILES.remove("auto")  # becomes one of the others


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
