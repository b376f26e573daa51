"""pynvml with GPUs of one's choice, for sys.modules; what a GPU does not know raises NVMLError."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """NVML's error."""


@dataclass
class FakeGpu:
    """A GPU; None is a question that it does not know."""

    uuid: str = "GPU-0"
    name: str = "NVIDIA A100-SXM4-80GB"
    index: int = 0
    bus_id: str | bytes = "00000000:3B:00.0"
    sm_mhz: int = 1755
    max_sm_mhz: int = 1980
    memory_mhz: int | None = 3201
    power_mw: int | None = 650_000
    power_limit_mw: int | None = 700_000
    temperature: int = 60
    reasons: int = 0x4
    utilization: int | None = 97  # per cent
    pids: tuple[int, ...] = ()
    # generation, width, and the highest
    pcie: tuple[int, int, int, int] = (
        4,
        16,
        4,
        16,
    )
    links: tuple[
        str, ...
    ] = ()  # the ends of the active links; `off` is one that is not
    link_version: int = 5
    ecc: tuple[int, int] | None = (0, 0)
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    near_cpus: tuple[int, ...] | None = (0, 1)
    calls: list[str] = field(default_factory=list)


class FakeNvml:
    """The functions of pynvml that this program calls."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = "sm", "memory", "gpu"
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    NVML_VOLATILE_ECC = 0
    NVML_NVLINK_MAX_LINKS = 18
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.initialized = 0

    def __getattr__(self, name: str) -> Any:
        """Answer NVML's questions about one GPU by the table below."""
        answer = _ANSWERS[name]

        def ask(gpu: FakeGpu, *arguments: Any) -> Any:
            gpu.calls.append(name)
            value = answer(gpu, *arguments)
            if value is None:
                raise NVMLError("Not Supported")
            return value

        return ask

    def nvmlInit(self) -> None:  # noqa: N802 -- NVML's names
        """Count the calls."""
        self.initialized += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Do nothing."""

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Return the number of GPUs."""
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        """Return a GPU by its place in the list."""
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        """Return a GPU by its UUID."""
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu
        raise NVMLError("Not Found")


def _link(gpu: FakeGpu, link: int) -> str | None:
    return gpu.links[link] if link < len(gpu.links) else None


def _link_state(gpu: FakeGpu, link: int) -> int | None:
    end = _link(gpu, link)
    return None if end is None else int(end != "off")


def _mask(gpu: FakeGpu, words: int) -> list[int] | None:
    if gpu.near_cpus is None:
        return None
    return [
        sum(1 << cpu % 64 for cpu in gpu.near_cpus if cpu // 64 == word)
        for word in range(words)
    ]


_ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
    "nvmlDeviceGetName": lambda gpu: gpu.name,
    "nvmlDeviceGetIndex": lambda gpu: gpu.index,
    "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(busId=gpu.bus_id),
    "nvmlDeviceGetClockInfo": lambda gpu, kind: (
        gpu.sm_mhz if kind == "sm" else gpu.memory_mhz
    ),
    "nvmlDeviceGetMaxClockInfo": lambda gpu, _: gpu.max_sm_mhz,
    "nvmlDeviceGetTemperature": lambda gpu, _: gpu.temperature,
    "nvmlDeviceGetPowerUsage": lambda gpu: gpu.power_mw,
    "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: gpu.power_limit_mw,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.reasons,
    "nvmlDeviceGetUtilizationRates": lambda gpu: (
        None if gpu.utilization is None else SimpleNamespace(gpu=gpu.utilization)
    ),
    "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
        SimpleNamespace(pid=pid) for pid in gpu.pids
    ],
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda gpu: gpu.pcie[0],
    "nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: gpu.pcie[1],
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda gpu: gpu.pcie[2],
    "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: gpu.pcie[3],
    "nvmlDeviceGetNvLinkState": _link_state,
    "nvmlDeviceGetNvLinkVersion": lambda gpu, _: gpu.link_version,
    "nvmlDeviceGetNvLinkRemoteDeviceType": lambda gpu, link: (
        2 * (_link(gpu, link) == "switch")
    ),
    "nvmlDeviceGetNvLinkRemotePciInfo": lambda gpu, link: SimpleNamespace(
        busId=_link(gpu, link)
    ),
    "nvmlDeviceGetTotalEccErrors": lambda gpu, kind, _: gpu.ecc and gpu.ecc[kind],
    "nvmlDeviceGetRemappedRows": lambda gpu: gpu.remapped,
    "nvmlDeviceGetCpuAffinity": _mask,
    "nvmlDeviceGetMigMode": lambda gpu: None,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": lambda gpu: None,
}
