"""Facts about hardware and software that a timing depends on; reading them never fails a run."""

import contextlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import torch

from hpml_jobs.core import environment
from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.cluster import limit_of_host
from hpml_jobs.core.gpus import is_mig, nvml_session, nvml_text
from hpml_jobs.core.paths import OWN_CODE
from hpml_jobs.core.rank import NodeSystem
from hpml_jobs.core.record import Facts
from hpml_jobs.core.strategies import Device
from hpml_jobs.study.cell_folder import SLURM_VARIABLE, host_name
from hpml_jobs.worker.instruments.timing import Devices

_TIMEOUT_S = 10
"""Seconds after which git or nvidia-smi is given up."""


def read_facts(file: CellFile, backend: str | None) -> Facts:
    """Return all facts; `missing` lists those that could not be read, each with the reason."""
    cell = file.cell
    group: Any = torch.distributed.group.WORLD
    readers: dict[str, Callable[[], Any]] = {
        "commit": _commit,
        "dirty": _dirty,
        "torchvision": lambda: version("torchvision"),  # without importing it
        "cpu_model": _cpu_model,
        "slurm": slurm_variables,
        # torch has several of one name; cuda comes after cpu
        "backend_class": lambda: (
            backend
            and type(group._get_backend(max(group._device_types, key=str))).__name__
        ),
        "tf32_matmul": lambda: torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": lambda: torch.backends.cudnn.allow_tf32,
    }
    if cell.device is Device.CUDA:
        readers |= {
            "driver": _driver,
            "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
            "cudnn": torch.backends.cudnn.version,
            "gpu_model": torch.cuda.get_device_name,
            "gpus_visible": torch.cuda.device_count,
            "compute_capability": lambda: "{}.{}".format(
                *torch.cuda.get_device_capability()
            ),
            "topology": _topology,
        }
    values: dict[str, Any] = {}
    unread: list[str] = []
    for name, read in readers.items():
        try:
            values[name] = read()
        except Exception as error:  # no fact is worth a failed run
            unread.append(f"{name}: {error or type(error).__name__}")
    return Facts(
        **values,
        **_always_known(cell),
        backend=backend,
        cancel_below_percent=limit_of_host(file.cancel_below_utilization, host_name()),
        code_commit=file.code_commit,
        code_dirty=file.code_dirty,
        missing=tuple(unread),
    )


def read_node(device: Device) -> NodeSystem:
    """Return the facts of this node; what cannot be read is empty."""
    node = NodeSystem(kernel=platform.release())
    with contextlib.suppress(Exception):  # no fact is worth a failed run
        node = msgspec.structs.replace(node, cpu_model=_cpu_model())
        if device is Device.CUDA:
            node = msgspec.structs.replace(node, driver=_driver())
    return node


def _always_known(cell: Cell) -> dict[str, Any]:
    """Return the facts that cannot fail."""
    variables = os.environ
    return {
        "python": platform.python_version(),
        "precision": _precision(cell),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cpu_count": os.cpu_count() or 0,
        "os": platform.platform(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "container": variables.get("APPTAINER_CONTAINER")
        or variables.get("SINGULARITY_CONTAINER"),
        "nccl_environment": environment.nccl(variables),
        "environment": environment.recorded(variables),
    }


def _precision(cell: Cell) -> str:
    """Return the precision of the model's products; unknown if an own model may choose it."""
    precision = cell.path.precision
    if cell.script is not None:
        return "unknown"
    if precision is not None and precision.is_half:
        return precision.value
    workload = cell.workload
    # not optimizer and schedule
    computing = (workload.model, workload.data, workload.loss)
    return "unknown" if any(":" in name for name in computing) else "fp32"


def device_names(devices: Devices) -> tuple[str, ...]:
    """Return the devices' names; `cpu` for the CPU."""
    return tuple(
        torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        for device in devices
    )


def device_uuids(devices: Devices) -> tuple[str, ...]:
    """Return the GPUs' UUIDs as nvidia-smi shows them; empty if torch does not report them.

    That of a MIG instance is its own.
    """
    uuids = []
    for device in devices:
        if device.type != "cuda":
            continue
        gpu = torch.cuda.get_device_properties(device)
        if hasattr(gpu, "uuid"):
            prefix = "MIG" if is_mig(gpu.name) else "GPU"
            uuids.append(f"{prefix}-{gpu.uuid}")
    return tuple(uuids)


def affinity() -> tuple[int, ...]:
    """Return the CPUs that this process may run on; empty if the system does not report them."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def _git(*arguments: str) -> str:
    """Return the output of a git command in the folder of this package.

    Raises:
        RuntimeError: git failed, for example because the package is not in a checkout.
    """
    folder = str(OWN_CODE)
    process = subprocess.run(
        ["git", "-C", folder, *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if process.returncode:
        raise RuntimeError(
            f"no checkout of hpml_jobs ({process.stderr.strip().splitlines()[:1]})"
        )
    return process.stdout.strip()


def _commit() -> str:
    # fails if the checkout is another project's
    _git("ls-files", "--error-unmatch", "__init__.py")
    return _git("rev-parse", "HEAD")


def _dirty() -> bool:
    _commit()
    return bool(_git("status", "--porcelain", "--untracked-files=no", "."))


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (
        line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
    )
    return next(names, platform.machine())


def slurm_variables() -> dict[str, str]:
    """Return SLURM's variables of the job, which its wrapper passes on; none without SLURM."""
    return {
        name: str(value)
        for name, value in json.loads(os.environ.get(SLURM_VARIABLE, "{}")).items()
    }


def _driver() -> str:
    with nvml_session() as nvml:
        return nvml_text(nvml.nvmlSystemGetDriverVersion())


def _topology() -> str:
    """Return nvidia-smi's matrix of links without terminal colors."""
    process = subprocess.run(
        ["nvidia-smi", "topo", "-m"],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", process.stdout).strip()
