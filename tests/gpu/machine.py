"""The machine that figures are measured on: its card and its versions, or why it has no card."""

import os
import platform
import subprocess
import warnings
from collections.abc import Callable

import torch

from hpml_jobs.core.gpus import (
    NvmlError,
    gpus_by_uuid,
    nvml_session,
    nvml_text,
    open_nvml,
    visible_gpus,
)
from tests.gpu.figures import Machine
from tests.gpu.processes import ROOT


def why_no_card() -> str | None:
    """Return why nothing can be measured here; None where torch sees a GPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a driver that is too old is warned of
        if torch.cuda.is_available():
            return None
    from hpml_jobs.worker.devices import why_no_cuda  # noqa: PLC0415 -- only to explain it

    return f"torch {torch.__version__} sees no GPU: {why_no_cuda()}"


def why_in_use() -> str | None:
    """Return how other processes use the first GPU; None where they do not, or NVML is silent.

    By NVML, because CUDA's context would hold memory of the card as long as this process runs.
    """
    from hpml_jobs.worker.devices import IDLE_BYTES  # noqa: PLC0415 -- as above

    try:
        with nvml_session() as nvml:
            gpus = gpus_by_uuid(nvml)
            first = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), [*gpus])[0]
            used = int(nvml.nvmlDeviceGetMemoryInfo([*gpus.values()][first]).used)
    except (NvmlError, IndexError):
        return None
    if used <= IDLE_BYTES:
        return None
    return f"other processes use {used / 1e9:.1f} GB of GPU {first}: end them, see nvidia-smi"


def read_machine() -> Machine:
    """Return the card and the versions; what cannot be read is None."""
    has_card = why_no_card() is None
    cudnn = torch.backends.cudnn.version() if has_card else None
    return Machine(
        card=torch.cuda.get_device_name(0) if has_card else None,
        driver=_or_none(_driver) if has_card else None,
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        cudnn=None if cudnn is None else str(cudnn),
        nccl=_or_none(_nccl) if has_card else None,
        python=platform.python_version(),
        commit=_or_none(_commit),
    )


def _or_none(read: Callable[[], str]) -> str | None:
    try:
        return read()
    except Exception:  # no fact is worth a failed visit
        return None


def _driver() -> str:
    return nvml_text(open_nvml().nvmlSystemGetDriverVersion())


def _nccl() -> str:
    return ".".join(map(str, torch.cuda.nccl.version()))


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.strip()
