"""The GPUs of a cell: their figures, their peak FLOP/s by name, and the FLOP of a sample."""

import csv
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from hpml_jobs.core.built_in import GPT, RESNET18_PARAMETERS
from hpml_jobs.core.formulas import transformer_flop_per_token
from hpml_jobs.core.gpus import Card
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.value import known
from hpml_jobs.results.conditions import precision_of


class Peak(NamedTuple):
    """TFLOP/s at most, dense (never the figure with sparsity), the memory, and the source.

    `fp32` is the ordinary cores, `tf32` the tensor cores on fp32 values, `half` the tensor cores
    on fp16 and bf16. None: the card has no such unit. `gb_per_s` is the memory's bandwidth at most
    (1e9 bytes); None: not known. `half_to_fp32` is `half` with sums in fp32, where a card is slower
    at that; None: it is not.
    """

    fp32: float
    tf32: float | None
    half: float | None
    gb_per_s: float | None
    source: str
    half_to_fp32: float | None = None


@cache
def peaks() -> dict[str, Peak]:
    """Return the peaks of the file beside this one, by the words that name a card's model.

    The words are run together; where cards of one name differ, it is the fastest of them. GeForce
    cards sum fp16 products in fp16 at twice the rate of sums in fp32, unlike the RTX A, Quadro,
    TITAN RTX and data-center cards: their rate with sums in fp32 is half of the cited one.
    """
    peaks_of = {}
    with Path(__file__).with_suffix(".csv").open(newline="") as file:
        for row in csv.DictReader(file):
            name, source = row.pop("name"), row.pop("source")
            figures: dict[str, Any] = {
                field: float(text) if text else None for field, text in row.items()
            }
            peaks_of[name] = Peak(source=source, **figures)
    return peaks_of


FLOP_PER_SAMPLE = {RESNET18_PARAMETERS: 3_328_997_376, 11_181_642: 217_282_560}
"""Forward and backward of one 32 x 32 image, 2 per multiply-add, by the model's parameters: the
ResNet-18 with the CIFAR stem and torchvision's, both with 10 classes."""

HALF_PRECISIONS = ("fp16", "bf16", "amp")


class PeakRate(NamedTuple):
    """The peak FLOP/s of one device at a precision, dense, and where that is written.

    MFU is a share of it.
    """

    flop_per_s: float
    precision: str
    source: str


def gpu_key(gpu_model: str) -> str:
    """Return the longest name in `peaks` that a GPU's name contains; empty if there is none.

    >>> [gpu_key(name) for name in ("Quadro RTX 8000", "NVIDIA H100 PCIe", "NVIDIA GeForce 256")]
    ['rtx8000', 'h100pcie', '']
    """
    words = re.findall(r"[a-z0-9]+", gpu_model.lower())
    runs = {
        "".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
    }
    return max(sorted(runs & peaks().keys()), key=len, default="")


def peak_rate(gpu_model: str, precision: str, *, tf32: bool = True) -> PeakRate | None:
    """Return the peak of one device; None where the GPU or the precision is not known.

    `tf32`: fp32 values may go through the tensor cores, which is cuDNN's default.

    >>> [peak_rate("Tesla V100-SXM2-16GB", p).flop_per_s / 1e12 for p in ("fp32", "fp16")]
    [15.7, 125.0]
    >>> [peak_rate("NVIDIA A100-SXM4-80GB", "fp32", tf32=t)[:2] for t in (True, False)]
    [(156000000000000.0, 'tf32'), (19500000000000.0, 'fp32')]
    >>> round(peak_rate("NVIDIA GeForce RTX 3090", "bf16").flop_per_s / 1e12)
    71
    """
    peak = peaks().get(gpu_key(gpu_model))
    if peak is None or precision not in ("fp32", "tf32", *HALF_PRECISIONS):
        return None
    half = peak.half_to_fp32 or peak.half  # torch sums in fp32
    if precision in HALF_PRECISIONS and half:
        return PeakRate(1e12 * half, precision, peak.source)
    if precision in HALF_PRECISIONS or not tf32 or peak.tf32 is None:
        return PeakRate(1e12 * peak.fp32, "fp32", peak.source)
    return PeakRate(1e12 * peak.tf32, "tf32", peak.source)


def peak_of(record: Record) -> PeakRate | None:
    """Return the peak of a record's GPUs at its precision.

    None on the CPU, on GPUs of several models, and where GPU or precision is not known: an imported
    timing does not say its precision.
    """
    facts = record.measured_facts
    if record.cell.device is not Device.CUDA or facts is None or not facts.gpu_model:
        return None
    if len({name for rank in record.ranks for name in rank.devices}) > 1:
        return None
    has_convolutions = record.cell.workload.has_convolutions
    uses_cudnn_tf32 = has_convolutions and facts.tf32_cudnn is not False
    tf32 = facts.tf32_matmul is not False or uses_cudnn_tf32
    return peak_rate(facts.gpu_model, facts.precision, tf32=tf32)


class FlopPerSample(NamedTuple):
    """FLOP of one sample's forward and backward pass; None where that is not known.

    `counted` is torch's count. `by_formula` is that of the built-in transformer, 6 N + 12 L H Q T
    for each of its tokens, where N are its parameters without position embeddings and without the
    rows that pad its vocabulary.
    """

    counted: int | None
    by_formula: int | None = None

    @property
    def figure(self) -> int | None:
        """What FLOP/s and MFU are computed from: by the formula, where there is one."""
        return self.counted if self.by_formula is None else self.by_formula


def flop_of(record: Record) -> FlopPerSample:
    """Return the FLOP of a sample, counted and by the formula for transformers.

    Of a model that is known by its parameters they were counted once. A model of the user's may
    ignore the shape, or have other embeddings: it has no formula.
    """
    model = record.model
    workload = record.cell.workload
    parameters = model.parameters if model else workload.parameters
    counted = model.flop_per_sample if model else None
    if not counted:
        sizes = FLOP_PER_SAMPLE if workload.image_size == 32 else {}
        counted = sizes.get(parameters or 0)
    shape = workload.shape
    if workload.model != GPT or shape is None or model is None:
        return FlopPerSample(counted)
    weights = (
        model.parameters - shape.context * shape.width - workload.padding_parameters
    )
    per_token = transformer_flop_per_token(
        weights, shape.layers, shape.width, shape.context
    )
    return FlopPerSample(counted, per_token * shape.context)


class GpuFigures(NamedTuple):
    """The GPUs of a cell; None is what is not known.

    Clocks are the median of the GPUs, `least_sm_clock_mhz` the least reading of any; `power_w` is
    the mean of a GPU. `bus_ids` has nvidia-smi's index and bus id of each, by rank.
    """

    precision: str | None = None
    sm_clock_mhz: float | None = None
    least_sm_clock_mhz: int | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    gpu_utilization_percent: float | None = None
    temperature_c: int | None = None
    throttle_reasons: str | None = None
    bus_ids: str | None = None
    link_gb_per_s: float | None = None


def gpu_figures(record: Record) -> GpuFigures:
    """Return the figures of a cell; of one on the CPU only its number format."""
    if record.measured_facts is None:
        return GpuFigures()
    cards = record.cards
    samples = known(card.samples for card in cards)
    clocks = known(card.clock_mhz for card in cards)
    memory_clocks = known(card.memory_clock_mhz for card in cards)
    watts = known(card.power_w for card in cards)
    heat = known(card.temperature_c for card in cards)
    least = clocks
    if samples:
        watts = [sample.power_w[1] for sample in samples]
        heat = [sample.temperature_c for sample in samples]
        least = [sample.sm_clock_mhz[0] for sample in samples]
    return GpuFigures(
        precision=precision_of(record),
        sm_clock_mhz=median(clocks) if clocks else None,
        least_sm_clock_mhz=min(least, default=None),
        memory_clock_mhz=median(memory_clocks) if memory_clocks else None,
        power_w=mean(watts) if watts else None,
        gpu_utilization_percent=record.gpu_utilization_percent,
        temperature_c=max(heat, default=None),
        throttle_reasons=_throttle_reasons(cards),
        bus_ids=", ".join(f"{c.index} {c.bus_id}" for c in cards if c.bus_id) or None,
        link_gb_per_s=record.link_gb_per_s,
    )


def _throttle_reasons(cards: Sequence[Card]) -> str | None:
    """Return why any of the GPUs had lower clocks, or `none`; None if that was not read."""
    if not any(card.samples or card.throttle_reasons is not None for card in cards):
        return None
    reasons = {reason for card in cards for reason in card.reasons}
    return " ".join(sorted(reasons)) or "none"
