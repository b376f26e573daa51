"""The facts of data sets and models: one table, which configs and the worker agree with."""

from pathlib import Path

import msgspec
import pytest

from hpml_jobs.core.built_in import DATASETS
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.results.conditions import requested_conditions
from hpml_jobs.worker.data.datasets import SOURCES

CONF = Path(__file__).parents[3] / "conf" / "workload"


def test_worker_opens_every_data_set_and_downloads_one():
    assert set(SOURCES) == {*DATASETS}
    assert [name for name, dataset in DATASETS.items() if dataset.downloaded] == [
        "cifar10"
    ]


@pytest.mark.parametrize("name", list(DATASETS))
def test_downloaded_data_set_is_missing_until_every_file_is_there(name, tmp_path):
    dataset = DATASETS[name]
    for file in dataset.downloaded:
        assert dataset.is_missing(tmp_path)
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert not dataset.is_missing(tmp_path)


def own(**changes):
    values = {
        "name": "gpt",
        "model": "mygpt:build",
        "data": "mygpt:dataset",
        "images": 100,
    }
    return Workload(**(values | changes))


def cell_of(workload):
    return Cell(gpus=2, batch=8, strategy=Strategy.DDP, workload=workload)


def test_order_of_args_does_not_make_another_cell():
    first = own(args={"width": 256, "layers": 4, "dropout": 0.1, "tied": True})
    second = own(args={"tied": True, "dropout": 0.1, "layers": 4, "width": 256})
    assert first == second
    assert hash(first) == hash(second)
    assert cell_of(first).digest == cell_of(second).digest
    assert msgspec.json.decode(msgspec.json.encode(first), type=Workload) == first
    assert first.args_text == "dropout 0.1, layers 4, tied true, width 256"


def test_args_of_other_types_are_other_workloads():
    """Python's 1, 1.0 and True are equal; a sweep over them has a cell for each."""
    workloads = [own(args={"width": value}) for value in (1, 1.0, True)]
    assert (
        len({*workloads})
        == len({cell_of(workload).digest for workload in workloads})
        == 3
    )
    assert workloads[0] == own(args={"width": 1})


def test_args_optimizer_and_schedule_make_another_cell():
    changes = (
        *({}, {"args": {"width": 1}}, {"args": {"width": 2}}, {"optimizer": "adamw"}),
        *({"optimizer": "mygpt:lion"}, {"schedule": "mygpt:decay"}),
    )
    cells = [cell_of(own(**each)) for each in changes]
    assert len({cell.digest for cell in cells}) == len(cells)
    assert len({requested_conditions(cell) for cell in cells}) == len(cells)
    assert [
        cell.slug.rpartition("-")[0].removeprefix("ddp-2gpu-b8-gpt") for cell in cells
    ] == [*("", "-width1", "-width2", "-adamw", "-lion", "-decay")]


def test_defaults_of_new_keys_keep_the_hash_of_released_cells():
    """The hash of a cell of version 0.7.0."""
    assert cell_of(own()).digest.startswith(DIGEST_OF_070)


DIGEST_OF_070 = "1bb46a8d6892"
