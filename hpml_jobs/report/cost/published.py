"""Published figures of training speed, all-reduce and scaling, and the nearest one to a result.

Each figure has the source that states it; `derived` ones were computed from what it states.
"""

from enum import StrEnum
from typing import NamedTuple

from hpml_jobs.core.built_in import GPT, RESNET18_PARAMETERS

SAME_MODEL = 0.003
"""Models whose parameters differ by this share at most count as the same (padded vocabularies)."""


class Kind(StrEnum):
    """A kind of workload; figures of another kind are never near."""

    IMAGES = "image classification on 32 x 32 images"
    LANGUAGE = "language model"


class Published(NamedTuple):
    """The training speed of one published run, per GPU.

    `gpu` is a key of `gpu_peaks.PEAKS`; `gpus` is None where their number is not stated. `share` is
    the share of the peak at `precision` (MFU), None where it is not stated.
    """

    kind: Kind
    model: str
    parameters: int
    gpu: str
    gpus: int | None
    precision: str
    figure: float
    unit: str
    share: float | None
    source: str
    derived: bool = False


TRAINING = (
    Published(
        Kind.IMAGES,
        "ResNet-18 on CIFAR-10",
        RESNET18_PARAMETERS,
        "a100",
        1,
        "half precision",
        23_100,
        "images/s",
        0.25,
        "KellerJordan/cifar10-airbench",
        derived=True,
    ),
    Published(
        Kind.LANGUAGE,
        "GPT-2 124M (llm.c)",
        124_439_808,
        "h100",
        8,
        "bf16",
        468_000,
        "tokens/s",
        0.41,
        "KellerJordan/modded-nanogpt README",
        derived=True,
    ),
    Published(
        Kind.LANGUAGE,
        "GPT-2 124M (nanoGPT, compiled)",
        124_439_808,
        "a100",
        1,
        "bf16",
        0.135,
        "s per iteration",
        None,
        "karpathy/nanoGPT README",
    ),
    Published(
        Kind.LANGUAGE,
        "MPT-125M",
        125_000_000,
        "a100",
        None,
        "bf16",
        142_830,
        "tokens/s",
        0.448,
        "mosaicml/llm-foundry scripts/train/benchmarking",
    ),
    Published(
        Kind.LANGUAGE,
        "Llama-3.1-8B (FSDP2, compiled)",
        8_030_261_248,
        "h100",
        8,
        "bf16",
        6_667,
        "tokens/s",
        None,
        "pytorch/torchtitan benchmarks",
    ),
)


class BusBandwidth(NamedTuple):
    """NCCL's all-reduce bus bandwidth of large messages in GB/s, between GPUs of these nodes."""

    gpu: str
    gpus: int
    nodes: int
    gb_per_s: float
    how: str
    source: str


_NETWORK = "stas00/ml-engineering network"

ALL_REDUCE = (
    BusBandwidth("h200", 8, 1, 482.0, "NVLS", _NETWORK),
    BusBandwidth("h200", 8, 1, 368.0, "ring", _NETWORK),
    BusBandwidth("h200", 4, 1, 363.0, "4 of 8 GPUs", _NETWORK),
    BusBandwidth("a100", 8, 1, 235.0, "NVLink", _NETWORK),
    BusBandwidth("b200", 8, 1, 846.0, "NVLink", "NVIDIA/nccl-tests issues"),
    BusBandwidth("b200", 32, 4, 382.0, "4 nodes", "NVIDIA/nccl-tests issues"),
    BusBandwidth("h100pcie", 2, 1, 55.0, "PCIe 5 x16", _NETWORK),
)


class DdpEfficiency(NamedTuple):
    """The efficiency of PyTorch's DDP against training without it, the least and the most."""

    gpu: str
    gpus: int
    batch: int
    least: float
    most: float
    source: str


DDP = DdpEfficiency("V100", 16, 32, 0.91, 0.93, "pytorch/pytorch benchmarks/distributed/ddp")


class Nearest(NamedTuple):
    """The published run nearest to a result, and in what the two are the same."""

    published: Published
    same_model: bool
    same_gpu: bool


def nearest(kind: Kind | None, parameters: int | None, gpu: str) -> Nearest | None:
    """Return the nearest published run: of the same model, then on the same GPU.

    Without one of the same model, one of the same kind on any GPU. None if nothing is near.
    """
    candidates = [
        Nearest(figure, _is_model(figure, parameters), figure.gpu == gpu)
        for figure in TRAINING
        if figure.kind is kind or _is_model(figure, parameters)
    ]
    return max(
        candidates,
        key=lambda near: (near.same_model, near.same_gpu, near.published.share is not None),
        default=None,
    )


def _is_model(figure: Published, parameters: int | None) -> bool:
    return parameters is not None and abs(parameters / figure.parameters - 1) <= SAME_MODEL


def nearest_all_reduce(gpu: str, gpus: int, nodes: int) -> tuple[BusBandwidth, ...]:
    """Return the published bus bandwidths of the same GPU and nodes, the nearest number of GPUs."""
    same = [figure for figure in ALL_REDUCE if figure.gpu == gpu and _alike(figure.nodes, nodes)]
    apart = min((abs(figure.gpus - gpus) for figure in same), default=None)
    return tuple(figure for figure in same if abs(figure.gpus - gpus) == apart)


def _alike(nodes: int, others: int) -> bool:
    """Return whether both are one node, or both several."""
    return (nodes > 1) == (others > 1)


KINDS = {
    **dict.fromkeys(("resnet18_cifar", "resnet18", "vgg11_bn"), Kind.IMAGES),
    GPT: Kind.LANGUAGE,
}
"""The built-in models that are worth a comparison."""


def kind_of(model: str) -> Kind | None:
    """Return the kind of a built-in model; None of other models."""
    return KINDS.get(model)
