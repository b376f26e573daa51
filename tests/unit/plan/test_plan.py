"""From settings to checked cells: baselines, duplicates, nodes, shapes, names."""

import pytest

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Strategy
from tests.unit.conftest import NODES
from tests.unit.plans import plan_of


def counts(plan):
    strategies = [planned.cell.strategy for planned in plan.cells]
    return {
        strategy: strategies.count(strategy)
        for strategy in Strategy
        if strategy in strategies
    }


def test_dp_and_ddp_share_baseline_and_duplicates_are_reported(slurm):
    notes = []
    plan = plan_of(
        "gpus=1,2,4", "batch=32,128,512", "strategy=dp,ddp", notify=notes.append
    )
    assert counts(plan) == {Strategy.SINGLE: 3, Strategy.DP: 6, Strategy.DDP: 6}
    assert notes[-1].startswith("15 cells instead of 18: with gpus=1 all strategies")


def test_repeats_are_separate_cells(slurm):
    plan = plan_of("gpus=2", "repeats=3")
    assert [planned.cell.repeat for planned in plan.cells] == [0, 1, 2]
    assert len({planned.cell.slug for planned in plan.cells}) == 3


@pytest.mark.parametrize(
    ("images", "batches"), [(50_000, {32, 128, 512, 2048}), (3_000, {32, 128})]
)
def test_auto_has_no_batch_that_leaves_under_ten_iterations(slurm, images, batches):
    words = ("workload=synthetic", f"workload.images={images}", "gpus=1,2")
    cells = [planned.cell for planned in plan_of(*words, "batch=auto").cells]
    assert {cell.batch for cell in cells} == batches


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "digits-greene-rtx8000"),
        (["workload=digits,synthetic"], "digits_synthetic-greene-rtx8000"),
        (["study=mine"], "mine"),
    ],
)
def test_study_name_has_workload_cluster_and_gpu_type(slurm, overrides, name):
    assert plan_of(*overrides).study.name == name


def test_outputs_path_expands_environment_variable(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    plan = plan_of("outputs=$SCRATCH/studies", "study=mine")
    assert plan.study.root == tmp_path / "scratch" / "studies" / "mine"
    assert plan.cells[0].file.data_root == str(tmp_path / "scratch" / "data")


def test_derived_and_given_nodes_are_separate_cells(slurm):
    plan = plan_of("gpus=8,2")
    assert [planned.cell.nodes for planned in plan.cells] == [2, 1]
    (spread,) = plan_of("gpus=2", "nodes=2").cells
    assert spread.cell.slug != plan.cells[1].cell.slug
    assert (spread.shape.nodes, spread.shape.gpus_per_node) == (2, 1)


def test_gpus_above_node_size_are_refused_without_sinfo(
    slurm,
):
    """More GPUs per node than the profile has are refused even if sinfo fails."""
    slurm.set_output("sinfo", err="Unable to contact slurm controller", code=1)
    with pytest.raises(UsageError, match=r"gpus=8 on nodes=1 are 8 per node.* has 4"):
        plan_of("gpus=8", "nodes=1")


def test_cpus_cover_processes_and_loader_workers(slurm):
    (planned,) = plan_of("gpus=4", "loader_workers=3", "threads=2").cells
    assert planned.shape.cpus_per_node == 4 * (3 + 2 + 1)
    assert planned.shape.mem_gb_per_node == 4 * 32
    assert str(planned.shape) == "1 node x 4 rtx8000, 24 CPUs, 128 GB, 30 min"


@pytest.mark.parametrize(
    ("words", "cpus_of_node", "cpus"),
    [
        (("gpus=4",), 48, 4 * (2 + 1 + 1)),
        (("gpus=4", "nodes=2"), 48, 2 * (2 + 1 + 2)),  # NCCL's proxy polls the network
        (("gpus=4", "device=cpu"), 48, 4 * (2 + 1)),
        (("gpus=4",), 13, 13),
    ],
)
def test_cpus_for_threads_of_cuda_are_optional(slurm, words, cpus_of_node, cpus):
    slurm.set_output("sinfo", NODES.replace("|48|", f"|{cpus_of_node}|"))
    (planned,) = plan_of(*words).cells
    assert planned.shape.cpus_per_node == cpus


def test_instances_of_a_divided_gpu_are_refused_for_several(slurm):
    slurm.set_output("sinfo", NODES.replace("rtx8000", "1g.5gb"))
    words = ("cluster=slurm", "gpu_type=1g.5gb")
    assert plan_of(*words, "gpus=1").cells[0].cell.gpu_type == "1g.5gb"
    with pytest.raises(
        UsageError, match=r"gpus=2 with gpu_type=1g\.5gb: of the instances"
    ):
        plan_of(*words, "gpus=2")


def test_generic_slurm_reads_gpu_types_and_sizes_from_sinfo(slurm):
    slurm.set_output(
        "sinfo", "n1|gpu:a40:2|64|500000|main\nn2|gpu:a40:2|64|500000|main\n"
    )
    (planned,) = plan_of("cluster=slurm", "gpus=4").cells
    assert (planned.cell.gpu_type, planned.cell.nodes, planned.shape.gpus_per_node) == (
        "a40",
        2,
        2,
    )
    assert planned.shape.mem_gb_per_node is None


def test_gpu_hours_assume_full_time_limits(slurm):
    plan = plan_of("gpus=1,2,4", "minutes=60")
    assert sum(planned.gpu_hours for planned in plan.cells) == 7.0


LIMITS = "main*|1:00:00\nlong|2-00:00:00\nfree|infinite\n"


@pytest.mark.parametrize(
    "overrides", [("minutes=61",), ("cluster.partition=long", "minutes=2881")]
)
def test_time_limit_above_partition_maximum_is_refused(slurm, overrides):
    slurm.set_output("sinfo", NODES + NODES.replace("main", "long") + LIMITS)
    with pytest.raises(
        UsageError,
        match=r"this partition is \d+ minutes, the job would never start",
    ):
        plan_of("cluster=greene", *overrides)
