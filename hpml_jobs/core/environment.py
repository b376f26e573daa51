"""Environment variables that change what is measured."""

import re
from collections.abc import Mapping

from hpml_jobs.core.secrets import SECRET_VARIABLE
from hpml_jobs.core.strategies import Device

_RECORDED = re.compile(
    r"(CUDA|CUDNN|CUBLAS|CUBLASLT|NVIDIA|TORCH|TORCHDYNAMO|TORCHINDUCTOR|PYTORCH|GLOO|UCX|FI"
    r"|OMP|MKL|KMP|GOMP|OPENBLAS|BLIS|DNNL|ONEDNN|ATEN|MALLOC)_\w+"
    r"|LD_PRELOAD|GLIBC_TUNABLES|PYTHON(DEVMODE|MALLOC|OPTIMIZE|DEBUG|TRACEMALLOC)"
)
"""Variables of CUDA, torch, their libraries, the network, the threads and Python."""

_PLACE = re.compile(r".*_(DIR|HOME|PATH|PREFIX|FILE|ROOT)")
"""Places of files, which change no number and may contain a login name."""

LONGEST_VALUE = 200
"""Characters of a value that are kept: container images set lists of requirements."""

_COMPARED = re.compile(
    r"NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|CUDA_DEVICE_MAX_CONNECTIONS"
    r"|CUDA_MODULE_LOADING|CUDA_FORCE_PTX_JIT|CUBLAS_WORKSPACE_CONFIG|CUBLASLT_WORKSPACE_SIZE"
    r"|PYTORCH(_CUDA)?_ALLOC_CONF|PYTORCH_NO_CUDA_MEMORY_CACHING|TORCH_NCCL_(?!ASYNC_ERROR)\w+"
    r"|TORCH_CUDNN_\w+|CUDNN_(?!LOG)\w+|TORCHINDUCTOR_\w+|UCX_(?!LOG)\w+|FI_(?!LOG)\w+"
    r"|NCCL_(?!DEBUG)\w+|GLOO_\w+"
    r"|ATEN_\w+|(ONEDNN|DNNL|MKL)_(?!VERBOSE|NUM_THREADS)\w+|(OPENBLAS|BLIS)_(?!NUM_THREADS)\w+"
    r"|OMP_(?!NUM_THREADS|DISPLAY)\w+|(KMP|GOMP)_(?!VERSION|SETTINGS)\w+|MALLOC_\w+|LD_PRELOAD"
    r"|TORCHDYNAMO_(?!VERBOSE)\w+|TORCH_COMPILE_(?!DEBUG_DIR)\w+|TORCH_(BLAS|LINALG)_PREFER_\w+"
    r"|PYTORCH_TUNABLEOP_\w+|GLIBC_TUNABLES|PYTHON(DEVMODE|MALLOC|OPTIMIZE|DEBUG|TRACEMALLOC)"
)
"""Those of which it is known that they change numbers, if they are set by hand.

Not the numbers of threads, which the job sets: the check `threads` compares what they did. torchrun
sets TORCH_NCCL_ASYNC_ERROR_HANDLING, for some strategies only.
"""


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for the record, without secrets and places; NCCL's are apart.

    >>> recorded({"CUDA_MODULE_LOADING": "LAZY", "TORCH_HUB_TOKEN": "x", "HOME": "/root"})
    {'CUDA_MODULE_LOADING': 'LAZY'}
    """
    return {
        name: value[:LONGEST_VALUE]
        for name, value in sorted(environment.items())
        if _RECORDED.fullmatch(name)
        and not (SECRET_VARIABLE.search(name) or _PLACE.fullmatch(name))
    }


def nccl(environment: Mapping[str, str]) -> dict[str, str]:
    """Return NCCL's variables for the record, without secrets."""
    return {
        name: value[:LONGEST_VALUE]
        for name, value in sorted(environment.items())
        if name.startswith("NCCL_") and not SECRET_VARIABLE.search(name)
    }


def compared(*environments: Mapping[str, str]) -> str:
    """Return the variables that cells of a table must share, in words.

    >>> compared({"NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "INFO"}, {"CUDA_HOME": "/opt/cuda"})
    'NCCL_P2P_DISABLE=1'
    >>> compared({}, {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "4"})
    'ATEN_CPU_CAPABILITY=default'
    """
    variables = {
        name: value for variables in environments for name, value in variables.items()
    }
    return " ".join(
        f"{name}={value}"
        for name, value in sorted(variables.items())
        if _COMPARED.fullmatch(name)
    )


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
