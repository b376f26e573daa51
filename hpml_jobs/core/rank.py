"""The measurements of one process, and which process the others wait for."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from statistics import median
from typing import Any

import msgspec

from hpml_jobs.core.gpus import Card
from hpml_jobs.core.measurements import (
    TRAINING,
    Communication,
    Epoch,
    Phases,
    Role,
    Scheduling,
)
from hpml_jobs.core.value import Value

EQUAL_WAITING = 0.02
"""Ranks whose exposed communication differs by at most this share of the epoch wait equally.

More than balanced ranks differ by, and less than half of the limit of the check `imbalance`: of
ranks that wait for each other in turn, microseconds must not decide which one is shown.
"""


class Startup(Value, frozen=True, kw_only=True):
    """The time of one rank from the start of its job to its first iteration, in seconds.

    The parts follow each other. `launch_s` is from the start of the job's wrapper to that of this
    process, torchrun included; `imports_s` is Python, torch and this program; `process_group_s` the
    device and the process group; `data_s` the data set; `model_s` the model, its wrapper, the
    loader and the optimizer; `facts_s` the facts of the machine, which rank 0 reads. The last two
    are of the warm-up epoch: `first_batch_s` until its first batch is there, `first_iteration_s`
    until that iteration is done. A part is None where the system does not report it.
    """

    launch_s: float | None = None
    imports_s: float | None = None
    process_group_s: float | None = None
    data_s: float | None = None
    model_s: float | None = None
    facts_s: float | None = None
    first_batch_s: float | None = None
    first_iteration_s: float | None = None

    @property
    def total_s(self) -> float | None:
        """Seconds from the start of the job until the first iteration is done."""
        parts_s = msgspec.structs.astuple(self)
        return None if None in parts_s else sum(parts_s)


class NodeSystem(Value, frozen=True, kw_only=True):
    """The software and hardware of one node that may differ from that of the first one."""

    cpu_model: str = ""
    kernel: str = ""
    driver: str | None = None


TRAINED = (*TRAINING, "plain")
"""Roles of the epochs that train the model."""


class Rank(Value, frozen=True, kw_only=True, dict=True):
    """The measurements of one process; dp is one process that drives several devices.

    `pid`, `boot_id` and `started_ticks` (the process's start after boot, /proc/self/stat) name the
    process: no two cells and no two ranks have the same. None before schema 5. `held_elements` are
    the elements of the parameters that it alone keeps (fsdp) or whose optimizer state it alone
    keeps (zero1); None where every rank keeps all. `optimizer_state_bytes` are those of the tensors
    that the optimizer keeps between two iterations: of SGD with momentum one value for each element
    that this rank updates, of AdamW two and a count for each tensor; None before version 0.8.0.
    `microbenchmark_scheduling` are the system's accounts of it; None before version 0.9.0.
    """

    rank: int
    local_rank: int
    host: str
    devices: tuple[str, ...]  # names of the devices, 'cpu' with device=cpu
    device_uuids: tuple[str, ...] = ()
    affinity: tuple[int, ...] = ()  # CPU ids this process may run on
    threads: int
    loader_workers: int
    epochs: tuple[Epoch, ...]
    test_loss: float | None = None
    test_accuracy: float | None = None
    test_samples: int = 0
    # of the timed epoch; before 0.8.0 on GPUs of the process
    peak_memory_bytes: int | None = None
    held_elements: int | None = None
    optimizer_state_bytes: int | None = None
    parameters_hash: str = ""  # sha256 of the replica after the last epoch of training
    buffers_hash: str = ""
    initial_hash: str | None = (
        None  # sha256 of an own model's parameters before training
    )
    compilation: Any = None  # before 1.0
    communication: Communication | None = None
    cards: tuple[Card, ...] = ()
    stored_images: Any = None  # before 1.0
    pid: int | None = None
    boot_id: str | None = None
    started_ticks: int | None = None
    startup: Startup | None = None  # None before version 0.8.0
    microbenchmark_scheduling: Scheduling | None = None
    # on the first rank of each node; None before version 0.9.0
    node: NodeSystem | None = None

    def epoch(self, role: Role) -> Epoch | None:
        """The first epoch of a role, if it was run."""
        for epoch in self.epochs:  # many times for each record, so no generator
            if epoch.role == role:
                return epoch
        return None

    @cached_property
    def timed(self) -> Epoch:
        """The epoch whose time is reported."""
        timed = self.epoch(Role.TIMED)
        if timed is None:
            raise ValueError(f"rank {self.rank} has no timed epoch")
        return timed

    @property
    def trained(self) -> list[Epoch]:
        """Its epochs of training, in their order."""
        return [epoch for epoch in self.epochs if epoch.role in TRAINED]

    @cached_property
    def phases(self) -> Phases | None:
        """The phases of its instrumented epoch."""
        epoch = self.epoch(Role.INSTRUMENTED)
        return epoch.phases if epoch else None


def longest_epoch_s(ranks: Sequence[Rank], role: Role) -> float | None:
    """Return the longest epoch of a role over the ranks of a cell, if it was run."""
    epochs = [rank.epoch(role) for rank in ranks]
    return max((epoch.epoch_s for epoch in epochs if epoch), default=None)


def timed_s(ranks: Iterable[Rank]) -> float:
    """Return the seconds of the timed epoch or window as it was measured: the longest."""
    return max(rank.timed.epoch_s for rank in ranks)


def most_stalled(ranks: Iterable[Rank]) -> Rank:
    """Return the rank with the largest stall of the timed epoch (ties: the smallest number)."""
    return max(ranks, key=lambda rank: (rank.timed.stall_s, -rank.rank))


def least_waiting(runs: Iterable[Sequence[Rank]]) -> int | None:
    """Return the number of the rank that waits least in the instrumented epochs of a cell's runs.

    It has the smallest exposed communication, the part in forward included, by the median over the
    runs; of ranks that wait equally, the smallest number. None without phases.
    """
    shares: dict[int, list[float]] = {}
    for ranks in runs:
        epoch_s = longest_epoch_s(ranks, Role.INSTRUMENTED)
        for rank in ranks:
            if rank.phases and epoch_s:
                shares.setdefault(rank.rank, []).append(rank.phases.exposed_s / epoch_s)
    waits = {number: median(of_runs) for number, of_runs in shares.items()}
    least = min(waits.values(), default=0.0) + EQUAL_WAITING
    return min(
        (number for number, wait in waits.items() if wait <= least), default=None
    )
