"""No iteration lets the host wait for a GPU: the measured loop, on fake tensors of a device.

The loop is the program's own. What lies on the device has shapes and types only, so nothing is
computed; backward() alone is left out, which torch cannot run so.
"""

import contextlib

import pytest
import torch
from msgspec.structs import replace
from PIL import Image
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpml_jobs.core.built_in import GPT, TOKEN_DATA
from hpml_jobs.core.recipe import Recipe
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.training_path import Precision, TrainingPath
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker import epochs, training
from hpml_jobs.worker.data import datasets
from hpml_jobs.worker.data.images import training_transform
from hpml_jobs.worker.instruments.recorder import BareRecorder
from hpml_jobs.worker.instruments.timing import HostClock
from hpml_jobs.worker.models import BUILDERS
from hpml_jobs.worker.process_group import Placement, SingleProcess

from .conftest import SMALL_DIGITS, FakeCifar, cpu_cell

GPU = torch.device("cuda", 0)
DROPPED = Recipe(name="dropped", drop_epochs=(1,))
aten = torch.ops.aten

WAITING = {
    *(
        aten._local_scalar_dense.default,
        aten.nonzero.default,
        aten.masked_select.default,
    ),
    *(aten.equal.default, aten._unique2.default, aten.is_nonzero.default),
}
"""Operations whose result the host needs: a number, or a shape that depends on values."""


def is_on_gpu(value):
    """Whether an argument is a tensor of the GPU, or the GPU itself."""
    return isinstance(value, FakeTensor) or (
        isinstance(value, torch.device) and value == GPU
    )


class FakeGpu(TorchDispatchMode):
    """Runs what lies on the GPU on fake tensors, the rest as it is.

    `waits` are the operations in `noted` for which the host waits: a copy between the two that is
    not from pinned memory in the GPU's queue, and those in `WAITING`.
    """

    def __init__(self):
        super().__init__()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.waits = []
        self.operations = 0
        self._notes = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is aten._pin_memory.default:
            pinned = args[0].clone()
            pinned.lies_in_pinned_memory = True
            return pinned
        if function is aten.is_pinned.default:
            return hasattr(args[0], "lies_in_pinned_memory")
        leaves = tree_leaves((args, kwargs))
        if not any(is_on_gpu(leaf) for leaf in leaves):
            return function(*args, **kwargs)
        if self._notes:
            self.operations += 1
            if function in WAITING or self._copies_and_waits(function, args, kwargs):
                self.waits.append(str(function))
        # in place, as the fused steps, of which torch has no fake
        if not function._schema.returns:
            return None
        with self.fake:
            return function(*args, **kwargs)

    @staticmethod
    def _copies_and_waits(function, args, kwargs):
        if function is aten._to_copy.default:
            source, target, in_queue = (
                args[0],
                kwargs.get("device"),
                kwargs.get("non_blocking"),
            )
        elif function is aten.copy_.default:
            target, source, *rest = args
            target, in_queue = target.device, any(rest) or kwargs.get("non_blocking")
        else:
            return False
        is_pinned = isinstance(source, FakeTensor) or hasattr(
            source, "lies_in_pinned_memory"
        )
        return target not in (None, source.device) and not (in_queue and is_pinned)

    @contextlib.contextmanager
    def noted(self):
        """Note the operations of the loop, then leave the epoch: its end reads the device."""
        self._notes = True
        yield
        self._notes = False
        raise LoopEndedError


class LoopEndedError(Exception):
    """The loop has come to its end."""


@pytest.fixture
def fake_gpu(monkeypatch):
    """A GPU of fake tensors, on a machine without one."""
    available = [
        (
            torch.amp.autocast_mode.torch.cuda.amp.common,
            "amp_definitely_not_available",
            False,
        ),
        (torch.cuda, "_lazy_init", None),
        (torch.cuda, "is_bf16_supported", True),
        (torch.cuda, "get_device_capability", (8, 0)),
        (torch.cuda, "memory_stats", {}),
        (training, "device_uuids", ()),
        (torch.accelerator, "is_available", True),
    ]
    for place, name, value in available:
        monkeypatch.setattr(place, name, lambda *_, value=value, **__: value)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (10**12, 10**12))
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda *_: generator())

    def backward(loss, **_):
        for parameter in backward.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    torch._C._ensureCUDADeviceGuardSet()  # as FakeTensorMode does where there is no GPU
    with FakeGpu() as gpu:
        gpu.backward = backward
        yield gpu


class OnGpu(SingleProcess):
    """One process on a GPU, stamped by the host."""

    def __init__(self, *of_rank):
        super().__init__(*of_rank)
        self._clock = HostClock()


def waits_of(gpu, cell, root):
    """Return the operations in the loop of an epoch that let the host wait."""
    strategy = OnGpu(cell, Placement(0, 0, 1), (GPU,))
    of_cell = training.make_training(cell, strategy, root)
    gpu.backward.model = of_cell.replica
    recorder = BareRecorder(strategy.clock(100))
    with pytest.raises(LoopEndedError):
        epochs._run(
            of_cell, of_cell.batches(0), of_cell.micro_steps(), recorder, gpu.noted()
        )
    assert len(recorder.marks) == len(of_cell.loader) > 1
    assert gpu.operations > 10 * len(recorder.marks)
    return gpu.waits


def cuda_cell(workload, **settings):
    values = {"device": Device.CUDA, "loader_workers": 0, "batch": 32}
    return cpu_cell(workload, **(values | settings))


def with_images(data, model="lenet"):
    classes = 2 if data == "folder" else 10
    values = {"data": data, "model": model, "classes": classes, "parameters": None}
    return replace(SMALL_DIGITS, images=80, limit=80, **values)


def with_tokens(data):
    shape = {"vocab": 256, "context": 8, "width": 16, "layers": 2, "heads": 2}
    return Workload(
        name="tokens", model="gpt", data=data, images=80, limit=80, lr=0.1, **shape
    )


DATA = {
    **{
        name: with_images(name) for name in ("cifar10", "digits", "folder", "synthetic")
    },
    **{name: with_tokens(name) for name in TOKEN_DATA},
}


class CifarItems(FakeCifar):
    """The same with items, as loader workers read them."""

    def __getitem__(self, index):
        return training_transform(32)(Image.fromarray(self.data[index])), self.targets[
            index
        ]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with images and text, and CIFAR-10 in memory."""
    for name in ("train/cat", "train/dog", "test/cat", "test/dog"):
        (tmp_path / name).mkdir(parents=True)
        for number in range(40):
            Image.new("RGB", (32, 32)).save(tmp_path / name / f"{number}.png")
    for name in ("train/some.txt", "test/some.txt"):
        (tmp_path / name).write_text("words " * 500)
    cifar = CifarItems(80)
    monkeypatch.setitem(datasets.SOURCES, "cifar10", lambda *_: (cifar, cifar))
    return tmp_path


def test_a_copy_that_waits_is_noted(fake_gpu):
    pinned, plain = torch.ones(2).pin_memory(), torch.ones(2)
    with pytest.raises(LoopEndedError), fake_gpu.noted():
        pinned.to(GPU, non_blocking=True)
        assert fake_gpu.waits == []
        plain.to(GPU, non_blocking=True)
        assert len(fake_gpu.waits) == 1


@pytest.mark.parametrize("loader", [Loader.WORKERS, Loader.DEVICE])
@pytest.mark.parametrize("data", DATA)
def test_batches_of_every_loader_and_data_set(fake_gpu, root, data, loader):
    assert waits_of(fake_gpu, cuda_cell(DATA[data], loader=loader), root) == []


@pytest.mark.parametrize(
    ("model", "precision", "optimizer"),
    [
        *((model, None, "sgd") for model in (*BUILDERS, GPT)),
        *(("lenet", precision, "sgd") for precision in Precision),
        *((GPT, precision, "adamw") for precision in (Precision.FP16, Precision.BF16)),
    ],
)
def test_models_precisions_and_optimizers(fake_gpu, root, model, precision, optimizer):
    workload = (
        with_tokens("tokens") if model == GPT else with_images("synthetic", model)
    )
    workload = replace(workload, optimizer=optimizer)
    path = TrainingPath(precision=precision)
    cell = cuda_cell(
        workload, loader=Loader.DEVICE, path=path, recipe=DROPPED, epochs=2
    )
    assert waits_of(fake_gpu, cell, root) == []


def test_accumulated_batches(fake_gpu, root):
    path = TrainingPath(precision=Precision.FP16, accumulate=2)
    for loader in Loader:
        cell = cuda_cell(with_images("digits"), loader=loader, path=path)
        assert waits_of(fake_gpu, cell, root) == []
