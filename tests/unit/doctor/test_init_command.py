"""Command init: profiles of clusters, of machines without SLURM, and of a SLURM that is broken."""

import pytest
import yaml

from hpml_jobs.cli.main import run
from hpml_jobs.doctor import site
from hpml_jobs.plan.user_config import file_defaults

PARTITIONS = """\
main*|up|1:00:00|2|48|190000|gpu:rtx8000:4(S:0-1)|rtx8000,ib
main*|up|1:00:00|1|40|380000|gpu:v100:4|v100
preempt|up|infinite|2|48|190000|gpu:rtx8000:4(S:0-1)|rtx8000,ib
cpu|up|infinite|1|48|190000|(null)|(null)
"""

NODES = """\
gr001|gpu:rtx8000:4|48|190000|main
gv001|gpu:v100:4|40|380000|main
cs001|(null)|48|190000|cpu
"""

ASSOCIATIONS = """\
hpc1|physics|normal,long|normal||||
hpc1|maths|normal|||||
elsewhere|old|normal|||||
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
    monkeypatch.setenv("USER", "nobody-here")
    slurm.set_cluster_name("hpc1")
    slurm.set_answers(
        "sinfo", ("%P|%a", PARTITIONS), ("-N", NODES), ("", "main*|1:00:00\n")
    )
    slurm.set_answers(
        "sacctmgr", ("show associations", ASSOCIATIONS), ("show user", "\n")
    )
    return slurm


def init(capsys, user_config_file):
    """The settings of the file that init writes, its text, and what it prints."""
    assert run(["init"]) == 0
    shown = capsys.readouterr()
    text = user_config_file.read_text()
    return yaml.safe_load(text) or {}, text, shown


def test_init_sets_defaults_of_slurm_and_lists_the_rest(
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
        "# gpu_type: v100",
        "# partition: preempt",
        "# account: maths",
        "# sbatch.qos: long",
    ):
        assert f"\n    {line}  #" in text
    assert "# account: old" not in text
    assert (
        "check: cluster.gpu_type=rtx8000: most GPUs in partition main (8); others: 4 v100"
        in (shown.out.splitlines())
    )
    assert shown.err == ""


def test_init_profile_plans_the_first_study(
    site_without_defaults, user_config_file, capsys
):
    init(capsys, user_config_file)
    assert run(["plan", "-m", "gpus=1,2", "workload=digits", "--all"]) == 0
    shown = capsys.readouterr().out
    assert "--gres=gpu:rtx8000:2" in shown
    assert "#SBATCH --partition=main" in shown


def test_init_chooses_no_account_if_slurm_names_none(
    site_without_defaults, user_config_file, capsys
):
    settings, text, shown = init(capsys, user_config_file)
    assert "account" not in settings["clusters"]["slurm"]
    assert "# account: physics" in text
    assert "# account: maths" in text
    assert "SLURM names no default of yours: physics, maths" in shown.out


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
    assert "from SBATCH_ACCOUNT" in text


def test_init_takes_the_only_partition_with_gpus(
    site_without_defaults, user_config_file, capsys
):
    partitions = "cpu*|up|infinite|9|48|190000|(null)|x\ngpu|up|0:20:00|2|48|190000|gpu:a100:4|x\n"
    site_without_defaults.set_answers("sinfo", ("%P|%a", partitions))
    settings, _, _ = init(capsys, user_config_file)
    assert settings["clusters"]["slurm"] == {"gpu_type": "a100", "partition": "gpu"}
    assert settings["minutes"] == 20


def test_init_counts_cpus_of_a_gpu_as_plan_does(
    site_without_defaults, user_config_file, capsys
):
    """8 loader workers of an H100, its process, and one more; 2 workers where it has few CPUs."""
    slurm = site_without_defaults
    slurm.set_output("scontrol", "ClusterName = hpc1\nDefMemPerCPU = 4000\n")
    for cpus, words in (
        (48, "SLURM gives 40 GB per GPU (10 CPUs)"),
        (8, "SLURM gives 16 GB per GPU (4 CPUs)"),
    ):
        nodes = f"gpu*|up|1:00:00|2|{cpus}|190000|gpu:h100:4|x\n"
        slurm.set_answers("sinfo", ("%P|%a", nodes))
        user_config_file.unlink(missing_ok=True)
        assert words in init(capsys, user_config_file)[1]


def test_init_without_default_partition_chooses_none(
    site_without_defaults, user_config_file, capsys
):
    lines = "".join(f"{name}|up|5:00|1|8|1000|(null)|x\n" for name in "ab")
    lines += "c|down|5:00|1|8|1000|gpu:a100:4|x\n"
    site_without_defaults.set_answers("sinfo", ("%P|%a", lines))
    settings, text, shown = init(capsys, user_config_file)
    assert "partition" not in settings["clusters"]["slurm"]
    assert "SLURM has no default; partitions that are up: a, b" in shown.out
    assert "# partition: c  # 1 node x 4 a100; at most 5 min; down" in text


def test_init_chooses_no_partition_among_several(
    site_without_defaults, user_config_file, capsys
):
    lines = (
        "cpu*|up|infinite|9|48|1|(null)|x",
        *(f"{p}|up|5|1|8|1|gpu:a100:4|x" for p in "ab"),
    )
    site_without_defaults.set_answers("sinfo", ("%P|%a", "\n".join(lines)))
    settings, _, shown = init(capsys, user_config_file)
    assert settings["clusters"]["slurm"] == {"gpu_type": "a100"}
    reason = "SLURM's default, cpu, has no GPUs; partitions with GPUs that are up: a, b"
    assert f"check: cluster.partition: {reason}" in shown.out


def test_init_gpus_without_type_asks_for_the_feature(
    site_without_defaults, user_config_file, capsys
):
    site_without_defaults.set_answers(
        "sinfo", ("%P|%a", "main*|up|1:00:00|2|48|190000|gpu:4|ib,h100\n")
    )
    settings, text, shown = init(capsys, user_config_file)
    assert settings["clusters"]["slurm"] == {"partition": "main"}
    assert "# gpu_request: gres_constraint" in text
    assert "node features are h100, ib: ask the site" in shown.out


def test_init_cluster_without_gpus_computes_on_cpus(
    site_without_defaults, user_config_file, capsys
):
    site_without_defaults.set_answers(
        "sinfo", ("%P|%a", "main*|up|1:00:00|2|48|190000|(null)|x\n")
    )
    settings, _, _ = init(capsys, user_config_file)
    assert settings["clusters"]["slurm"] == {"device": "cpu", "partition": "main"}


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("torch", "# partition: main"),
        (
            "burst",
            "# partition: NAME  # of cluster=burst it follows from gpu_type and gpus",
        ),
    ],
)
def test_init_on_nyu_clusters_sets_what_their_profiles_leave_open(
    site_without_defaults, user_config_file, capsys, name, partition
):
    site_without_defaults.set_cluster_name(name)
    settings, text, shown = init(capsys, user_config_file)
    assert settings == {"clusters": {name: None}}
    assert partition in text
    assert "# gpu_type: l4" in text
    assert "cluster.account is required here; sacctmgr names none" in shown.out


@pytest.mark.parametrize("code", [0, 1])
def test_init_takes_accounts_of_the_sites_tool_without_sacctmgr(
    site_without_defaults, user_config_file, capsys, code
):
    site_without_defaults.set_output("sacctmgr", code=code)
    table = (
        "Account          Descr\n---------------- -----\ntorch_pr_1_lab   our project\n"
    )
    site_without_defaults.set_output(site.ACCOUNTS_TOOL, table)
    settings, text, _ = init(capsys, user_config_file)
    assert settings["clusters"]["slurm"]["account"] == "torch_pr_1_lab"
    assert "account: torch_pr_1_lab  # your only account, by my_slurm_accounts" in text


@pytest.mark.parametrize("fault", ["refused", "garbage", "endless", "silent"])
def test_init_with_broken_slurm_writes_what_is_left(
    fault, site_without_defaults, user_config_file, capsys, monkeypatch
):
    monkeypatch.setattr(site, "SITE_TIMEOUT_S", 0.2)
    for name in ("sinfo", "sacctmgr", "scontrol"):
        if fault == "garbage":
            site_without_defaults.print_garbage(name)
        elif fault == "endless" and name != "scontrol":
            site_without_defaults.print_forever(name)
        else:
            words = f"{name}: error: Unable to contact slurm controller\n"
            site_without_defaults.set_output(
                name, err=words, code=int(fault != "silent")
            )
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    settings, text, shown = init(capsys, user_config_file)
    assert settings == {"clusters": {"slurm": None}}
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("warning: ")
    assert "# partition: NAME  # sinfo did not answer; ask the site" in text
    assert file_defaults("slurm") == {}


def test_init_without_slurm_writes_the_local_profile(laptop, user_config_file, capsys):
    settings, text, shown = init(capsys, user_config_file)
    assert settings == {}
    assert "# cluster: local  # detected: no sbatch on PATH" in text
    assert "clusters:" not in text
    assert shown.err == ""
    assert run(["plan", "-m", "gpus=1,2", "batch=32"]) == 0


def test_init_never_changes_an_existing_file(laptop, user_config_file, capsys):
    user_config_file.write_text("minutes: 5\n")
    assert run(["init"]) == 1
    fault = capsys.readouterr().err
    assert fault.count("\n") == 1
    assert "--to FILE" in fault
    assert user_config_file.read_text() == "minutes: 5\n"
    assert run(["init", "--to", "other/new.yaml"]) == 0
    assert "copy the file there" in capsys.readouterr().out
    assert run(["init", "--to", "other/new.yaml"]) == 1


def test_init_print_writes_nothing(laptop, user_config_file, capsys):
    assert run(["init", "--print"]) == 0
    assert capsys.readouterr().out.startswith("# Personal defaults of hpml-jobs")
    assert not user_config_file.exists()
    assert run(["init", "--print", "--to", "x"]) == 2
