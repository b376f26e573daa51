"""Published figures of training speed, all-reduce and scaling, and how far a group is from them.

Each figure has the source that states it; `derived` ones were computed from what it states.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from hpml_jobs.checks import Level
from hpml_jobs.checks.gpu_peaks import gpu_key
from hpml_jobs.checks.result import Affected
from hpml_jobs.core.built_in import GPT, RESNET18_PARAMETERS
from hpml_jobs.core.conditions import GPU_MODEL
from hpml_jobs.core.strategies import Device, Strategy
from hpml_jobs.report.cost.rules import Cost
from hpml_jobs.report.frame.captions import cell_words
from hpml_jobs.report.frame.groups import ConditionGroup
from hpml_jobs.report.frame.numbers import count, gb_per_s, percent, ratio

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


DDP = (
    "Published weak efficiency of DDP: 91 to 93 % on 16 x V100 at batch 32 (pytorch/pytorch "
    "benchmarks/distributed/ddp; another model)."
)
DDP_BATCH = 32

KINDS = {
    **dict.fromkeys(("resnet18_cifar", "resnet18", "vgg11_bn"), Kind.IMAGES),
    GPT: Kind.LANGUAGE,
}
"""The built-in models that are worth a comparison."""


def nearest(kind: Kind | None, parameters: int | None, gpu: str) -> Published | None:
    """Return the nearest published run: of the same model, then on the same GPU.

    Without one of the same model, one of the same kind on any GPU. None if nothing is near.
    """
    return max(
        (run for run in TRAINING if run.kind is kind or is_model(run, parameters)),
        key=lambda run: (is_model(run, parameters), run.gpu == gpu, run.share is not None),
        default=None,
    )


def is_model(run: Published, parameters: int | None) -> bool:
    """Return whether a model of so many parameters is that of a run."""
    return parameters is not None and abs(parameters / run.parameters - 1) <= SAME_MODEL


def nearest_all_reduce(gpu: str, gpus: int, nodes: int) -> list[BusBandwidth]:
    """Return the published bus bandwidths of the same GPU and nodes, the nearest number of GPUs."""
    same = [f for f in ALL_REDUCE if f.gpu == gpu and (f.nodes > 1) == (nodes > 1)]
    apart = min((abs(figure.gpus - gpus) for figure in same), default=None)
    return [figure for figure in same if abs(figure.gpus - gpus) == apart]


OTHER_PRECISIONS = {
    "fp32": "another precision: fp32 here, without tensor cores",
    "tf32": "another precision: tf32 here",
}
"""What distinguishes a precision from that of the published figures."""


def published_notes(group: ConditionGroup, costs: Sequence[Cost]) -> Iterator[str]:
    """Yield how far the group is from the nearest published figures; nothing if none is near.

    Cells with a failed data-quality check are not compared.
    """
    if group.device is Device.CPU:
        return
    sound = [made for made in costs if group.worst(made.row, Affected.TIME) is not Level.FAIL]
    yield from _training(group, sound)
    yield from _all_reduce(group, sound)
    yield from _ddp(group, sound)


def _training(group: ConditionGroup, costs: Sequence[Cost]) -> Iterator[str]:
    """Yield the nearest published training beside the fastest cell per GPU."""
    workload, measured = group.a_cell.workload, [c for c in costs if c.units_per_gpu_s]
    parameters = group.model.parameters if group.model else workload.parameters
    near = nearest(KINDS.get(workload.model), parameters, _gpu(group))
    if near and measured:
        best = max(measured, key=lambda cost: cost.units_per_gpu_s or 0.0)
        gap = _gap(group, best, near, is_same_model=is_model(near, parameters))
        yield f"Nearest published figure: {_published(near)}. Best here: {_best(group, best)}{gap}."


def _published(figure: Published) -> str:
    size = "" if figure.gpus is None else f"{figure.gpus} x "
    share = "" if figure.share is None else f", {100 * figure.share:g} % of peak"
    per_gpu = "" if figure.unit.startswith("s ") else " per GPU"
    how = ", derived" if figure.derived else ""
    return (
        f"{figure.model}, {size}{figure.gpu.upper()}, {figure.precision}: "
        f"{figure.figure:,g} {figure.unit}{per_gpu}{share} ({figure.source}{how})"
    )


def _best(group: ConditionGroup, best: Cost) -> str:
    rate = f"{count(round(best.units_per_gpu_s or 0.0))} {_rate_unit(group)} per GPU"
    share = "" if best.utilization is None else f", {percent(best.utilization)} % of peak"
    return f"{rate}{share} on {cell_words(best.row.place, group.device)}"


def _gap(group: ConditionGroup, best: Cost, figure: Published, *, is_same_model: bool) -> str:
    """Return what can be compared, and how far apart it is."""
    is_own, is_same_gpu = ":" in group.a_cell.workload.model, figure.gpu == _gpu(group)
    other = ["another model"] if not is_same_model else []
    other += ["matched by its number of parameters"] if is_own and is_same_model else []
    other += ["another GPU"] if not is_same_gpu else []
    precision = best.peak.precision if best.peak else None
    if precision is None:
        other.append("the precision here is not known")
    elif precision in OTHER_PRECISIONS:
        other.append(OTHER_PRECISIONS[precision])
    aside = f" ({', '.join(other)})" if other else ""
    if is_same_model and is_same_gpu and figure.unit == _rate_unit(group):
        return f", {ratio((best.units_per_gpu_s or 0.0) / figure.figure)} of its throughput{aside}"
    if figure.share is not None and best.utilization is not None:
        return f", {ratio(best.utilization / figure.share)} of its share of peak{aside}"
    return f"; not compared{aside}"


def _all_reduce(group: ConditionGroup, costs: Sequence[Cost]) -> Iterator[str]:
    """Yield the published bus bandwidths beside the best of the microbenchmark."""
    peaks = [(c.row.gpus, speed, c.row) for c in costs if (speed := c.row.figures.peak_gb_per_s)]
    if not peaks:
        return
    gpus, reached, best = max(peaks, key=lambda peak: peak[:2])
    figures = nearest_all_reduce(_gpu(group), gpus, best.nodes)
    if not figures:
        return
    texts = [
        f"{f.gpus} x {f.gpu.upper()} {gb_per_s(f.gb_per_s)} ({f.how}; {f.source})" for f in figures
    ]
    other = "" if figures[0].gpus == gpus else "; another number of GPUs"
    share = percent(reached / max(figure.gb_per_s for figure in figures))
    yield (
        f"Published busbw of large all-reduces, GB/s: {', '.join(texts)}. Microbenchmark here: "
        f"{gb_per_s(reached)} on {gpus} GPUs, {share} % of it{other}."
    )


def _ddp(group: ConditionGroup, costs: Sequence[Cost]) -> Iterator[str]:
    """Yield the efficiency of PyTorch's own table beside that of the largest ddp cell."""
    rows = [cost.row for cost in costs if cost.row.strategy is Strategy.DDP and cost.row.gpus > 1]
    reached = [(row, weak) for row in rows if row.scaling and (weak := row.scaling.weak_efficiency)]
    if reached:
        row, weak = max(reached, key=lambda of: (of[0].gpus, -abs(of[0].batch_per_gpu - DDP_BATCH)))
        yield f"{DDP} Here: {percent(weak)} % on {cell_words(row.place, group.device)}."


def _rate_unit(group: ConditionGroup) -> str:
    """Return the unit of a throughput: images/s, samples/s or tokens/s."""
    return f"{group.a_cell.workload.throughput_unit.value}/s"


def _gpu(group: ConditionGroup) -> str:
    """Return the GPU as a key of `gpu_peaks.PEAKS`."""
    return gpu_key(group.conditions.get(GPU_MODEL, ""))
