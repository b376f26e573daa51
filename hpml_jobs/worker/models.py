"""The networks, the loss, and a model's parameter count and floating-point operations."""

import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hpml_jobs.core.built_in import GPT
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.record import Model
from hpml_jobs.core.workload import Workload
from hpml_jobs.worker import gpt
from hpml_jobs.worker.data import datasets, user_code

Loss = Callable[[Tensor, Tensor], Tensor]
"""Outputs and targets to the mean over the batch, a scalar."""


def _convolution(inputs: int, outputs: int, stride: int = 1) -> tuple[nn.Module, ...]:
    """Return a 3x3 convolution without bias, BatchNorm and ReLU."""
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)


class _Block(nn.Module):
    """ResNet's basic block (He et al. 2016): two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *_convolution(inputs, outputs, stride),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        """Map features (n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        return torch.relu(self.path(images) + self.shortcut(images))


def resnet18_cifar(classes: int) -> nn.Module:
    """Return ResNet-18 with a 3x3 stem and no max pooling: 11,173,962 parameters, 10 classes."""
    widths = [64, 64, 128, 256, 512]
    layers: list[nn.Module] = [*_convolution(3, 64)]
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        stride = 2 if number else 1
        layers += [_Block(inputs, outputs, stride), _Block(outputs, outputs, 1)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)]
    return nn.Sequential(*layers)


def resnet18(classes: int) -> nn.Module:
    """Return torchvision's ResNet-18 (7x7 stem): 11,181,642 parameters with 10 classes."""
    from torchvision.models import resnet18 as build  # noqa: PLC0415 -- a second to import

    model: nn.Module = build(num_classes=classes)
    return model


def vgg11_bn(classes: int) -> nn.Module:
    """Return VGG-11 with BatchNorm and one linear layer: 9,231,114 parameters with 10 classes."""
    layers: list[nn.Module] = []
    inputs = 3
    for outputs, pool in (
        (64, True),
        (128, True),
        (256, False),
        (256, True),
        (512, False),
        (512, True),
        (512, False),
        (512, True),
    ):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU(inplace=True), *([nn.MaxPool2d(2)] if pool else [])]
        inputs = outputs
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)
    )


def digits_cnn(classes: int) -> nn.Module:
    """Return three 3x3 convolutions, 16 (stride 2), 32, 64: 26,154 parameters with 10 classes.

    Every layer is followed by BatchNorm without parameters and with a high momentum, because the
    network must learn, and its running means must follow, in two epochs of ten iterations.
    """

    def layer(inputs: int, outputs: int, stride: int = 1) -> tuple[nn.Module, ...]:
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        return (
            convolution,
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(outputs, momentum=0.3, affine=False),
        )

    return nn.Sequential(
        *layer(3, 16, stride=2),
        *layer(16, 32),
        nn.MaxPool2d(2),
        *layer(32, 64),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 2 * 2, classes),
    )


def lenet(classes: int) -> nn.Module:
    """Return the lab's LeNet for 3x32x32 images, without biases: 61,770 parameters, 10 classes."""
    return _lenet(classes, bias=False)


def lenet_bias(classes: int) -> nn.Module:
    """Return the same with a bias in the last layer: 61,780 parameters with 10 classes."""
    return _lenet(classes, bias=True)


def _lenet(classes: int, *, bias: bool) -> nn.Module:
    layers: list[tuple[str, nn.Module]] = [
        ("conv1", nn.Conv2d(3, 6, 5, bias=False)),
        ("relu1", nn.ReLU()),
        ("pool1", nn.MaxPool2d(2)),
        ("conv2", nn.Conv2d(6, 16, 5, bias=False)),
        ("relu2", nn.ReLU()),
        ("pool2", nn.MaxPool2d(2)),
        ("flatten", nn.Flatten()),
        ("fc1", nn.Linear(16 * 5 * 5, 120, bias=False)),
        ("relu3", nn.ReLU()),
        ("fc2", nn.Linear(120, 84, bias=False)),
        ("relu4", nn.ReLU()),
        ("fc3", nn.Linear(84, classes, bias=bias)),
    ]
    return nn.Sequential(OrderedDict(layers))


BUILDERS: dict[str, Callable[[int], nn.Module]] = {
    "resnet18_cifar": resnet18_cifar,
    "resnet18": resnet18,
    "vgg11_bn": vgg11_bn,
    "digits_cnn": digits_cnn,
    "lenet": lenet,
    "lenet_bias": lenet_bias,
}


def build(workload: Workload) -> nn.Module:
    """Build the workload's model on the CPU and check its number of parameters.

    Raises:
        HpmlError: user code that returns no model, or another parameter count.
    """
    if ":" in workload.model:
        model = _user_model(workload)
    elif workload.model == GPT:
        model = gpt.build(workload)
    else:
        model = BUILDERS[workload.model](workload.classes)
    parameters = count_parameters(model)
    if workload.parameters is not None and parameters != workload.parameters:
        raise HpmlError(
            f"workload.model={workload.model} has {parameters:,} parameters, but "
            f"workload.parameters is {workload.parameters:,}: correct one of them"
        )
    return model


def _user_model(workload: Workload) -> nn.Module:
    builder = user_code.load("workload.model", workload.model)
    model = user_code.call(builder, **workload.sizes, **workload.args)
    if not isinstance(model, nn.Module):
        raise HpmlError(
            f"workload.model={workload.model} returned {type(model).__name__}: return a "
            "torch.nn.Module"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise HpmlError(f"workload.model={workload.model} has no parameter to train")
    return model


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters (elements)."""
    return sum(
        parameter.numel() for parameter in model.parameters() if parameter.requires_grad
    )


def describe(name: str, model: nn.Module, flop: int | None = None) -> Model:
    """Return parameters (elements), tensors and bytes of what was really trained."""
    trainable = [
        parameter for parameter in model.parameters() if parameter.requires_grad
    ]
    return Model(
        name=name,
        parameters=count_parameters(model),
        tensors=len(trainable),
        gradient_bytes=sum(
            tensor.numel() * tensor.element_size() for tensor in trainable
        ),
        buffer_bytes=sum(
            tensor.numel() * tensor.element_size() for tensor in model.buffers()
        ),
        flop_per_sample=flop,
    )


def build_loss(workload: Workload) -> Loss:
    """Return the workload's loss.

    Raises:
        HpmlError: user code that cannot be imported.
    """
    if ":" in workload.loss:
        function = user_code.load("workload.loss", workload.loss)
        args = user_code.accepted(function, 2, workload.args)
        return partial(function, **args) if args else function
    return token_cross_entropy if workload.has_tokens else nn.functional.cross_entropy


def token_cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over all positions, from scores (n, positions, vocab)."""
    return nn.functional.cross_entropy(scores.flatten(0, -2), targets.flatten())


PLACES = (("meta", "meta"), ("cpu", "meta"), ("cpu", "cpu"))
"""Where the model is built and runs for the count: first without memory and computation, which also
sees the matrix products of attention that fused CPU kernels hide; last on the CPU, for code that
needs values."""


class FlopCount(NamedTuple):
    """FLOP of one sample's forward and backward; None with the reason in `missing`."""

    per_sample: int | None
    missing: tuple[str, ...] = ()


def count_flop(workload: Workload, loss: Loss, batch: Callable[[], Any]) -> FlopCount:
    """Count the FLOP of one sample's forward and backward pass, 2 per multiply-add.

    torch counts convolutions and matrix products of a new model with a small batch; the trained
    replica and the random state of this process stay as they are. What the model itself
    computes again in backward (activation checkpointing) torch counts too.
    """
    reason = ""
    with datasets.preserved_random_state():
        for built, place in PLACES:
            try:
                flop = _count(
                    workload, loss, batch(), torch.device(built), torch.device(place)
                )
            except Exception as error:  # no count is worth a failed run
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
            else:
                if flop:
                    return FlopCount(flop)
                reason = "torch counted no convolution and no matrix product"
    return FlopCount(None, (f"flop_per_sample: {reason}",))


def _count(
    workload: Workload, loss: Loss, batch: Any, built: torch.device, place: torch.device
) -> int:
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415 -- not fast

    with built:
        model = build(workload).to(place).train()
    inputs, targets = (part.to(place) for part in batch)
    with (
        place,  # tensors that the model makes in forward
        # torch warns of the counter's own hooks
        warnings.catch_warnings(action="ignore"),
        torch.compiler.set_stance("force_eager"),  # compiled operations are not counted
        FlopCounterMode(display=False) as counter,
    ):
        loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    return int(counter.get_total_flops()) // len(targets)
