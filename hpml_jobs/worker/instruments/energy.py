"""The energy of this rank's GPUs: NVML's counters, read before and after every epoch.

A counter has the millijoules of the whole board since the driver was loaded (Volta and newer). It
advances every 20 to 100 ms (PETSc, PetscLogGpuEnergyMeter). A GPU in MIG mode has no counter that
belongs to one of its instances. Nothing runs during the epoch.
"""

import time
from typing import Any, NamedTuple

from hpml_jobs.core.formulas import joules
from hpml_jobs.core.gpus import open_nvml
from hpml_jobs.core.measurements import Energy

NO_MIG = 0
"""NVML_DEVICE_MIG_DISABLE: the whole GPU belongs to whoever uses it."""


class EnergyError(Exception):
    """A GPU has no energy counter that can be used; the message says why."""


class EnergyReading(NamedTuple):
    """The counters at one moment, in millijoules by GPU; only differences mean anything."""

    at_s: float
    millijoules: dict[str, int]


class EnergyMeter:
    """Reads the counters of all GPUs of a rank; `missing` has the reason if one of them has none.

    NVML is initialized once, before training, because that may take seconds.
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
        except Exception as error:  # no NVML, no permission, no counter: not worth a failed run
            self._give_up(error)

    def _open(self, uuids: tuple[str, ...]) -> None:
        for uuid in uuids:
            handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
            if self._is_shared(handle):
                raise EnergyError(f"{uuid} is shared by MIG, its counter is of all instances")
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
                counters[uuid] = int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        except Exception as error:  # a GPU before Volta, or one that fell off the bus
            self._give_up(error)
            counters = {}
        return EnergyReading(time.perf_counter(), counters)

    def since(self, before: EnergyReading) -> tuple[Energy, ...] | None:
        """Return the energy of every GPU since a reading; None if not all of them have one."""
        after = self.read()
        if not before.millijoules or before.millijoules.keys() != after.millijoules.keys():
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
        self._note(str(error) or type(error).__name__)

    def _note(self, reason: str) -> None:
        if not self.missing:
            self.missing.append(f"energy: {reason}")
