"""Environment variables that change what is measured."""

import re
from collections.abc import Mapping

from hpml_jobs.core.secrets import is_secret_variable
from hpml_jobs.core.strategies import Device

_RECORDED = re.compile(
    r"""(?x)
    (?!\w+_(DIR|HOME|PATH|PREFIX|FILE|ROOT)$)
    (
        (CUDA|CUDNN|CUBLAS|CUBLASLT|NVIDIA|NSYS)_\w+
        | (TORCH|TORCHDYNAMO|TORCHINDUCTOR|PYTORCH|ATEN|KINETO(?!_LOG))_\w+
        | (GLOO|UCX|FI)_\w+
        | (OMP|MKL|KMP|GOMP|OPENBLAS|BLIS|DNNL|ONEDNN|MALLOC)_\w+
        | LD_PRELOAD | GLIBC_TUNABLES
        | PYTHON(DEVMODE|MALLOC|OPTIMIZE|DEBUG|TRACEMALLOC)
    )
    """
)
"""Variables of CUDA, torch, their libraries, the network, threads, profilers and Python; no places
of files, which change no number and may contain a login name.
"""

_NCCL = re.compile(r"NCCL_\w+")

LONGEST_VALUE = 200
"""Characters of a value that are kept: container images set lists of requirements."""

COMPARED = re.compile(
    r"""(?x)
    (?!
        CUDA_VISIBLE_DEVICES=
        | TORCH_NCCL_ASYNC_ERROR_HANDLING=
        | NSYS_
        | NVIDIA_(?!TF32)
        | \w+_(NUM_THREADS|VERSION|BUILD|ARCH_LIST)=
        | \w+_(DIR|DIRECTORY|HOME|PATH|PREFIX|ROOT)=
    )
    """
)
"""Those that cells of a table must share: all but what the job, torchrun, a profiler or a container
image sets, and places.

The check `threads` compares what numbers of threads did. torchrun sets the variable of NCCL for
some strategies only.
"""

PROFILERS = re.compile(
    r"""(?x)
    (
        NCCL_(PROFILER|INSPECTOR)\w*
        | (KINETO|NSYS)_\w+
        | \w*TORCH_\w*PROFILE\w*
    )
    =(?!0?$)
    """
)
"""Those that turn a profiler on."""


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the record, without secrets and places; NCCL's are apart.

    >>> recorded({"CUDA_MODULE_LOADING": "LAZY", "TORCH_HUB_TOKEN": "x", "HOME": "/root"})
    {'CUDA_MODULE_LOADING': 'LAZY'}
    """
    return _kept(_RECORDED, environment)


def nccl(environment: Mapping[str, str]) -> dict[str, str]:
    """Return NCCL's variables for the record, without secrets."""
    return _kept(_NCCL, environment)


def _kept(kind: re.Pattern[str], environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value[:LONGEST_VALUE]
        for name, value in sorted(environment.items())
        if kind.fullmatch(name) and not is_secret_variable(name)
    }


def text_of(kind: re.Pattern[str], variables: Mapping[str, str]) -> str:
    """Return the variables of a kind, as `COMPARED`, in words.

    >>> text_of(COMPARED, {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO", "CUDA_HOME": "/opt/cuda"})
    'NCCL_ALGO=Ring NCCL_DEBUG=INFO'
    >>> text_of(COMPARED, {"TORCH_FR_BUFFER_SIZE": "9", "OMP_NUM_THREADS": "4"})
    'TORCH_FR_BUFFER_SIZE=9'
    >>> text_of(PROFILERS, {"NCCL_PROFILER_PLUGIN": "x.so", "NCCL_INSPECTOR_ENABLE": "0"})
    'NCCL_PROFILER_PLUGIN=x.so'
    """
    texts = (f"{name}={value}" for name, value in sorted(variables.items()))
    return " ".join(filter(kind.match, texts))


def refusal(
    environment: Mapping[str, str], device: Device, *, communicates: bool
) -> str:
    """Return why a cell must not be measured with these variables; empty if it may.

    >>> refusal({"CUDA_LAUNCH_BLOCKING": "1"}, Device.CUDA, communicates=False)
    'CUDA_LAUNCH_BLOCKING=1: every kernel waits for the one before: unset it'
    >>> refusal({"CUDA_LAUNCH_BLOCKING": "1"}, Device.CPU, communicates=False)
    ''
    """
    blocking = environment.get("CUDA_LAUNCH_BLOCKING", "")
    if device is Device.CUDA and blocking not in ("", "0"):
        return f"CUDA_LAUNCH_BLOCKING={blocking}: every kernel waits for the one before: unset it"
    detail = environment.get("TORCH_DISTRIBUTED_DEBUG", "")
    if communicates and detail.upper() == "DETAIL":
        return (
            f"TORCH_DISTRIBUTED_DEBUG={detail}: every collective is checked by another one before: "
            "unset it, or set it to INFO"
        )
    return ""
