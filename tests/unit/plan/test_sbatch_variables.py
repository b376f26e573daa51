"""SBATCH_* variables: defaults below config and command line; they replace nothing."""

import os

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.sbatch import OPTIONS, variables_of
from hpml_jobs.plan.sweep import expand
from hpml_jobs.slurm.commands import sbatch_environment
from hpml_jobs.status.states import cell_states
from hpml_jobs.submit.explain import preview_of
from hpml_jobs.submit.selection import select
from tests.unit.plans import (
    plan_of,
    plan_with_folder,
    requests_of,
    script_of,
    send_cells,
)
from tests.unit.slurm_output import squeue_line

GIVEN = {
    "SBATCH_TIMELIMIT": ("7:30", "minutes", "8"),
    "SBATCH_PARTITION": ("main", "cluster.partition", "main"),
    "SBATCH_ACCOUNT": ("mine", "cluster.account", "mine"),
    "SBATCH_CLUSTERS": ("b", "cluster.clusters", "b"),
    "SLURM_CLUSTERS": ("b", "cluster.clusters", "b"),
}
"""Variables with a value, the key that they give a default to, and its value."""


def value_of(words, key):
    """Return a key's value in a plan, and its origin."""
    values = preview_of(
        select(plan_of("cluster=slurm", "gpu_type=v100", *words))
    ).values
    return next(((row.value, row.origin) for row in values if row.key == key), None)


def test_every_default_of_a_variable_is_tested():
    keys = {option.default_of for option in OPTIONS.values()} - {""}
    assert keys == {key for _, key, _ in GIVEN.values()}


@pytest.mark.parametrize("variable", sorted(GIVEN))
def test_variable_is_a_default_that_the_plan_names(slurm, monkeypatch, variable):
    given, key, value = GIVEN[variable]
    monkeypatch.setenv(variable, given)
    assert value_of([], key) == (value, variable)


@pytest.mark.parametrize("variable", sorted(GIVEN))
def test_typed_key_goes_over_the_variable(slurm, monkeypatch, variable):
    given, key, _ = GIVEN[variable]
    other = {"minutes": "4", "cluster.partition": "cpu"}.get(key, "other")
    monkeypatch.setenv(variable, given)
    words = [f"{key}={other}", *(["gpus=1"] if key != "cluster.partition" else [])]
    if key == "cluster.partition":
        words += ["cluster.device=cpu"]
    assert value_of(words, key) == (other, "command line")
    plan = plan_with_folder("cluster=slurm", "gpu_type=v100", *words)
    send_cells(plan)
    environment = slurm.environment_of_call()
    if variable == "SLURM_CLUSTERS":
        assert environment[variable] == other
    else:
        assert variable not in environment


def test_users_file_and_profile_go_over_variables(slurm, monkeypatch, user_config_file):
    user_config_file.write_text("minutes: 5\nclusters: {slurm: {partition: main}}\n")
    monkeypatch.setenv("SBATCH_PARTITION", "cpu")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "60")
    assert value_of([], "cluster.partition") == ("main", str(user_config_file))
    assert value_of([], "minutes") == ("5", str(user_config_file))


def test_partition_of_variable_is_not_used_where_the_site_forbids_one(
    slurm, monkeypatch
):
    monkeypatch.setenv("SBATCH_PARTITION", "main")
    sweep = expand(["cluster=burst", "cluster.account=a"], multirun=False)
    assert sweep.settings[0].cluster.partition is None


@pytest.mark.parametrize("limit", ["UNLIMITED", "soon", "0"])
def test_time_limit_that_is_none_is_not_used(slurm, monkeypatch, limit):
    monkeypatch.setenv("SBATCH_TIMELIMIT", limit)
    plan = plan_with_folder("cluster=greene", "gpus=1")
    assert plan.cells[0].shape.minutes == 30


def test_variables_mean_nothing_on_this_machine(laptop, monkeypatch):
    monkeypatch.setenv("SBATCH_TIMELIMIT", "7")
    (settings,) = expand(["cluster=local"], multirun=False).settings
    assert settings.minutes == 30


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_no_variable_replaces_what_the_program_sets(slurm, monkeypatch, option):
    plan = plan_with_folder("cluster=greene", "gpus=1")
    text = script_of(plan, requests_of(plan)[0])
    for variable in variables_of(option):
        monkeypatch.setenv(variable, "1")
        expected = {"SLURM_CLUSTERS"} if option == "clusters" else set()
        kept = {
            name for name in variables_of(option) if name in sbatch_environment(text)
        }
        assert kept <= expected


def test_variable_of_a_typed_option_does_not_replace_it(slurm, monkeypatch):
    words = ("+cluster.sbatch.reservation=class", "+cluster.sbatch.switches=1")
    plan = plan_with_folder("cluster=greene", "gpus=1", *words)
    for variable in ("SBATCH_RESERVATION", "SBATCH_REQ_SWITCH", "SBATCH_NETWORK"):
        monkeypatch.setenv(variable, "other")
    environment = sbatch_environment(script_of(plan, requests_of(plan)[0]))
    assert {name for name in environment if name.startswith("SBATCH_")} == {
        "SBATCH_NETWORK"
    }


def test_memory_of_a_variable_counts_where_the_program_requests_none(
    slurm, monkeypatch
):
    monkeypatch.setenv("SBATCH_MEM_PER_CPU", "2G")
    for words, counts in (("cluster.mem_gb_per_gpu=null", True), ("batch=32", False)):
        plan = plan_with_folder("cluster=greene", "gpus=1", words)
        text = script_of(plan, requests_of(plan)[0])
        assert ("SBATCH_MEM_PER_CPU" in sbatch_environment(text)) is counts


def test_submission_says_what_the_shell_gives(slurm, monkeypatch, capsys):
    monkeypatch.setenv("SBATCH_TIMELIMIT", "7")
    monkeypatch.setenv("SBATCH_PARTITION", "main")
    words = (
        "cluster=slurm",
        "gpu_type=v100",
        "workload=digits",
        "cluster.partition=main",
    )
    assert run([*words]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "from your shell: minutes=7 (SBATCH_TIMELIMIT)" in lines


# ---- one of several clusters ----


def clusters_of_calls(slurm, command):
    """Let a command note the cluster that it is asked for; return a function that reads them."""
    path = slurm.bin / command
    noted = slurm.folder / f"{command}.clusters"
    text = path.read_text()
    path.write_text(
        text.replace("\n", f'\necho "${{SLURM_CLUSTERS-none}}" >> {noted}\n', 1)
    )
    return lambda: set(noted.read_text().split()) if noted.exists() else set()


def test_every_command_asks_the_cluster_of_the_study(slurm, monkeypatch):
    """The shell of a later command has another cluster, or none."""
    slurm.set_output("scancel")
    slurm.set_output("squeue", squeue_line("101", "PENDING", name="hpml-mine"))
    commands = ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol")
    noted = {name: clusters_of_calls(slurm, name) for name in commands}
    monkeypatch.setenv("SLURM_CLUSTERS", "b")
    assert run(["cluster=slurm", "gpu_type=v100", "workload=digits", "study=mine"]) == 0
    for later in (None, "c"):
        monkeypatch.delenv("SLURM_CLUSTERS", raising=False)
        if later:
            monkeypatch.setenv("SLURM_CLUSTERS", later)
        assert run(["status", "mine"]) == 0
        assert run(["cancel", "mine"]) == 0
    assert {name: clusters() for name, clusters in noted.items()} == {
        name: {"b"} for name in commands
    }


def test_study_stays_on_its_cluster(slurm, monkeypatch):
    words = ("cluster=slurm", "gpu_type=v100", "study=mine")
    monkeypatch.setenv("SLURM_CLUSTERS", "b")
    send_cells(plan_with_folder(*words))
    monkeypatch.delenv("SLURM_CLUSTERS")
    assert plan_of(*words).cluster.clusters == "b"
    monkeypatch.setenv("SLURM_CLUSTERS", "c")
    with pytest.raises(
        UsageError, match=r"cluster.clusters=c: the jobs of study mine are on b"
    ):
        plan_of(*words)


def test_study_without_a_job_is_on_no_cluster(slurm, monkeypatch):
    words = ("cluster=slurm", "gpu_type=v100", "workload=digits", "study=mine")
    monkeypatch.setenv("SLURM_CLUSTERS", "mistyped")
    slurm.accept_then_refuse(
        0, "sbatch: error: No cluster 'mistyped' known by database."
    )
    assert run([*words]) == 1
    monkeypatch.delenv("SLURM_CLUSTERS")
    slurm.accept_then_refuse(9)
    assert run([*words]) == 0
    assert "SLURM_CLUSTERS" not in slurm.environment_of_call()


def test_study_of_this_cluster_does_not_ask_that_of_the_shell(slurm, monkeypatch):
    plan = plan_with_folder("cluster=greene", "gpus=1", "study=mine")
    send_cells(plan)
    asked = clusters_of_calls(slurm, "squeue")
    monkeypatch.setenv("SLURM_CLUSTERS", "c")
    cell_states(plan.study)
    assert asked() == {"none"}
    assert os.environ["SLURM_CLUSTERS"] == "c"
