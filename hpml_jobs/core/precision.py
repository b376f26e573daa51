"""The number format that a cell really computed in, by its GPU and torch's flags."""

import re

import msgspec

from hpml_jobs.core.record import Facts, Record
from hpml_jobs.core.strategies import Device

UNKNOWN = "unknown"

_FIRST_WITH_TF32 = 8.0
"""Compute capability of Ampere, the first GPUs with TF32."""

_WITHOUT_TF32 = re.compile(
    r"\b(K\d+|M\d+|P\d+|V100S?|T4|GTX|TITAN|Quadro|RTX 20\d\d|MI(100|2\d\dX?))\b"
)
"""Words in the names of older GPUs, for records without a compute capability."""


def precision_of(record: Record) -> str:
    """Return the format in words: `fp32`, `tf32 (convolutions)`, … or `unknown`.

    Own models may compute in any format; an imported timing does not say its own.
    """
    facts = record.facts
    if facts is None or record.imported or facts.precision != "fp32":
        return facts.precision if facts and not record.imported else UNKNOWN
    if record.cell.device is Device.CPU:
        return "fp32"
    if not record.cell.workload.has_convolutions:
        facts = msgspec.structs.replace(facts, tf32_cudnn=facts.tf32_matmul)
    return fp32_words(facts)


def fp32_words(facts: Facts) -> str:
    """Return in what format a GPU computes with fp32 values.

    >>> ampere = Facts(compute_capability="8.0", tf32_cudnn=True, tf32_matmul=False)
    >>> fp32_words(ampere), fp32_words(Facts(gpu_model="Tesla V100-SXM2-16GB", tf32_cudnn=True))
    ('tf32 (convolutions)', 'fp32')
    """
    if _has_tf32(facts) is False:
        return "fp32"
    override = facts.environment.get("NVIDIA_TF32_OVERRIDE")
    if override == "0":
        return "fp32"
    if None in (facts.tf32_cudnn, facts.tf32_matmul):
        return UNKNOWN
    if not (facts.tf32_cudnn or facts.tf32_matmul):
        return "fp32"
    if _has_tf32(facts) is None:
        return UNKNOWN
    if facts.tf32_cudnn and facts.tf32_matmul:
        return "tf32"
    return f"tf32 ({'convolutions' if facts.tf32_cudnn else 'matrix products'})"


def _has_tf32(facts: Facts) -> bool | None:
    """Return whether the GPU has TF32; None if it is not known."""
    if facts.compute_capability is not None:
        return float(facts.compute_capability) >= _FIRST_WITH_TF32
    if facts.gpu_model is None:
        return None
    if _WITHOUT_TF32.search(facts.gpu_model):
        return False
    return True if facts.gpu_model.startswith("NVIDIA ") else None
