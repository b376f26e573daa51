"""The training path of a cell: how an iteration computes, apart from what it computes."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from hpml_jobs.core.errors import UsageError, refuse_below
from hpml_jobs.core.strategies import Device, Sharded, Strategy
from hpml_jobs.core.value import Value


class Precision(StrEnum):
    """The precision of the operations that a lower one makes faster; weights are always fp32."""

    FP32 = "fp32"  # 32-bit floating point, TF32 off
    TF32 = (
        "tf32"  # the tensor cores' 19-bit products in convolutions and matrix products
    )
    BF16 = "bf16"  # torch.autocast in bfloat16, under fsdp its policy
    FP16 = "fp16"  # the same in float16, with loss scaling

    @property
    def is_half(self) -> bool:
        """Whether forward computes in half precision, with 16 bits."""
        return self in (Precision.BF16, Precision.FP16)


class CompileMode(StrEnum):
    """The modes of torch.compile."""

    DEFAULT = "default"
    REDUCE_OVERHEAD = "reduce-overhead"  # CUDA graphs: one launch for many kernels
    MAX_AUTOTUNE = "max-autotune"  # times several kernels for each operation


class Tf32(NamedTuple):
    """Whether TF32 is allowed in matrix products and in cuDNN's convolutions."""

    matmul: bool
    cudnn: bool


TORCH_TF32 = Tf32(matmul=False, cudnn=True)
"""torch's defaults, which every precision keeps that does not set TF32 itself."""

AMPERE = "compute capability 8.0 or higher (A100, L4, L40S, H100, H200)"

_BEFORE_AMPERE = re.compile(
    r"p4|p40|p100|v100s?|t4|(quadro_?)?rtx_?8000|(rtx_?)?2080(_?ti)?"
)
"""GPU types, as SLURM names them, without TF32 and without bf16 in their tensor cores."""

_NOT_ON_CPU = {
    "precision=fp16": "CPUs train in bf16; use precision=bf16",
    "precision=tf32": "TF32 is a mode of NVIDIA's tensor cores; use precision=bf16",
    "compile=reduce-overhead": "its CUDA graphs run on GPUs; use compile=true",
}
"""What only GPUs can compute, with the reason and the remedy."""


class TrainingPath(Value, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The keys of the training path; at their defaults a cell trains as versions before 0.8.0 did.

    `precision` None is fp32 with torch's own settings: on GPUs that have TF32, convolutions use it
    and matrix products do not. `channels_last` keeps images and convolutions in memory as
    (N, H, W, C). `compile` is the mode of torch.compile, None runs the model as it is. `accumulate`
    batches make one iteration. Fields of versions before 1.0 are ignored, as those of `Cell`.
    """

    precision: Precision | None = None
    channels_last: bool = False
    compile: CompileMode | None = None
    accumulate: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        refuse_below(1, "accumulate", self.accumulate)

    def check(self, strategy: Strategy, device: Device, gpu_type: str | None) -> None:
        """Refuse a path that the device, a GPU of this type, or the strategy cannot compute.

        Raises:
            UsageError: with the key, the reason and the remedy.
        """
        if device is Device.CPU:
            for key in (f"precision={self.precision}", f"compile={self.compile}"):
                if key in _NOT_ON_CPU:
                    raise UsageError(f"{key} with device=cpu: {_NOT_ON_CPU[key]}")
        newer = self.precision in (Precision.TF32, Precision.BF16)
        if newer and gpu_type and _BEFORE_AMPERE.fullmatch(gpu_type.lower()):
            raise UsageError(
                f"precision={self.precision} with gpu_type={gpu_type}: it needs {AMPERE}; "
                "use precision=fp16"
            )
        self._check_strategy(strategy)

    def _check_strategy(self, strategy: Strategy) -> None:
        traffic, name = strategy.traffic, strategy.value
        if self.accumulate > 1 and not traffic.defers_exchange:
            raise UsageError(
                f"accumulate={self.accumulate} with strategy={name}: it exchanges gradients in "
                "every backward; use strategy=ddp, or a larger batch="
            )
        if self.compile is not None and not traffic.may_compile:
            raise UsageError(
                f"compile={self.compile} with strategy={name}: its replicas cannot be compiled "
                "as one; use strategy=ddp, or compile=false"
            )
        if self.channels_last and traffic.shards is not Sharded.NOTHING:
            raise UsageError(
                f"channels_last=true with strategy={name}: torch keeps the shards in the plain "
                "layout; leave channels_last out, or use strategy=ddp"
            )

    @property
    def tf32(self) -> Tf32:
        """Where TF32 is allowed on a GPU that has it."""
        if self.precision in (Precision.FP32, Precision.TF32):
            allowed = self.precision is Precision.TF32
            return Tf32(allowed, allowed)
        return TORCH_TF32

    @property
    def label(self) -> str:
        """The keys that are not at their default, in words."""
        return ", ".join(words for words, _ in self._parts())

    @property
    def slug_parts(self) -> list[str]:
        """The keys that are not at their default, for the name of a cell."""
        return [part for _, part in self._parts()]

    def _parts(self) -> Iterator[tuple[str, str]]:
        """Yield words and the part of a slug for each key that is not at its default."""
        if self.precision is not None:
            yield self.precision.value, self.precision.value
        if self.channels_last:
            yield "channels_last", "channels_last"
        if self.compile is not None:
            is_default = self.compile is CompileMode.DEFAULT
            mode = "" if is_default else self.compile.value
            yield (
                f"compiled {mode}".strip(),
                f"compile_{mode}".strip("_").replace("-", "_"),
            )
        if self.accumulate > 1:
            yield accumulation(self.accumulate), f"accumulate{self.accumulate}"


def accumulation(batches: int) -> str:
    """Return the number of accumulated batches in words, the end of a path's label."""
    return f"accumulate {batches}" if batches > 1 else ""
