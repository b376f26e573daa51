"""The facts of data sets and models: one table, which configs and the worker agree with."""

from pathlib import Path

import pytest
import yaml

from hpml_jobs.core.workload import DATASETS, RESNET18_PARAMETERS
from hpml_jobs.worker.data.datasets import SOURCES

CONF = Path(__file__).parents[3] / "conf" / "workload"


def test_worker_opens_every_data_set_and_downloads_those_with_files():
    assert set(SOURCES) == set(DATASETS)
    with_download = {name for name, source in SOURCES.items() if source.fetch}
    assert with_download == {name for name, dataset in DATASETS.items() if dataset.downloaded}


def test_workload_configs_name_known_data_sets():
    configs = [yaml.safe_load(file.read_text()) for file in CONF.glob("*.yaml")]
    data = {config.get("data", "???") for config in configs} - {"???"}  # ???: to be given
    assert {name for name in data if ":" not in name} <= set(DATASETS)


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
