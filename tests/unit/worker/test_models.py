"""The networks and the loss: parameters, outputs, and errors."""

import sys

import pytest
import torch
from torch import nn

from hpml_jobs.core.built_in import MODELS
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.worker import models

from .conftest import SMALL_DIGITS, change_workload


@pytest.mark.parametrize(
    ("name", "classes", "parameters"),
    [
        ("resnet18_cifar", 10, 11_173_962),
        ("resnet18", 1000, 11_689_512),
        ("vgg11_bn", 10, 9_231_114),
        ("digits_cnn", 10, 26_154),
        ("lenet", 10, 61_770),
    ],
)
def test_model_has_expected_parameters_and_output(name, classes, parameters):
    model = models.BUILDERS[name](classes)
    assert models.count_parameters(model) == parameters
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, classes)


@pytest.mark.parametrize("name", list(models.BUILDERS))
def test_parameters_of_any_classes_are_known_without_torch(name):
    classes = 3
    with torch.device("meta"):
        model = models.BUILDERS[name](classes)
    assert MODELS[name].parameters(classes) == models.count_parameters(model)
    least = int(MODELS[name].image_sizes[0])
    assert model(torch.zeros(2, 3, least, least, device="meta")).shape == (2, classes)


def test_cifar_resnet_gradient_bytes_under_ddp():
    description = models.describe("resnet18_cifar", models.resnet18_cifar(10))
    assert description.gradient_bytes == 44_695_848
    assert description.buffer_bytes == 38_560
    assert description.tensors == 62


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


def test_user_model_receives_classes_if_it_accepts_them(own_module):
    own_module(
        "own_models",
        "from torch import nn\n"
        "def plain(): return nn.Linear(3, 7)\n"
        "def sized(classes): return nn.Linear(3, classes)\n"
        "def text(): return 'model'\n"
        "def empty(): return nn.Flatten()\n",
    )
    workload = change_workload(SMALL_DIGITS, parameters=None, classes=5)
    plain = models.build(change_workload(workload, model="own_models:plain"))
    assert isinstance(plain, nn.Linear)
    assert plain.out_features == 7
    sized = models.build(change_workload(workload, model="own_models:sized"))
    assert isinstance(sized, nn.Linear)
    assert sized.out_features == 5
    with pytest.raises(HpmlError, match=r"returned str: return a torch\.nn\.Module"):
        models.build(change_workload(workload, model="own_models:text"))
    with pytest.raises(HpmlError, match="no parameter to train"):
        models.build(change_workload(workload, model="own_models:empty"))


def test_user_code_import_error_is_named(own_module):
    own_module("own_broken", "import no_such_package\n")
    with pytest.raises(
        HpmlError, match=r"workload.model=own_broken:build: .*no_such_package"
    ):
        models.build(change_workload(SMALL_DIGITS, model="own_broken:build"))
