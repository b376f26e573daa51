"""loader= and loader_workers=: what is chosen, refused, and said before submission."""

import pytest

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.submit.explain import preview_of
from hpml_jobs.submit.selection import select
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


COMPARED = ("gpus=1", "batch=128", "loader_workers=2,null")


def test_lab_has_two_workers_which_a_sweep_compares_with_the_gpus_own(fast_cards):
    lab, older = (
        plan_of("grid=lab", "gpu_type=h100", *words) for words in ((), ("strategy=dp",))
    )
    typed = plan_of(
        "gpus=1,2,4", "batch=32,128,512", "loader_workers=2", "gpu_type=h100"
    )
    assert {cell.slug for cell in lab.cells} == {cell.slug for cell in typed.cells}
    assert workers(lab) == workers(older) == {2}
    assert {cell.cell.strategy for cell in older.cells} == {
        Strategy.SINGLE,
        Strategy.DP,
    }
    assert workers(plan_of(*COMPARED, "gpu_type=h100")) == {2, 8}
    notes = []
    assert workers(plan_of(*COMPARED, "device=cpu", notify=notes.append)) == {2}
    assert any(
        "loader_workers=null is 2 here, so there is nothing to compare" in n
        for n in notes
    )


def test_iterations_cut_an_epoch_and_equal_global_batches_share_it():
    plan = plan_of("gpus=1,2", "global_batch=256", "iterations=40", "workload=digits")
    assert [planned.cell.workload.images for planned in plan.cells] == [
        40 * 256,
        40 * 256,
    ]
    assert all("40iterations" in planned.slug for planned in plan.cells)
    shown = {
        row.key: (row.value, row.origin) for row in preview_of(select(plan)).values
    }
    assert shown["iterations"] == ("40", "command line")


def test_fast_gpu_gets_more_workers_and_says_so(fast_cards):
    notes = []
    plan = plan_of("gpus=1,4", "gpu_type=h100", notify=notes.append)
    assert workers(plan) == {8}
    assert plan.cells[1].shape.cpus_per_node == 4 * (8 + 1 + 1)
    assert (
        "loader_workers=8: the default for h100 (change it: loader_workers=)" in notes
    )
    assert workers(plan_of("gpu_type=h100", "loader_workers=3")) == {3}


def test_workers_are_no_more_than_cpus(fast_cards):
    notes = []
    fast_cards(24)
    assert workers(plan_of("gpus=4", "gpu_type=h100", notify=notes.append)) == {4}
    assert any(
        "loader_workers=4: there are 6 CPUs for each h100" in note for note in notes
    )


def test_study_with_old_default_keeps_it(fast_cards):
    old = plan_with_folder("gpus=1", "gpu_type=h100", "loader_workers=2", "study=mine")
    send_cells(old)
    notes = []
    plan = plan_of("gpus=1,2", "gpu_type=h100", "study=mine", notify=notes.append)
    assert workers(plan) == {2}
    assert plan.cells[0].slug == old.cells[0].slug
    assert any(
        note.startswith("loader_workers=2, as other cells of mine have")
        for note in notes
    )
    assert workers(plan_of("gpus=2", "gpu_type=h100", "study=other")) == {8}


def test_loader_device_has_no_workers_and_its_own_name(slurm):
    plan = plan_of("loader=workers,device", "loader_workers=4")
    by_workers, on_device = (planned.cell for planned in plan.cells)
    assert (by_workers.loader_workers, on_device.loader_workers) == (4, 0)
    assert "-loader_device-" in on_device.slug
    assert "loader" not in by_workers.slug
    assert plan.cells[1].shape.cpus_per_node == 2
    values = {row.key: row.value for row in preview_of(select(plan)).values}
    assert values["loader"] == "workers, device"
