"""The FLOP of a sample: counted as by hand, without a trace on model or random state."""

import random

import numpy as np
import pytest
import torch

from hpml_jobs.worker import models
from hpml_jobs.worker.models import count_flop
from tests.unit.builders import RESNET

from .conftest import SMALL_DIGITS, change_workload


def images(size=32):
    return lambda: (torch.zeros(2, 3, size, size), torch.tensor([1, 2]))


def count(workload, batch=None):
    return count_flop(workload, models.build_loss(workload), batch or images())


def convolutions(layers):
    """FLOP of training one sample: 2 per multiply-add; the first layer needs no input gradient.

    `layers` are (products of one output pixel, outputs with their pixels), the first one first.
    """
    forward = [2 * products * outputs for products, outputs in layers]
    return 3 * sum(forward) - forward[0]


def test_digits_cnn_count_equals_the_hand_count():
    layers = [(27, 16 * 256), (16 * 9, 32 * 256), (32 * 9, 64 * 64), (256, 10)]
    assert count(SMALL_DIGITS).per_sample == convolutions(layers)


def test_cifar_resnet_count_equals_the_hand_count():
    layers = [(27, 64 * 1024), *[(64 * 9, 64 * 1024)] * 4]
    for inputs, outputs, pixels in ((64, 128, 256), (128, 256, 64), (256, 512, 16)):
        layers += [
            (inputs * 9, outputs * pixels),
            *[(outputs * 9, outputs * pixels)] * 3,
        ]
        layers += [(inputs, outputs * pixels)]  # the shortcut
    layers += [(512, 10)]
    assert count(RESNET).per_sample == convolutions(layers) == 3_328_997_376


def test_count_leaves_random_state_and_global_modules_alone():
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)

    def batch():
        random.random(), np.random.rand()
        return torch.rand(2, 3, 32, 32), torch.randint(10, (2,))

    assert count(SMALL_DIGITS, batch).missing == ()
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected


OWN = """
import torch
from torch import nn
import torch.nn.functional as F

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(64, 192)
    def forward(self, x):
        q, k, v = self.mix(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None]).mean((1, 2))

class Looks(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 10)
    def forward(self, x):
        return self.head(x.mean(1)) * (2 if x.sum().item() > 0 else 1)

class Makes(nn.Module):
    def __init__(self):
        super().__init__()
        self.places, self.head = nn.Embedding(16, 64), nn.Linear(64, 10)
    def forward(self, x):
        return self.head((x + self.places(torch.arange(16))).mean(1))

class Fails(Looks):
    def forward(self, x):
        raise ValueError("needs a GPU\\nof some kind")

class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))
    def forward(self, x):
        return (x * self.weight).mean(1)

def attention(): return Attention()
def looks(): return Looks()
def fails(): return Fails()
def scale(): return Scale()
def makes(): return Makes()
def loaded():
    model = Makes()
    model.head.bias.data.copy_(torch.tensor(model.head.bias.detach().numpy()))
    return model
def compiled(): return torch.compile(nn.Sequential(nn.Flatten(), nn.Linear(16 * 64, 10)))
"""


@pytest.fixture
def own_model(tmp_path, monkeypatch):
    (tmp_path / "flop_models.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name: change_workload(
        SMALL_DIGITS, name="own", model=f"flop_models:{name}", parameters=None
    )


def sequences():
    return torch.ones(2, 16, 64), torch.tensor([1, 2])


def test_attention_is_counted_in_full(own_model):
    linear = 2 * 16 * 64 * 192  # forward; the input needs no gradient
    products = 2 * 2 * 16 * 16 * 64  # queries x keys, and weights x values
    flop = count(own_model("attention"), sequences)
    assert flop.per_sample == 2 * linear + 3 * products


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("looks", 2),  # needs values in forward: on the CPU
        ("makes", 3),  # makes a tensor in forward
        ("loaded", 3),  # needs values where it is built
    ],
)
def test_models_of_any_kind_are_counted(own_model, name, passes):
    assert count(own_model(name), sequences).per_sample == passes * 2 * 64 * 10


def test_compiled_model_is_counted_without_compiling(own_model):
    assert count(own_model("compiled"), sequences).per_sample == 2 * 2 * 16 * 64 * 10


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fails", "flop_per_sample: ValueError: needs a GPU"),
        (
            "scale",
            "flop_per_sample: torch counted no convolution and no matrix product",
        ),
    ],
)
def test_uncountable_model_is_none_with_the_reason(own_model, name, reason):
    flop = count(own_model(name), sequences)
    assert (flop.per_sample, flop.missing) == (None, (reason,))
