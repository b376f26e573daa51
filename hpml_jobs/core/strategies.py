"""The strategies for averaging gradients, and what each of them runs on and sends."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hpml_jobs.core.formulas import bus_factor, ring_factor
from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.value import known


class Device(StrEnum):
    """The device that a worker computes on."""

    CUDA = "cuda"
    CPU = "cpu"


class SyncBuffers(StrEnum):
    """The way in which replicas synchronize BatchNorm statistics."""

    ON = "on"  # every forward sends rank 0's buffers to all ranks
    OFF = "off"  # every rank keeps its own
    SYNCBN = "syncbn"  # computed over the images of all ranks (SyncBatchNorm)


class BandwidthKind(StrEnum):
    """The kind of bandwidth that Table 3 shows for a strategy (GB/s of gradients)."""

    BUS = "bus"  # nccl-tests' busbw of all-reduces
    # the busbw of a ring all-reduce that takes the time of its messages
    NOMINAL = "nominal"
    ROOT_WIRE = "root_wire"  # what passes through the network link of rank 0
    SHARDED = "sharded"  # nccl-tests' busbw of reduce-scatters

    def wire_bytes(self, sent_bytes: float, processes: int) -> float:
        """Return the bytes that the bandwidth divides by time, for bytes counted on one rank.

        >>> [kind.wire_bytes(100.0, 4) for kind in BandwidthKind]
        [150.0, 150.0, 300.0, 75.0]
        """
        if self is BandwidthKind.ROOT_WIRE:
            return (processes - 1) * sent_bytes
        if self is BandwidthKind.SHARDED:
            return bus_factor(CollectiveKind.REDUCE_SCATTER, processes) * sent_bytes
        return ring_factor(processes) * sent_bytes


class Sharded(StrEnum):
    """What each rank keeps only its part of, between two iterations."""

    NOTHING = "nothing"
    OPTIMIZER = "optimizer"  # the state of the optimizer
    PARAMETERS = "parameters"  # parameters, gradients and the state of the optimizer


class Strategy(StrEnum):
    """The way in which gradients are averaged."""

    SINGLE = "single"
    DP = "dp"
    DDP = "ddp"
    ALLREDUCE = "allreduce"
    ALLREDUCE_FLAT = "allreduce_flat"
    GATHER_SCATTER = "gather_scatter"
    ZERO1 = "zero1"
    FSDP = "fsdp"

    @property
    def traffic(self) -> "Traffic":
        """Return the description of the strategy: devices, and the data that a rank sends."""
        return TRAFFIC[self]

    @property
    def under_torchrun(self) -> bool:
        """Return whether torchrun starts one process per GPU."""
        return self.traffic.under_torchrun


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The devices of a strategy and the data that one rank sends; checks and tables look it up.

    `gradients` maps each kind of collective that carries gradients to how often a rank passes all
    of them through it in one iteration; None where the number of bytes is not known beforehand.
    `forward_in_new_threads` says that each forward pass starts threads of its own.
    `sync_buffers` is what it does with BatchNorm buffers by itself, and `may_sync_buffers` whether
    a cell may ask for another way. `shards` is what a rank keeps a part of. `defers_exchange` says
    whether gradients of several backwards can be exchanged once, `may_compile` whether compile=
    applies. `casts_parameters` says that in
    bf16 and fp16 it casts the parameters that it gathers, so torch.autocast has nothing to do.
    `refusal` says why `devices`, `min_gpus`, `max_gpus` or `max_nodes` are limited; None is no
    limit.
    """

    meaning: str
    gradients: Mapping[CollectiveKind, int | None]
    bandwidth: BandwidthKind = BandwidthKind.BUS
    overlaps_backward: bool = False
    under_torchrun: bool = True
    forward_in_new_threads: bool = False
    sync_buffers: SyncBuffers = SyncBuffers.OFF
    may_sync_buffers: bool = False
    shards: Sharded = Sharded.NOTHING
    defers_exchange: bool = True
    may_compile: bool = True
    casts_parameters: bool = False
    devices: frozenset[Device] = frozenset(Device)
    min_gpus: int = 1
    max_gpus: int | None = None
    max_nodes: int | None = None
    refusal: str = ""

    @property
    def passes(self) -> int | None:
        """Return how often a rank sends all its gradients per iteration; None if not known."""
        counts = list(self.gradients.values())
        fixed = known(counts)
        return sum(fixed) if len(fixed) == len(counts) else None


TRAFFIC: Mapping[Strategy, Traffic] = {
    Strategy.SINGLE: Traffic(
        meaning="one process on one GPU, the baseline",
        gradients={},
        under_torchrun=False,
        sync_buffers=SyncBuffers.ON,
        max_gpus=1,
        max_nodes=1,
        refusal="single is one process on one GPU",
    ),
    Strategy.DP: Traffic(
        defers_exchange=False,
        may_compile=False,
        meaning="torch.nn.DataParallel: one process drives all GPUs of a node",
        gradients={CollectiveKind.REDUCE: None},
        bandwidth=BandwidthKind.NOMINAL,
        under_torchrun=False,
        forward_in_new_threads=True,
        sync_buffers=SyncBuffers.ON,
        devices=frozenset({Device.CUDA}),
        max_nodes=1,
        refusal="DataParallel is one process on one node, and on a CPU it silently runs one "
        "replica",
    ),
    Strategy.DDP: Traffic(
        meaning="DistributedDataParallel: all-reduces of buckets, during backward",
        gradients={CollectiveKind.ALL_REDUCE: 1},
        overlaps_backward=True,
        sync_buffers=SyncBuffers.ON,
        may_sync_buffers=True,
    ),
    Strategy.ALLREDUCE: Traffic(
        meaning="an all-reduce of every gradient, after backward",
        gradients={CollectiveKind.ALL_REDUCE: 1},
    ),
    Strategy.ALLREDUCE_FLAT: Traffic(
        meaning="one all-reduce of all gradients in one message, after backward",
        gradients={CollectiveKind.ALL_REDUCE: 1},
    ),
    Strategy.GATHER_SCATTER: Traffic(
        meaning="rank 0 gathers every gradient and scatters the mean, after backward",
        gradients={CollectiveKind.GATHER: 1, CollectiveKind.SCATTER: 1},
        bandwidth=BandwidthKind.ROOT_WIRE,
    ),
    Strategy.ZERO1: Traffic(
        meaning="ZeRO-1: ddp with ZeroRedundancyOptimizer, which shards the optimizer's state",
        gradients={CollectiveKind.ALL_REDUCE: 1},
        overlaps_backward=True,
        sync_buffers=SyncBuffers.ON,
        shards=Sharded.OPTIMIZER,
        min_gpus=2,
        refusal="one process has nobody to share the optimizer's state with",
    ),
    Strategy.FSDP: Traffic(
        meaning="FSDP2 (fully_shard): ZeRO-3",
        gradients={CollectiveKind.REDUCE_SCATTER: None},
        bandwidth=BandwidthKind.SHARDED,
        overlaps_backward=True,
        may_compile=False,
        casts_parameters=True,
        shards=Sharded.PARAMETERS,
        min_gpus=2,
        refusal="one process has nobody to share the parameters with",
    ),
}
"""The description of every strategy; a new one needs no other branch outside the worker."""


BASELINE = Strategy.SINGLE
"""The strategy that others are compared with."""


def is_baseline(strategy: Strategy, treatment: str, path: str = "") -> bool:
    """Return whether such a cell is a baseline: the plain loop on one GPU.

    Nothing is changed in it but its training path: each path has its own baseline.
    """
    return strategy is BASELINE and treatment == path


class Loader(StrEnum):
    """Where images are augmented and put together into batches."""

    WORKERS = "workers"  # on CPUs, in the worker processes of a torch DataLoader
    DEVICE = "device"  # on the device, which holds all images from the start
