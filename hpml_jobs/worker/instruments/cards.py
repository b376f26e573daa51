"""The state and the energy of this rank's GPUs by NVML.

NVML is initialized once, before training, because that may take seconds. The state is read between
two epochs, each value for itself; the counters of energy are read before and after every epoch.
Nothing runs during an epoch.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from hpml_jobs.core.formulas import joules
from hpml_jobs.core.gpus import (
    SWITCH,
    Card,
    NvmlError,
    nvml_text,
    open_nvml,
    throttle_reasons,
)
from hpml_jobs.core.measurements import Energy

Query = Callable[[Any, Any], dict[str, Any]]
"""Returns fields of a `Card`, given NVML and the handle of a GPU."""

CPU_WORDS = 64
"""Words of 64 CPUs in NVML's mask: more CPUs than a node has."""

SPARE_CPUS = 2
"""CPUs of a rank beside those of its loader workers: the loop's and that of backward and NCCL."""


class CardReader:
    """Reads the state of GPUs into `state`; `missing` has the reason for each value left out."""

    def __init__(self, uuids: tuple[str, ...], nvml: Any = None) -> None:
        """Look up the GPUs with these UUIDs; none on the CPU."""
        self.state: tuple[Card, ...] = ()
        self.missing: list[str] = []
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        if not uuids:
            return
        try:
            self._nvml = open_nvml(nvml)
        except NvmlError as error:
            self._note(f"cards: {error}")
            return
        for uuid in uuids:
            try:
                self._handles[uuid] = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
            except Exception as error:
                self._note(f"card {uuid}: {_reason(error)}")

    def read(self) -> None:
        """Read the state of every GPU that NVML knows, which takes some milliseconds."""
        self.state = tuple(
            self._card(uuid, handle) for uuid, handle in self._handles.items()
        )

    def _card(self, uuid: str, handle: Any) -> Card:
        fields: dict[str, Any] = {}
        unread: dict[str, list[str]] = defaultdict(list)
        board = self._board(uuid, handle)
        for name, query in QUERIES.items():
            try:
                fields |= query(self._nvml, handle if name == "processes" else board)
            except (
                Exception
            ) as error:  # an older driver or GPU does not know the question
                unread[_reason(error)].append(name)
        for reason, names in unread.items():
            self._note(f"card {uuid}: {', '.join(names)}: {reason}")
        return Card(uuid=uuid, mig=uuid.startswith("MIG-"), **fields)

    def near_cpus(self) -> dict[str, set[int]]:
        """Return the CPUs of each GPU's NUMA node; without those of GPUs that do not tell them."""
        near: dict[str, set[int]] = {}
        for uuid, handle in self._handles.items():
            with suppress(Exception):  # read() notes the reason
                near[uuid] = {
                    *_near_cpus(self._nvml, self._board(uuid, handle))["near_cpus"]
                }
        return near

    def _board(self, uuid: str, handle: Any) -> Any:
        """Return the handle of the whole GPU, which a MIG instance is a part of."""
        if not uuid.startswith("MIG-"):
            return handle
        try:
            return self._nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        except Exception:
            return handle

    def _note(self, reason: str) -> None:
        if reason not in self.missing:
            self.missing.append(reason)


def bind_to_near_cpus(mine: tuple[str, ...], of_node: CardReader, workers: int) -> None:
    """Keep this process, and those that it starts, on the allowed CPUs near its GPUs.

    Nothing changes where NVML does not name them, and where they are fewer than SPARE_CPUS and the
    loader workers of each rank of the node whose GPUs are near them. The record has the CPUs
    (`affinity`).

    Args:
        mine: the UUIDs of this rank's GPUs.
        of_node: reads the GPUs of all ranks of this node.
        workers: loader workers of a rank.
    """
    near = of_node.near_cpus()
    near_mine = set[int]()
    for uuid in mine:
        near_mine |= near.get(uuid, set())
    cpus = os.sched_getaffinity(0) & near_mine
    gpus_sharing = sum(not cpus.isdisjoint(of_gpu) for of_gpu in near.values())
    sharing = gpus_sharing // max(1, len(mine))
    if cpus and len(cpus) >= sharing * (workers + SPARE_CPUS):
        os.sched_setaffinity(0, cpus)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _processes(nvml: Any, handle: Any) -> dict[str, Any]:
    """Return how many processes use the GPU beside this one.

    Raises:
        RuntimeError: this process is not listed, so others may not be either.
    """
    numbers = {
        process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    }
    if os.getpid() not in numbers:
        raise RuntimeError(
            "the driver does not list this process (another PID namespace)"
        )
    return {"other_processes": len(numbers) - 1}


def _ecc(nvml: Any, handle: Any) -> dict[str, Any]:
    kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    errors = nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC)
    return {"ecc_uncorrected": int(errors)}


def _remapped_rows(nvml: Any, handle: Any) -> dict[str, Any]:
    corrected, uncorrected, is_pending, has_failed = nvml.nvmlDeviceGetRemappedRows(
        handle
    )
    state = "done"
    if is_pending:
        state = "pending"
    if has_failed:
        state = "failed"
    return {"remapped_rows": int(corrected) + int(uncorrected), "row_remapping": state}


def _nvlinks(nvml: Any, handle: Any) -> dict[str, Any]:
    """Return the active links, and what each of them leads to."""
    ends = []
    version = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            is_active = nvml.nvmlDeviceGetNvLinkState(handle, link)
        except nvml.NVMLError:  # the GPU has no more links, or none at all
            break
        if is_active:
            version = int(nvml.nvmlDeviceGetNvLinkVersion(handle, link))
            ends.append(_link_end(nvml, handle, link))
    return {"nvlink_to": tuple(ends), "nvlink_version": version or None}


def _link_end(nvml: Any, handle: Any, link: int) -> str:
    kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
    if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return SWITCH
    return nvml_text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)


def _near_cpus(nvml: Any, handle: Any) -> dict[str, Any]:
    words = nvml.nvmlDeviceGetCpuAffinity(handle, CPU_WORDS)
    cpus = [
        64 * n + bit
        for n, word in enumerate(words)
        for bit in range(64)
        if word >> bit & 1
    ]
    return {"near_cpus": tuple(cpus)}


def _one(name: str, value: Callable[[Any, Any], Any]) -> Query:
    """Return a query of one field."""
    return lambda nvml, handle: {name: value(nvml, handle)}


QUERIES: dict[str, Query] = {
    "index": _one("index", lambda nvml, h: int(nvml.nvmlDeviceGetIndex(h))),
    "bus id": _one(
        "bus_id", lambda nvml, h: nvml_text(nvml.nvmlDeviceGetPciInfo(h).busId)
    ),
    "SM clock": _one(
        "sm_clock_mhz",
        lambda nvml, h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM),
    ),
    "highest SM clock": _one(
        "max_sm_clock_mhz",
        lambda nvml, h: nvml.nvmlDeviceGetMaxClockInfo(h, nvml.NVML_CLOCK_SM),
    ),
    "memory clock": _one(
        "memory_clock_mhz",
        lambda nvml, h: nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_MEM),
    ),
    "temperature": _one(
        "temperature_c",
        lambda nvml, h: nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU),
    ),
    "power": _one("power_w", lambda nvml, h: nvml.nvmlDeviceGetPowerUsage(h) / 1000),
    "power limit": _one(
        "power_limit_w", lambda nvml, h: nvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000
    ),
    "throttle reasons": _one(
        "throttle_reasons",
        lambda nvml, h: throttle_reasons(
            int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(h))
        ),
    ),
    "processes": _processes,
    "PCIe generation": _one(
        "pcie_generation",
        lambda nvml, h: int(nvml.nvmlDeviceGetCurrPcieLinkGeneration(h)),
    ),
    "PCIe width": _one(
        "pcie_width", lambda nvml, h: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(h))
    ),
    "highest PCIe generation": _one(
        "max_pcie_generation",
        lambda nvml, h: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(h)),
    ),
    "highest PCIe width": _one(
        "max_pcie_width", lambda nvml, h: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(h))
    ),
    "NVLink": _nvlinks,
    "ECC errors": _ecc,
    "remapped rows": _remapped_rows,
    "CPU affinity": _near_cpus,
}
"""What is asked of a GPU, by its name in `missing`."""


NO_MIG = 0
"""NVML_DEVICE_MIG_DISABLE: the whole GPU belongs to whoever uses it."""


class EnergyError(Exception):
    """A GPU has no energy counter that can be used; the message says why."""


class EnergyReading(NamedTuple):
    """The counters at one moment, in millijoules by GPU; only differences mean anything."""

    at_s: float
    millijoules: dict[str, int]


class EnergyMeter:
    """Reads the energy counters of a rank's GPUs; `missing` has the reason if one has none.

    A counter has the millijoules of the whole board since the driver was loaded (Volta and newer).
    It advances every 20 to 100 ms (PETSc, PetscLogGpuEnergyMeter). A GPU in MIG mode has no counter
    that belongs to one of its instances.
    """

    def __init__(self, uuids: tuple[str, ...], nvml: Any = None) -> None:
        """Open the counters of the GPUs with these UUIDs; none on the CPU."""
        self.missing: list[str] = []
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        if not uuids:
            return
        try:
            self._nvml = open_nvml(nvml)
            self._open(uuids)
            self.read()
        except (
            Exception
        ) as error:  # no NVML, no permission, no counter: not worth a failed run
            self._give_up(error)

    def _open(self, uuids: tuple[str, ...]) -> None:
        for uuid in uuids:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
            if self._is_shared(handle):
                raise EnergyError(
                    f"{uuid} is shared by MIG, its counter is of all instances"
                )
            self._handles[uuid] = handle

    def _is_shared(self, handle: Any) -> bool:
        """Return whether a GPU is divided by MIG; GPUs that cannot be do not know the question."""
        try:
            mode, _ = self._nvml.nvmlDeviceGetMigMode(handle)
        except self._nvml.NVMLError:
            return False
        return bool(mode != NO_MIG)

    def read(self) -> EnergyReading:
        """Return the counters now; after a fault, and on the CPU, there are none."""
        counters: dict[str, int] = {}
        try:
            for uuid, handle in self._handles.items():
                counters[uuid] = int(
                    self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
                )
        except Exception as error:  # a GPU before Volta, or one that fell off the bus
            self._give_up(error)
            counters = {}
        return EnergyReading(time.perf_counter(), counters)

    def since(self, before: EnergyReading) -> tuple[Energy, ...] | None:
        """Return the energy of every GPU since a reading; None if not all of them have one."""
        after = self.read()
        if (
            not before.millijoules
            or before.millijoules.keys() != after.millijoules.keys()
        ):
            return None
        window_s = after.at_s - before.at_s
        energies = []
        for uuid, start in before.millijoules.items():
            if after.millijoules[uuid] <= start:
                self._note(f"{uuid}: the counter did not advance in {window_s:.3g} s")
                return None
            value = joules(start, after.millijoules[uuid])
            energies.append(Energy(uuid=uuid, joules=value, window_s=window_s))
        return tuple(energies)

    def _give_up(self, error: Exception) -> None:
        self._handles = {}
        self._note(_reason(error))

    def _note(self, reason: str) -> None:
        if not self.missing:
            self.missing.append(f"energy: {reason}")
