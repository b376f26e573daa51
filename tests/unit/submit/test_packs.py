"""Cells that share an allocation: one sbatch, a step for each, and how a ladder grows."""

import shlex

import msgspec
import pytest

from hpml_jobs.errors import UsageError
from hpml_jobs.study.manifest import ManifestEvent
from hpml_jobs.submit.job_requests import JobKind, check_budget
from hpml_jobs.submit.sbatch import RefusedError
from tests.unit.plans import plan_with_folder, requests_of, script_of, send_cells

NINE = ("gpus=1,2,4", "batch=32,128,512")


def step_lines(text):
    return [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("cell ")]


def only_batch(*words):
    made = plan_with_folder(*words)
    (batch,) = requests_of(made)
    return made, batch


def test_pack_of_nine_cells_is_one_job_of_largest_shape(slurm):
    made, batch = only_batch(*NINE, "pack=true", "minutes=20")
    assert batch.kind is JobKind.PACK
    assert (batch.shape.nodes, batch.shape.gpus_per_node, batch.shape.cpus_per_node) == (1, 4, 12)
    assert batch.shape.minutes == 9 * (20 + 1)
    jobs = send_cells(made)
    assert len(slurm.scripts) == 1
    assert len(jobs) == 9
    assert set(jobs.values()) == {"101"}
    assert made.study.history().jobs == jobs
    assert slurm.scripts[0] == script_of(made, batch)


def test_pack_runs_each_cell_as_step_with_its_share(slurm):
    made, batch = only_batch(*NINE, "pack=true", "gpu_type=v100")
    by_name = {slug: options for slug, *options in step_lines(script_of(made, batch))}
    assert list(by_name) == [one.cell.slug for one in batch.cells] != sorted(by_name)
    for one in made.cells:
        gpus = one.cell.gpus
        assert by_name[one.cell.slug] == [
            *("--nodes=1", f"--cpus-per-task={3 * gpus}", f"--gres=gpu:v100:{gpus}"),
            *(f"--mem={32 * gpus}G", "--time=30", "--ntasks=1"),
        ]


def test_pack_splits_by_gpu_type_and_number_of_nodes(slurm):
    made = plan_with_folder("gpus=1,2,8", "pack=true")
    found = requests_of(made)
    assert [(batch.shape.nodes, len(batch.cells)) for batch in found] == [(1, 2), (2, 1)]
    assert "--nodes=2" in step_lines(script_of(made, found[1]))[0]
    assert "HPML_JOBS_HOSTS" in script_of(made, found[1])


def test_packs_stay_within_longest_time_limit(slurm):
    made = plan_with_folder(
        "gpus=1", "repeats=5", "pack=true", "minutes=30", "cluster.max_minutes=70"
    )
    found = requests_of(made)
    assert [len(batch.cells) for batch in found] == [2, 2, 1]
    assert all(batch.shape.minutes <= 70 for batch in found)


def test_ladder_grows_to_share_of_data_per_gpu(slurm):
    made = plan_with_folder("grid=ladder", "gpus=1,2")
    found = requests_of(made)
    assert [batch.kind for batch in found] == [JobKind.LADDER] * 2
    # 20,480 presentations: 1 GPU takes up to 8,192 (x 4 would be 32,768), 2 GPUs too (10,240 each)
    assert [[one.cell.batch for one in batch.cells] for batch in found] == [
        [32, 128, 512, 2048, 8192],
        [32, 128, 512, 2048, 8192],
    ]
    assert all(one.file.ladder for batch in found for one in batch.cells)
    other = plan_with_folder(
        "grid=ladder", "gpus=2", "ladder.start=100", "ladder.factor=10", "study=other"
    )
    assert [one.cell.batch for one in other.cells] == [100, 1000, 10000]


@pytest.mark.parametrize(
    ("words", "telling"),
    [
        (("grid=ladder", "batch=64"), "batch= with a ladder"),
        (("ladder.start=0",), "a ladder starts at 1 or more and grows by 2 or more"),
        (("ladder.start=8", "ladder.factor=1"), "grows by 2 or more"),
        (("ladder.start=8", "pack=true,false"), "a study has one pack="),
        (("retries=-1",), "retries=-1: must be 0 or more"),
    ],
)
def test_impossible_ladder_or_pack_is_refused(slurm, words, telling):
    with pytest.raises(UsageError) as refused:
        plan_with_folder(*words)
    assert telling in str(refused.value)


def test_refused_pack_is_recorded(slurm):
    slurm.accept_then_refuse(0)
    made = plan_with_folder(*NINE, "pack=true")
    with pytest.raises(RefusedError, match=r"sbatch refused 9 cells .*Invalid account"):
        send_cells(made)
    lines = [line.happening for line in made.study.lines()]
    assert lines == [ManifestEvent.SENDING, ManifestEvent.REFUSED]
    assert len(made.study.history().refused) == 9


def test_pack_gpu_hours_are_those_of_the_allocation(slurm):
    made = plan_with_folder(*NINE, "minutes=20")
    apart = sum(batch.gpu_hours for batch in requests_of(made))
    assert apart == pytest.approx(3 * (1 + 2 + 4) * 20 / 60)
    packed = made._replace(pack=True)
    (batch,) = requests_of(packed)
    assert batch.gpu_hours == pytest.approx(4 * 9 * 21 / 60)


def test_gpu_hours_budget_is_enforced(slurm):
    made = plan_with_folder(*NINE, "minutes=20", "cluster.gpu_hours_budget=7")
    going = requests_of(made)
    assert check_budget(made.cluster, going, 0) == pytest.approx(7)
    with pytest.raises(UsageError, match=r"after 0.5 used or requested by .* is 7: submit"):
        check_budget(made.cluster, going, 0.5)
    free = msgspec.structs.replace(made.cluster, gpu_hours_budget=None)
    assert check_budget(free, going, 1000) == pytest.approx(7)
