"""SBATCH_* variables: defaults below config and command line; they replace nothing."""

import pytest

from hpml_jobs.cli.main import run
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.sbatch import OPTIONS, variables_of
from hpml_jobs.slurm.commands import sbatch_environment
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


def test_time_limit_that_is_none_is_not_used(slurm, monkeypatch):
    monkeypatch.setenv("SBATCH_TIMELIMIT", "UNLIMITED")
    plan = plan_with_folder("cluster=greene", "gpus=1")
    assert plan.cells[0].shape.minutes == 30


def test_no_variable_replaces_what_the_program_sets(slurm, monkeypatch):
    plan = plan_with_folder("cluster=greene", "gpus=1")
    text = script_of(plan, requests_of(plan)[0])
    variables = {name for option in OPTIONS for name in variables_of(option)}
    for variable in variables:
        monkeypatch.setenv(variable, "1")
    assert variables & {*sbatch_environment(text)} <= {"SLURM_CLUSTERS"}


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
