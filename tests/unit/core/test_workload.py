"""The facts of data sets and models: one table, which configs and the worker agree with."""

from pathlib import Path

import msgspec
import pytest
import yaml

from hpml_jobs.core.built_in import DATASETS, RESNET18_PARAMETERS, SCRIPT
from hpml_jobs.core.cell import Cell
from hpml_jobs.core.conditions import requested_conditions
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.core.workload import Workload, refuse_file
from hpml_jobs.worker.data.datasets import SOURCES

CONF = Path(__file__).parents[3] / "conf" / "workload"


def test_worker_opens_every_data_set_and_downloads_one():
    assert set(SOURCES) == {*DATASETS}
    assert [name for name, dataset in DATASETS.items() if dataset.downloaded] == [
        "cifar10"
    ]


def test_workload_configs_name_known_data_sets():
    configs = [yaml.safe_load(file.read_text()) for file in CONF.glob("*.yaml")]
    # ???: to be given
    data = {config.get("data", "???") for config in configs} - {"???"}
    assert {name for name in data if ":" not in name} <= {*DATASETS, SCRIPT}


def test_lab_model_has_the_parameters_of_its_config():
    config = yaml.safe_load((CONF / "resnet18_cifar10.yaml").read_text())
    assert config["parameters"] == RESNET18_PARAMETERS


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


def test_files_of_own_optimizer_and_schedule_are_part_of_the_code():
    workload = Workload(
        name="digits",
        model="lenet",
        data="digits",
        optimizer="opt:lion",
        schedule="rates:decay",
    )
    assert workload.own_code == ("opt:lion", "rates:decay")


def test_defaults_of_new_keys_keep_the_hash_of_released_cells():
    """The hash of a cell of version 0.7.0."""
    assert cell_of(own()).digest.startswith(DIGEST_OF_070)


DIGEST_OF_070 = "1bb46a8d6892"


def test_padded_vocabulary_is_another_cell():
    gpt = Workload(name="gpt", model="gpt", data="tokens", images=64, vocab=50_257)
    padded = msgspec.structs.replace(gpt, padded_vocab=50_304)
    assert cell_of(gpt).digest != cell_of(padded).digest
    with pytest.raises(
        UsageError, match=r"padded_vocab=100: must be workload.vocab=50257 or more"
    ):
        msgspec.structs.replace(gpt, padded_vocab=100)


def test_slug_has_short_args():
    args = {f"a_rather_long_name_{letter}": 0.0001 for letter in "abcdefgh"}
    slug = cell_of(own(args=args)).slug
    assert len(slug) < 200
    assert "-a_rather_long_name_a-" in slug


@pytest.mark.parametrize(
    ("reference", "advice"),
    [
        ("./parts.py:build", "workload.model=parts:build"),
        ("./parts:net", "workload.model=parts:net"),
        ("sub/parts.py", "workload.model=sub.parts:build"),
        ("{here}/parts.py:build", "workload.model=parts:build"),
        (
            "/own/parts.py:build",
            "workload.model=parts:build, and run the command in /own",
        ),
    ],
)
def test_file_in_place_of_a_module_is_refused(tmp_path, monkeypatch, reference, advice):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        refuse_file("workload.model", reference.format(here=tmp_path))
    assert str(refused.value).endswith(f": name the module, not its file: {advice}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"args": {"context": 4}, "context": 8},
            "workload.args.context: use workload.context= instead",
        ),
        ({"args": {"a-b": 4}}, "workload.args.a-b: 'a-b' is no name of a parameter"),
        (
            {"args": {"width": 4}, "model": "lenet", "data": "digits"},
            "workload.args.width: only your own functions take args, and workload=gpt has none",
        ),
    ],
)
def test_args_and_schedules_that_nothing_takes_are_refused(changes, words):
    with pytest.raises(UsageError, match=rf"^{words}[^\n]*$"):
        own(**changes)
