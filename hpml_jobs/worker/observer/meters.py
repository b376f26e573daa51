"""What a window of a script is measured with: a clock of its GPU, and the system's accounts."""

import msgspec
import torch
from torch import Tensor
from torch.optim import Optimizer

from hpml_jobs.core.measurements import Epoch
from hpml_jobs.worker.instruments import facts
from hpml_jobs.worker.instruments.cards import CardReader, EnergyMeter
from hpml_jobs.worker.instruments.recorder import MemoryMeter
from hpml_jobs.worker.instruments.scheduling import SchedulingReader
from hpml_jobs.worker.instruments.timing import Clock, DeviceClock, Devices, clock_for


class PlacedClock(DeviceClock):
    """A clock of a GPU that need not be the script's current one."""

    def prepare(self, stamps: int) -> None:
        """Make ready for so many stamps."""
        with torch.cuda.device(self._devices[0]):
            super().prepare(stamps)

    def stamp(self) -> torch.Event:
        """Record the next event."""
        with torch.cuda.device(self._devices[0]):
            return super().stamp()


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the parameters of an optimizer, each once."""
    groups = optimizer.param_groups
    return list({id(p): p for group in groups for p in group["params"]}.values())


def devices_of(optimizer: Optimizer) -> Devices:
    """Return the devices of the optimizer's parameters that are like that of the first one."""
    devices = [
        *dict.fromkeys(parameter.device for parameter in parameters_of(optimizer))
    ]
    return tuple(device for device in devices if device.type == devices[0].type)


def clock_of(devices: Devices) -> Clock:
    """Return a clock of the first device; a window ends when all of them have done their work."""
    return PlacedClock(devices) if devices[0].type == "cuda" else clock_for(devices)


class Meters:
    """The accounts of the system and of the GPU over a window."""

    def __init__(self, device: torch.device) -> None:
        gpus = () if device.type == "cpu" else (device,)
        uuids = facts.device_uuids((device,))
        self.scheduling = SchedulingReader(None)
        self.energy, self.memory, self.cards = (
            EnergyMeter(uuids),
            MemoryMeter(gpus, resets=False),
            CardReader(uuids),
        )

    def start(self) -> None:
        """Read all before a window."""
        self.memory.start()
        self._energy = self.energy.read()
        self._scheduling = self.scheduling.read()

    def add_to(self, epoch: Epoch) -> Epoch:
        """Return the epoch of the window that ends now with what was read of it."""
        return msgspec.structs.replace(
            epoch,
            scheduling=self.scheduling.since(self._scheduling),
            energy=self.energy.since(self._energy),
            memory=self.memory.since_start(),
        )

    @property
    def missing(self) -> list[str]:
        """One reason for each value that could not be read."""
        return [*self.scheduling.missing, *self.energy.missing, *self.cards.missing]
