"""Peak FLOP/s and memory bandwidth of GPUs by name, and FLOP per sample of known models."""

import re
from typing import NamedTuple

from hpml_jobs.core.built_in import RESNET18_PARAMETERS
from hpml_jobs.core.formulas import transformer_flop_per_token
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import Share
from hpml_jobs.core.training_path import Precision
from hpml_jobs.core.workload import Optimizer, Workload


class Peak(NamedTuple):
    """TFLOP/s at most, dense (never the figure with sparsity), the memory, and the source.

    `fp32` is the ordinary cores, `tf32` the tensor cores on fp32 values, `half` the tensor cores
    on fp16 and bf16. None: the card has no such unit. `gb_per_s` is the memory's bandwidth at most
    (1e9 bytes), `cache_mb` its last cache (1e6 bytes); None: not known. `half_to_fp32` is `half`
    with sums in fp32, where a card is slower at that; None: it is not.
    """

    fp32: float
    tf32: float | None
    half: float | None
    gb_per_s: float | None
    cache_mb: float | None
    source: str
    half_to_fp32: float | None = None

    @property
    def half_in_training(self) -> float | None:
        """The tensor cores' rate on fp16 and bf16 with sums in fp32, as torch computes them."""
        return self.half if self.half_to_fp32 is None else self.half_to_fp32


# GeForce cards sum fp16 products in fp16 at twice the rate of sums in fp32, unlike the RTX A,
# Quadro, TITAN RTX and data-center cards. The rate with sums in fp32 is half of the cited one.
_V100 = "NVIDIA V100 and V100S datasheets, the fastest of them"
_H100_NVL = "NVIDIA H100 NVL datasheet, half of its figures with sparsity"
_H100 = "NVIDIA H100 whitepaper, SXM5"
_TENSOR, _SPARSE = "half of its tensor figure", "half of its figures with sparsity"
_RTX_PRO = "NVIDIA RTX PRO 6000 Blackwell datasheet, Workstation Edition"
_RTX_50 = "NVIDIA RTX Blackwell GPU architecture whitepaper"
_BLACKWELL = "NVIDIA Blackwell architecture technical brief"
_RTX_40, _RTX_20 = "NVIDIA Ada GPU architecture whitepaper", "NVIDIA Turing whitepaper"
_MATRIX, _ONE_DIE = "datasheet, matrix cores", "datasheet, one of its two dies"

PEAKS = {
    "k80": Peak(
        4.37, None, None, 240, 1.6, "NVIDIA K80 datasheet, one of its two GPUs, with boost"
    ),
    "p100": Peak(10.6, None, 21.2, 732, 4.2, "NVIDIA P100 datasheet, SXM2"),
    "gtx1080ti": Peak(
        11.3, None, None, 484, 2.9, "NVIDIA GeForce GTX 1080 Ti product page"
    ),
    "p40": Peak(12.0, None, None, 346, 3.2, "NVIDIA P40 datasheet"),
    "v100": Peak(16.4, None, 130.0, 1134, 6.3, _V100),
    "v100sxm2": Peak(15.7, None, 125.0, 900, 6.3, "NVIDIA V100 datasheet, SXM2"),
    "v100pcie": Peak(14.0, None, 112.0, 900, 6.3, "NVIDIA V100 datasheet, PCIe"),
    "v100s": Peak(16.4, None, 130.0, 1134, 6.3, _V100),
    "titanv": Peak(14.9, None, 110.0, 653, 4.8, "NVIDIA TITAN V product page"),
    "t4": Peak(8.1, None, 65.0, 320, 4.2, "NVIDIA T4 datasheet"),
    "rtx6000": Peak(16.3, None, 130.5, 672, 6.3, "NVIDIA Quadro RTX 6000 datasheet"),
    "rtx8000": Peak(16.3, None, 130.5, 672, 6.3, "NVIDIA Quadro RTX 8000 datasheet"),
    "titanrtx": Peak(16.3, None, 130.5, 672, 6.3, f"{_RTX_20}, TITAN RTX"),
    "rtx2080ti": Peak(14.2, None, 113.8, 616, 5.8, f"{_RTX_20}, Founders Edition", 56.9),
    "a100": Peak(19.5, 156.0, 312.0, 2039, 42, "NVIDIA A100 datasheet"),
    "a800": Peak(19.5, 156.0, 312.0, 2039, 42, "NVIDIA A800 datasheet: as A100"),
    "a30": Peak(10.3, 82.0, 165.0, 933, 26, "NVIDIA A30 datasheet"),
    "a10": Peak(31.2, 62.5, 125.0, 600, 6.3, "NVIDIA A10 datasheet"),
    "a40": Peak(37.4, 74.8, 149.7, 696, 6.3, "NVIDIA A40 datasheet"),
    "rtxa4000": Peak(19.2, 38.3, 76.7, 448, 4.2, f"NVIDIA RTX A4000 datasheet, {_TENSOR}"),
    "rtxa5000": Peak(
        27.8, 55.6, 111.1, 768, 6.3, f"NVIDIA RTX A5000 datasheet, {_TENSOR}"
    ),
    "rtxa6000": Peak(38.7, 77.4, 154.8, 768, 6.3, "NVIDIA RTX A6000 datasheet"),
    "rtx3090": Peak(35.6, 35.6, 142.3, 936, 6.3, "NVIDIA Ampere GA102 whitepaper", 71.0),
    "l4": Peak(30.3, 60.0, 121.0, 300, 51, f"NVIDIA L4 datasheet, {_SPARSE}"),
    "l40": Peak(90.5, 90.5, 181.0, 864, 101, "NVIDIA L40 datasheet"),
    "l40s": Peak(91.6, 183.0, 362.0, 864, 101, "NVIDIA L40S datasheet"),
    "rtx6000ada": Peak(91.1, 182.1, 364.2, 960, 101, "NVIDIA RTX 6000 Ada datasheet"),
    "rtx4090": Peak(82.6, 82.6, 330.3, 1008, 76, _RTX_40, 165.2),
    "rtx5090": Peak(104.8, 104.8, 419.0, 1792, 101, _RTX_50, 209.5),
    "rtxpro6000": Peak(126.0, 251.9, 503.8, 1792, 135, _RTX_PRO),
    "h20": Peak(44.0, 74.0, 148.0, 4000, 63, "NVIDIA H20 datasheet"),
    "h800": Peak(66.9, 494.7, 989.4, 3350, 53, _H100),
    "h100": Peak(66.9, 494.7, 989.4, 3350, 53, _H100),
    "h100pcie": Peak(
        51.0, 378.0, 756.0, 2039, 53, f"NVIDIA H100 datasheet, PCIe, {_SPARSE}"
    ),
    "h100nvl": Peak(60.0, 417.5, 835.5, 3938, 63, _H100_NVL),
    "h200": Peak(66.9, 494.7, 989.4, 4800, 53, _H100),
    "h200nvl": Peak(60.0, 417.5, 835.5, 4800, 63, _H100_NVL),
    "gh200": Peak(66.9, 494.7, 989.4, 4900, 63, _H100),
    "b200": Peak(80.0, 1100.0, 2250.0, 8000, 135, f"{_BLACKWELL}, HGX B200"),
    "gb200": Peak(90.0, 1250.0, 2500.0, 8000, 135, f"{_BLACKWELL}, GB200"),
    "mi100": Peak(46.1, None, 184.6, None, None, f"AMD Instinct MI100 {_MATRIX}"),
    "mi210": Peak(45.3, None, 181.0, None, None, f"AMD Instinct MI210 {_MATRIX}"),
    "mi250": Peak(45.3, None, 181.0, None, None, f"AMD Instinct MI250 {_ONE_DIE}"),
    "mi250x": Peak(47.9, None, 191.5, None, None, f"AMD Instinct MI250X {_ONE_DIE}"),
    "mi300x": Peak(163.4, 653.7, 1307.4, None, None, "AMD Instinct MI300X datasheet"),
}
"""By the words of a device's name that name its model, run together; where cards of one name
differ, the fastest of them, so that no true number is refused; the same of memories (A100 40 and
80 GB, GH200). Memories are from the same data sheets and from architecture whitepapers."""

FLOP_PER_SAMPLE = {RESNET18_PARAMETERS: 3_328_997_376, 11_181_642: 217_282_560}
"""Forward and backward of one 32 x 32 image, 2 per multiply-add, by the model's parameters: the
ResNet-18 with the CIFAR stem and torchvision's, both with 10 classes."""

KNOWN_IMAGE_SIZE = 32

HALF_PRECISIONS = ("fp16", "bf16", "amp")

WINOGRAD = 2.25
"""Winograd's F(2x2, 3x3) needs so many times fewer multiplications than are counted for 3 x 3
convolutions (Lavin & Gray, CVPR 2016). cuDNN uses it on the ordinary cores."""

TF32_SHARE = Share(0.6)
"""Training does not reach more of the peak of TF32."""


class PeakRate(NamedTuple):
    """The peak FLOP/s of one device at a precision, dense, and where that is written.

    `flop_per_s` is what MFU is a share of. Counted FLOP/s above `doubtful` need an explanation,
    those above `impossible` were not computed.
    """

    flop_per_s: float
    precision: str
    source: str
    doubtful: float
    impossible: float


def gpu_key(gpu_model: str) -> str:
    """Return the longest name in `PEAKS` that a GPU's name contains; empty if there is none.

    >>> [gpu_key(name) for name in ("Quadro RTX 8000", "NVIDIA H100 PCIe", "NVIDIA GeForce 256")]
    ['rtx8000', 'h100pcie', '']
    """
    words = re.findall(r"[a-z0-9]+", gpu_model.lower())
    runs = {
        "".join(words[start:end])
        for start in range(len(words))
        for end in range(start + 1, len(words) + 1)
    }
    return max(sorted(runs & PEAKS.keys()), key=len, default="")


def peak_rate(gpu_model: str, precision: str, *, tf32: bool = True) -> PeakRate | None:
    """Return the peak of one device; None where the GPU or the precision is not known.

    `tf32`: fp32 values may go through the tensor cores, which is cuDNN's default.

    >>> [peak_rate("Tesla V100-SXM2-16GB", p).flop_per_s / 1e12 for p in ("fp32", "fp16")]
    [15.7, 125.0]
    >>> [peak_rate("NVIDIA A100-SXM4-80GB", "fp32", tf32=t)[:2] for t in (True, False)]
    [(156000000000000.0, 'tf32'), (19500000000000.0, 'fp32')]
    >>> [round(rate / 1e12) for rate in peak_rate("NVIDIA GeForce RTX 3090", "bf16")[::4]]
    [71, 142]
    """
    peak = PEAKS.get(gpu_key(gpu_model))
    if peak is None or precision not in ("fp32", "tf32", *HALF_PRECISIONS):
        return None
    is_half, fp32 = precision in HALF_PRECISIONS, 1e12 * peak.fp32
    if is_half and peak.half and peak.half_in_training:
        most, rate = 1e12 * peak.half, 1e12 * peak.half_in_training
        return PeakRate(rate, precision, peak.source, doubtful=most, impossible=most)
    winograd = WINOGRAD * fp32
    if is_half or not tf32 or peak.tf32 is None:
        return PeakRate(fp32, "fp32", peak.source, doubtful=fp32, impossible=winograd)
    rate = 1e12 * peak.tf32
    doubtful, impossible = max(TF32_SHARE * rate, fp32), max(rate, winograd)
    return PeakRate(rate, "tf32", peak.source, doubtful, impossible)


FP16_ONLY = (
    *("v100", "v100sxm2", "v100pcie", "v100s", "titanv", "t4"),
    *("rtx6000", "rtx8000", "titanrtx", "rtx2080ti"),
)
"""GPUs of compute capability 7.x: their tensor cores know fp16, but not bf16."""


def half_precision(gpu_model: str) -> Precision | None:
    """Return the half precision that a GPU's tensor cores train in; None: none, or not known.

    >>> [half_precision(gpu) for gpu in ("h100", "NVIDIA L40S", "Quadro RTX 8000", "p100", "volta")]
    [<Precision.BF16: 'bf16'>, <Precision.BF16: 'bf16'>, <Precision.FP16: 'fp16'>, None, None]
    """
    key = gpu_key(gpu_model)
    if key in FP16_ONLY:
        return Precision.FP16
    return Precision.BF16 if key and PEAKS[key].tf32 else None


def gpu_model_of(record: Record) -> str | None:
    """Return the GPUs' name, measured or imported; None on the CPU or if not reported."""
    measured = record.facts.gpu_model if record.facts else None
    return measured or record.source.gpu_model


def peak_of(record: Record) -> PeakRate | None:
    """Return the peak of a record's GPUs at its precision.

    None on the CPU, on GPUs of several models, and where GPU or precision is not known. An imported
    timing does not say its precision; it has the peak of fp32 values.
    """
    facts, gpu = record.facts, gpu_model_of(record)
    if record.cell.device is not Device.CUDA or not gpu:
        return None
    if len({name for rank in record.ranks for name in rank.devices}) > 1:
        return None
    if facts is None:
        return peak_rate(gpu, "fp32")
    has_convolutions = record.cell.workload.has_convolutions
    uses_cudnn_tf32 = has_convolutions and facts.tf32_cudnn is not False
    tf32 = facts.tf32_matmul is not False or uses_cudnn_tf32
    return peak_rate(gpu, facts.precision, tf32=tf32)


def flop_per_sample_of(record: Record) -> int | None:
    """Return the FLOP of a sample: counted, else those of a model known by its parameters."""
    model, workload = record.model, record.cell.workload
    counted = model.flop_per_sample if model else None
    parameters = model.parameters if model else workload.parameters
    return counted or known_flop_per_sample(parameters, workload.image_size)


class FlopPerSample(NamedTuple):
    """FLOP of one sample's forward and backward pass; None where that is not known.

    `counted` is torch's count. `by_formula` is that of the built-in transformer, 6 N + 12 L H Q T
    for each of its tokens, where N are `weights`: its parameters without position embeddings and
    without the rows that pad its vocabulary.
    """

    counted: int | None
    by_formula: int | None = None
    weights: int | None = None

    @property
    def figure(self) -> int | None:
        """What FLOP/s and MFU are computed from: by the formula, where there is one."""
        return self.counted if self.by_formula is None else self.by_formula


def flop_of(record: Record) -> FlopPerSample:
    """Return the FLOP of a sample, counted and by the formula for transformers."""
    counted, model = flop_per_sample_of(record), record.model
    return _with_formula(
        counted, record.cell.workload, model.parameters if model else None
    )


def _with_formula(
    counted: int | None, workload: Workload, parameters: int | None
) -> FlopPerSample:
    """Return the FLOP of a sample with those by the formula of the built-in transformer.

    A model of the user's may ignore the shape, or have other embeddings: its FLOP are counted.
    """
    shape = workload.built_in_shape
    if shape is None or parameters is None:
        return FlopPerSample(counted)
    weights = parameters - shape.context * shape.width - workload.padding_parameters
    per_token = transformer_flop_per_token(
        weights, shape.layers, shape.width, shape.context
    )
    return FlopPerSample(counted, per_token * shape.context, weights)


def known_flop_per_sample(parameters: int | None, image_size: int) -> int | None:
    """Return the FLOP of one image's forward and backward; None for an unknown model.

    >>> known_flop_per_sample(11_173_962, 32), known_flop_per_sample(11_173_962, 224)
    (3328997376, None)
    """
    if parameters is None or image_size != KNOWN_IMAGE_SIZE:
        return None
    return FLOP_PER_SAMPLE.get(parameters)


def passes_of(workload: Workload) -> int:
    """Return how often a step reads or writes as many bytes as the gradients have.

    It reads gradients and parameters and writes parameters; with momentum it also reads and writes
    the momentum, and AdamW two moments.
    """
    if workload.optimizer == Optimizer.ADAMW:
        return 7
    return 5 if workload.momentum else 3


def least_step_s(
    gradient_bytes: int, passes: int, gb_per_s: float, cache_mb: float
) -> float:
    """Return the least seconds of an optimizer's step, by the bytes that pass through memory.

    At the start the cache may hold a part of what is read, at the end a part of what is written.

    >>> [round(1e6 * least_step_s(44_695_848, passes, 4800, 53), 1) for passes in (7, 5, 3)]
    [43.1, 24.5, 5.9]
    >>> least_step_s(104_616, 5, 4800, 53)
    0.0
    """
    through = passes * gradient_bytes - 2e6 * cache_mb
    return max(0.0, through / (gb_per_s * 1e9))
