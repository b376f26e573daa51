"""loader= and loader_workers=: what is chosen, refused, and said before submission."""

import msgspec
import pytest

from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Loader
from hpml_jobs.plan import loader, machine
from hpml_jobs.plan.loader import IMAGES_PER_WORKER_S, feed_of
from hpml_jobs.plan.resolve import make_plan
from hpml_jobs.plan.sweep import expand
from hpml_jobs.submit.explain import preview_of
from hpml_jobs.submit.selection import select
from tests.unit.builders import a_cell
from tests.unit.plans import plan_of, plan_with_folder, send_cells

H100 = "gh001|gpu:h100:4|{cpus}|380000|main\n"


def workers(plan):
    return {planned.cell.loader_workers for planned in plan.cells}


@pytest.fixture
def fast_cards(slurm):
    """A cluster with nodes of 4 H100, which a test gives CPUs."""

    def nodes_of(cpus):
        slurm.set_output("sinfo", H100.format(cpus=cpus))

    nodes_of(96)
    return nodes_of


def test_slow_gpus_and_cpus_keep_two_workers(slurm):
    notes = []
    for words in ([], ["gpu_type=v100"], ["device=cpu"]):
        assert workers(plan_of("gpus=1,4", *words, notify=notes.append)) == {2}
    assert not any("loader_workers" in note for note in notes)


def test_fast_gpu_gets_more_workers_and_says_so(fast_cards):
    notes = []
    plan = plan_of("gpus=1,4", "gpu_type=h100", notify=notes.append)
    assert workers(plan) == {8}
    assert plan.cells[1].shape.cpus_per_node == 4 * (8 + 1 + 1)
    assert "loader_workers=8: the default for h100 (change it: loader_workers=)" in notes
    assert workers(plan_of("gpu_type=h100", "loader_workers=3")) == {3}


def test_workers_are_no_more_than_cpus(fast_cards):
    notes = []
    fast_cards(24)
    assert workers(plan_of("gpus=4", "gpu_type=h100", notify=notes.append)) == {4}
    assert any("loader_workers=4: there are 6 CPUs for each h100" in note for note in notes)


def test_study_with_old_default_keeps_it(fast_cards):
    old = plan_with_folder("gpus=1", "gpu_type=h100", "loader_workers=2", "study=mine")
    send_cells(old)
    notes = []
    plan = plan_of("gpus=1,2", "gpu_type=h100", "study=mine", notify=notes.append)
    assert workers(plan) == {2}
    assert plan.cells[0].slug == old.cells[0].slug
    assert any(note.startswith("loader_workers=2, as other cells of mine have") for note in notes)
    assert workers(plan_of("gpus=2", "gpu_type=h100", "study=other")) == {8}


def test_local_gpu_chooses_by_its_name_and_cpus(laptop, monkeypatch):
    monkeypatch.setattr(machine, "local_gpus", lambda: ("NVIDIA H200",))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(16))
    assert workers(plan_of("workload=synthetic", "workload.images=64", "batch=8")) == {8}


def test_loader_device_has_no_workers_and_its_own_name(slurm):
    plan = plan_of("loader=workers,device", "loader_workers=4")
    by_workers, on_device = (planned.cell for planned in plan.cells)
    assert (by_workers.loader_workers, on_device.loader_workers) == (4, 0)
    assert "-loader_device-" in on_device.slug
    assert "loader" not in by_workers.slug
    assert plan.cells[1].shape.cpus_per_node == 2
    values = {row.key: row.value for row in preview_of(select(plan)).values}
    assert values["loader"] == "workers, device"


def test_loader_device_alone_refuses_loader_workers(slurm):
    with pytest.raises(UsageError, match="loader_workers=4 with loader=device: the device makes"):
        plan_of("loader=device", "loader_workers=4")
    with pytest.raises(UsageError, match="loader"):
        plan_of("loader=gpu")


def feed_line(*words):
    notes = []
    sweep = expand(["workload=resnet18_cifar10", *words], multirun=True)
    make_plan(sweep, fetch=False, notify=notes.append)
    return next((note for note in notes if "loader worker" in note), None)


def test_plan_says_whether_the_loader_keeps_up(fast_cards):
    slow = feed_line("gpu_type=h100", "loader_workers=1")
    assert slow.startswith(
        "1 loader worker feeds about 3,000 images/s, 1 x h100 takes about 20,000"
    )
    assert slow.endswith("the loader is the limit; use loader=device, or about loader_workers=8")
    assert feed_line("gpu_type=h100").endswith("the loader keeps up")
    assert "4 x h100 take about 90,000" in feed_line("gpus=1,4", "strategy=dp", "gpu_type=h100")
    assert feed_line("gpu_type=h100", "loader=device") is None
    assert "takes about 60,000 in bf16" in feed_line("gpu_type=h100", "precision=bf16")


def test_feed_of_unknown_card_model_or_data_is_none():
    workload = msgspec.structs.replace(
        a_cell().workload, data="cifar10", parameters=11_173_962, image_size=32
    )
    cell = a_cell(workload=workload, loader=Loader.WORKERS)
    assert feed_of(cell, "h200").made == 2 * IMAGES_PER_WORKER_S["cifar10"]
    assert feed_of(cell, "geforce256") is None
    for change in ({"parameters": 5}, {"data": "own:data"}, {"image_size": 64}):
        other = msgspec.structs.replace(workload, **change)
        assert feed_of(msgspec.structs.replace(cell, workload=other), "h200") is None


def test_feed_of_a_folder_is_of_small_files(fast_cards, tmp_path):
    images = [tmp_path / "train" / str(number) / "1.png" for number in range(10)]
    words = ("workload.data=folder", f"data.root={tmp_path}", "batch=1", "gpu_type=h100")
    for size, line in ((1_000, "8 loader workers feed about 10,000 images/s"), (90_000, None)):
        for image in images:
            image.parent.mkdir(parents=True, exist_ok=True)
            image.write_bytes(b"GIF8" + bytes(size))
        loader._are_small.cache_clear()
        said = feed_line(*words)
        assert said is None if line is None else said.startswith(line)
