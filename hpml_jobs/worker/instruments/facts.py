"""What must be known about a number before it is compared with another; never fails the run."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import hpml_jobs
from hpml_jobs.core.cell import Cell, Device
from hpml_jobs.core.measurements import Card
from hpml_jobs.core.record import Facts
from hpml_jobs.study.attempt import SLURM_VARIABLE
from hpml_jobs.worker.instruments.timing import Devices

_PATIENCE_S = 10


def gather(
    cell: Cell, backend: str | None, link_gb_per_s: float | None, missing: Iterable[str] = ()
) -> Facts:
    """Read everything; what cannot be read is in `missing`, with the reason."""
    readers: dict[str, Callable[[], Any]] = {
        "commit": _commit,
        "dirty": _dirty,
        "torchvision": _torchvision,
        "cpu_model": _cpu_model,
        "slurm": _slurm,
        "tf32_matmul": lambda: torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": lambda: torch.backends.cudnn.allow_tf32,
    }
    if cell.device is Device.CUDA:
        readers |= {
            "driver": _driver,
            "nccl": _nccl,
            "cudnn": torch.backends.cudnn.version,
            "gpu_model": torch.cuda.get_device_name,
            "gpus_visible": torch.cuda.device_count,
            "topology": _topology,
        }
    values: dict[str, Any] = {}
    lost = list(missing)
    for name, read in readers.items():
        try:
            values[name] = read()
        except Exception as fault:  # a fact is never worth a run, whatever goes wrong
            lost.append(f"{name}: {fault or type(fault).__name__}")
    return Facts(
        **values, **_plain(cell), backend=backend, link_gb_per_s=link_gb_per_s, missing=tuple(lost)
    )


def _plain(cell: Cell) -> dict[str, Any]:
    """Facts that are always there."""
    environment = os.environ
    return {
        "python": platform.python_version(),
        "precision": "unknown" if cell.workload.own_code else "fp32",
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cpu_count": os.cpu_count() or 0,
        "os": platform.platform(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "container": environment.get("APPTAINER_CONTAINER")
        or environment.get("SINGULARITY_CONTAINER"),
        "nccl_algorithm": environment.get("NCCL_ALGO"),
        "nccl_environment": {
            name: value for name, value in sorted(environment.items()) if name.startswith("NCCL_")
        },
    }


def device_names(devices: Devices) -> tuple[str, ...]:
    """The devices' names, `cpu` for the CPU."""
    return tuple(
        torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu" for device in devices
    )


def device_uuids(devices: Devices) -> tuple[str, ...]:
    """The cards' UUIDs as nvidia-smi shows them; empty where torch does not know them."""
    cards = [torch.cuda.get_device_properties(d) for d in devices if d.type == "cuda"]
    return tuple(f"GPU-{card.uuid}" for card in cards if hasattr(card, "uuid"))


def cards(devices: Devices) -> tuple[Card, ...]:
    """How this rank's GPUs are right now; empty on CPU, or where NVML does not answer."""
    try:
        return tuple(_card(uuid) for uuid in device_uuids(devices))
    except Exception:  # no NVML, no permission, a card that does not tell: never worth a run
        return ()


def _card(uuid: str) -> Card:
    import pynvml  # noqa: PLC0415 -- only where there are NVIDIA cards

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        reasons = int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        others = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return Card(
            uuid=uuid,
            sm_clock_mhz=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            max_sm_clock_mhz=pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
            temperature_c=pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            power_w=pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            throttle_reasons=throttle_reasons(reasons),
            other_processes=max(0, len(others) - 1),
        )
    finally:
        pynvml.nvmlShutdown()


THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""nvmlClocksThrottleReasons of NVML's API reference."""


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """The reasons in NVML's bit mask.

    >>> throttle_reasons(0x24)
    ('sw_power_cap', 'sw_thermal_slowdown')
    """
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def affinity() -> tuple[int, ...]:
    """CPUs that this process may run on; empty where the system does not say."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def _git(*words: str) -> str:
    """git's answer about the folder of this package.

    Raises:
        RuntimeError: the package does not lie in a checkout of its own, or git says no.
    """
    folder = str(Path(hpml_jobs.__file__).parent)
    done = subprocess.run(
        ["git", "-C", folder, *words],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"no checkout of hpml_jobs ({done.stderr.strip().splitlines()[:1]})")
    return done.stdout.strip()


def _commit() -> str:
    _git("ls-files", "--error-unmatch", "__init__.py")  # an environment inside another checkout
    return _git("rev-parse", "HEAD")


def _dirty() -> bool:
    _git("ls-files", "--error-unmatch", "__init__.py")
    return bool(_git("status", "--porcelain", "--untracked-files=no", "."))


def _torchvision() -> str:
    from importlib.metadata import version  # noqa: PLC0415 -- not worth importing torchvision

    return version("torchvision")


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _slurm() -> dict[str, str]:
    return {
        name: str(value) for name, value in json.loads(os.environ.get(SLURM_VARIABLE, "{}")).items()
    }


def _driver() -> str:
    import pynvml  # noqa: PLC0415 -- only where there are NVIDIA cards

    pynvml.nvmlInit()
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def _topology() -> str:
    """nvidia-smi's matrix of links, without its terminal colours."""
    done = subprocess.run(
        ["nvidia-smi", "topo", "-m"],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=True,
    )
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).strip()


def _nccl() -> str:
    version: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    return ".".join(map(str, version))
