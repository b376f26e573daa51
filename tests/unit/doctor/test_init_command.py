"""Command init: profiles of clusters, of machines without SLURM, and of a SLURM that is broken."""

import pytest
import yaml

from hpml_jobs.cli.main import run
from hpml_jobs.plan.user_config import file_defaults

PARTITIONS = "main*|up\npreempt|up\ncpu|up\nold|down\n"

LIMITS = "main*|1:00:00\ngpu|0:20:00\n"

NODES = """\
gr001|gpu:rtx8000:4(S:0-1)|48|190000|main
gr002|gpu:rtx8000:4(S:0-1)|48|190000|main
gv001|gpu:v100:4|40|380000|main
gr001|gpu:rtx8000:4(S:0-1)|48|190000|preempt
cs001|(null)|48|190000|cpu
"""

ASSOCIATIONS = """\
hpc1|physics|normal,long
hpc1|maths|normal
elsewhere|old|normal
"""


@pytest.fixture
def site_without_defaults(slurm, monkeypatch):
    """A cluster with two accounts, none the default, and no folder but the home."""
    for name in (
        "SCRATCH",
        "PSCRATCH",
        "WORK",
        "PROJECT",
        "SBATCH_ACCOUNT",
        "SBATCH_PARTITION",
    ):
        monkeypatch.delenv(name, raising=False)
    slurm.set_cluster_name("hpc1")
    set_nodes(slurm, PARTITIONS, NODES)
    slurm.set_answers(
        "sacctmgr", ("show associations", ASSOCIATIONS), ("show user", "\n")
    )
    return slurm


def set_nodes(slurm, partitions, nodes):
    slurm.set_answers("sinfo", ("%P|%a", partitions), ("-N", nodes), ("", LIMITS))


def init(capsys, user_config_file):
    """The settings of the file that init writes, its text, and what it prints."""
    assert run(["init"]) == 0
    shown = capsys.readouterr()
    text = user_config_file.read_text()
    return yaml.safe_load(text) or {}, text, shown


def test_init_sets_defaults_of_slurm_and_names_the_rest(
    site_without_defaults, user_config_file, capsys
):
    site_without_defaults.set_answers(
        "sacctmgr", ("show associations", ASSOCIATIONS), ("show user", "physics\n")
    )
    settings, text, shown = init(capsys, user_config_file)
    assert settings["clusters"] == {
        "slurm": {"gpu_type": "rtx8000", "partition": "main", "account": "physics"}
    }
    for line in (
        'gpu_type: "rtx8000"  # GPUs: 8 rtx8000, 4 v100',
        'partition: "main"  # SLURM\'s default: main; suitable: main, preempt',
        'account: "physics"  # yours: physics, maths',
    ):
        assert f"\n    {line}\n" in text
    assert f"written: {user_config_file}\n" in shown.out
    assert shown.err == ""


def test_init_takes_folders_and_account_of_environment(
    site_without_defaults, user_config_file, tmp_path, capsys, monkeypatch
):
    folder = tmp_path / "my scratch: $a"
    folder.mkdir()
    monkeypatch.setenv("SCRATCH", str(folder))
    monkeypatch.setenv("SBATCH_ACCOUNT", "007")
    settings, text, _ = init(capsys, user_config_file)
    assert settings["outputs"] == f"{folder}/hpml/outputs"
    assert settings["clusters"]["slurm"]["account"] == "007"
    assert "# SBATCH_ACCOUNT" in text


def test_init_cluster_without_gpus_computes_on_cpus(
    site_without_defaults, user_config_file, capsys
):
    set_nodes(site_without_defaults, "main*|up\n", "c|(null)|48|190000|main\n")
    settings, _, _ = init(capsys, user_config_file)
    assert settings["clusters"]["slurm"] == {"device": "cpu", "partition": "main"}


@pytest.mark.parametrize("fault", ["refused", "garbage"])
def test_init_with_broken_slurm_writes_what_is_left(
    fault, site_without_defaults, user_config_file, capsys, monkeypatch
):
    for name in ("sinfo", "sacctmgr", "scontrol"):
        if fault == "garbage":
            site_without_defaults.print_garbage(name)
        else:
            words = f"{name}: error: Unable to contact slurm controller\n"
            site_without_defaults.set_output(
                name, err=words, code=int(fault != "silent")
            )
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    settings, text, _ = init(capsys, user_config_file)
    assert settings == {"clusters": {"slurm": None}}
    assert "# partition:  # SLURM's default: none; suitable: none" in text
    assert "# gpu_type:  # sinfo names none; ask the site" in text
    assert file_defaults("slurm") == {}


def test_init_without_slurm_writes_the_local_profile(laptop, user_config_file, capsys):
    settings, text, shown = init(capsys, user_config_file)
    assert settings == {}
    assert "# outputs:  # a folder that login node and compute nodes share" in text
    assert "clusters:" not in text
    assert shown.err == ""
    assert run(["plan", "-m", "gpus=1,2", "batch=32"]) == 0


def test_init_never_changes_an_existing_file(laptop, user_config_file, capsys):
    user_config_file.write_text("minutes: 5\n")
    assert run(["init"]) == 1
    fault = capsys.readouterr().err
    assert fault.count("\n") == 1
    assert "init --print prints the new one" in fault
    assert user_config_file.read_text() == "minutes: 5\n"
