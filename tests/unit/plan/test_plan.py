"""From settings to checked cells: baselines, duplicates, nodes, shapes, names; no folder made."""

import pytest

from hpml_jobs.core.cell import Device, Strategy
from hpml_jobs.errors import UsageError
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand
from tests.unit.conftest import NODES
from tests.unit.plans import plan, requests_of


def counts(made):
    found = [one.cell.strategy for one in made.cells]
    return {strategy: found.count(strategy) for strategy in Strategy if strategy in found}


def test_dp_and_ddp_share_baseline_and_duplicates_are_reported(slurm):
    said = []
    made = plan("gpus=1,2,4", "batch=32,128,512", "strategy=dp,ddp", say=said.append)
    assert counts(made) == {Strategy.SINGLE: 3, Strategy.DP: 6, Strategy.DDP: 6}
    assert said[-1].startswith("18 combinations are 15 cells: with gpus=1 all strategies share one")


def test_single_strategy_reports_no_duplicates(slurm):
    said = []
    made = plan("gpus=1,2,4", "batch=32,128,512", say=said.append)
    assert counts(made) == {Strategy.SINGLE: 3, Strategy.DDP: 6}
    assert not any("duplicates" in sentence for sentence in said)


def test_baseline_ddp_adds_ddp_on_one_process(slurm):
    made = plan("gpus=1,2", "baseline=ddp")
    assert [(one.cell.gpus, one.cell.strategy.value) for one in made.cells] == [
        *((1, "single"), (1, "ddp"), (2, "ddp")),
    ]


def test_repeats_are_separate_cells(slurm):
    made = plan("gpus=2", "repeats=3")
    assert [one.cell.repeat for one in made.cells] == [0, 1, 2]
    assert len({one.cell.slug for one in made.cells}) == 3


def test_plan_creates_no_folder(slurm, working_folder):
    made = plan("gpus=1,2")
    assert not made.study.root.exists()
    assert list(working_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "digits-greene-rtx8000"),
        (["gpu_type=v100"], "digits-greene-v100"),
        (["device=cpu"], "digits-greene"),
        (["workload=digits,synthetic"], "digits_synthetic-greene-rtx8000"),
        (["gpu_type=rtx8000,v100"], "digits-greene-rtx8000-v100"),
        (["study=mine"], "mine"),
    ],
)
def test_study_name_has_workload_cluster_and_gpu_type(slurm, words, name):
    assert plan(*words).study.name == name


def test_local_study_name_has_no_gpu_type(laptop):
    made = plan()
    assert made.study.root == laptop / "outputs" / "digits-local"
    assert made.cells[0].cell.device is Device.CPU
    assert made.cells[0].shape.gpus_per_node == 0


def test_outputs_path_expands_environment_variable(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SCRATCH", str(tmp_path / "scratch"))
    made = plan("outputs=$SCRATCH/studies", "study=mine")
    assert made.study.root == tmp_path / "scratch" / "studies" / "mine"
    assert made.cells[0].file.data_root == str(tmp_path / "scratch" / "data")


def test_derived_and_given_nodes_are_separate_cells(slurm):
    made = plan("gpus=8,2")
    assert [one.cell.nodes for one in made.cells] == [2, 1]
    (spread,) = plan("gpus=2", "nodes=2").cells
    assert spread.cell.slug != made.cells[1].cell.slug
    assert (spread.shape.nodes, spread.shape.gpus_per_node) == (2, 1)


def test_gpus_above_node_size_are_refused_without_sinfo(
    slurm,
):
    """More GPUs per node than the profile has are refused even if sinfo fails."""
    slurm.set_output("sinfo", err="Unable to contact slurm controller", code=1)
    with pytest.raises(UsageError, match=r"gpus=8 on nodes=1 are 8 per node.* has 4"):
        plan("gpus=8", "nodes=1")


def test_cpus_cover_processes_and_loader_workers(slurm):
    (one,) = plan("gpus=4", "loader_workers=3", "threads=2").cells
    assert one.shape.cpus_per_node == 4 * (3 + 2)
    assert one.shape.mem_gb_per_node == 4 * 32
    assert str(one.shape) == "1 node x 4 rtx8000, 20 CPUs, 128 GB, 30 min"


def test_gpu_type_is_in_cell_only_for_gpu_device(slurm):
    said = []
    assert plan(say=said.append).cells[0].cell.gpu_type == "rtx8000"
    assert said[-1] == "GPU type: rtx8000, the default of cluster=greene (change it: gpu_type=)"
    assert plan("device=cpu").cells[0].cell.gpu_type is None


def test_generic_slurm_reads_gpu_types_and_sizes_from_sinfo(slurm):
    slurm.set_output("sinfo", "n1|gpu:a40:2|64|500000|main\nn2|gpu:a40:2|64|500000|main\n")
    (one,) = plan("cluster=slurm", "gpus=4").cells
    assert (one.cell.gpu_type, one.cell.nodes, one.shape.gpus_per_node) == ("a40", 2, 2)
    assert one.shape.mem_gb_per_node is None


def test_images_are_counted_and_limited_at_planning(slurm, working_folder):
    for number in range(7):
        path = working_folder / "pictures" / "train" / "cats" / "deep" / f"{number}.JPG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    (working_folder / "pictures" / "train" / "cats" / "notes.txt").write_text("no picture")
    words = ["workload=resnet18_cifar10", "workload.data=folder", "data.root=pictures", "batch=2"]
    assert plan(*words).cells[0].cell.workload.images == 7
    limited = plan(*words, "data.limit=4").cells[0].cell
    assert (limited.workload.images, limited.workload.limit) == (4, 4)


def test_missing_data_is_announced_and_not_fetched_by_plan(slurm, working_folder):
    said = []
    sweep = expand(["workload=resnet18_cifar10", "cluster=greene"], multirun=False)
    made = make_plan(sweep, fetch=False, say=said.append)
    assert made.cells[0].cell.workload.images == 50_000
    assert (
        said[-1]
        == f"CIFAR-10 is not in {working_folder / 'data'}: it would be downloaded before submission"
    )


def test_gpu_hours_assume_full_time_limits(slurm):
    made = plan("gpus=1,2,4", "minutes=60")
    assert sum(one.gpu_hours for one in made.cells) == 7.0


LIMITS = "main*|1:00:00\nlong|2-00:00:00\nfree|infinite\n"


@pytest.mark.parametrize("words", [("minutes=61",), ("cluster.partition=long", "minutes=2881")])
def test_time_limit_above_partition_maximum_is_refused(slurm, words):
    slurm.set_output("sinfo", NODES + NODES.replace("main", "long") + LIMITS)
    with pytest.raises(
        UsageError,
        match=r"this partition is \d+ minutes, the job would never start",
    ):
        plan("cluster=greene", *words)


def test_packs_and_ladders_fit_partition_time_limit(slurm):
    slurm.set_output("sinfo", NODES + LIMITS)
    made = plan("gpus=1,2,4", "pack=true", "minutes=19")
    assert [batch.shape.minutes for batch in requests_of(made)] == [60]
    made = plan("gpus=1,2,4", "pack=true", "minutes=20")
    assert [batch.shape.minutes for batch in requests_of(made)] == [42, 21]
    climbing = plan("grid=ladder", "gpus=1", "minutes=20")
    (ladder,) = requests_of(climbing)
    assert (len(ladder.cells), ladder.shape.minutes) == (5, 60)
