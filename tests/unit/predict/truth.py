"""Observations of a machine whose compute, links and interference are known."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2
from typing import Any

from hpml_jobs.core.formulas import ring_factor
from hpml_jobs.core.measurements import CollectiveKind
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.predict.place import Observation, SentMessages, Size, Sweep

BUCKETS = (1_000_000, 24_000_000, 20_000_000)
"""Bytes of DDP's buckets, the first one that is sent first."""


@dataclass(frozen=True)
class Machine:
    """Its times follow the model: compute(batch) + exposed exchange + interference."""

    fixed_s: float = 0.010
    per_sample_s: float = 0.0005
    in_node_gb_per_s: float = 20.0
    node_gb_per_s: float = 5.0
    startup_s: float = 20e-6
    share: float = 0.3
    interference_s: float = 0.004
    buckets: tuple[int, ...] = BUCKETS
    gpus_per_node: int = 8

    def compute_s(self, batch: int) -> float:
        return self.fixed_s + self.per_sample_s * batch

    def message_s(self, size: int, place: Size) -> float:
        """An all-reduce; the startup grows with log2, as in a tree."""
        speed = self.node_gb_per_s if place.nodes > 1 else self.in_node_gb_per_s
        bytes_s = ring_factor(place.gpus) * size / (1e9 * speed)
        return log2(place.gpus) * self.startup_s + bytes_s

    def exchange_s(self, place: Size) -> float:
        return sum(self.message_s(size, place) for size in self.buckets)

    def backward_s(self, batch: int) -> float:
        return 0.6 * self.compute_s(batch)

    def exposed_s(self, batch: int, place: Size) -> float:
        """A share of it, and what backward has no time to hide."""
        window_s = (1 - 1 / len(self.buckets)) * self.backward_s(batch)
        exchange_s = self.exchange_s(place)
        return max(self.share * exchange_s, exchange_s - window_s)

    def step_s(self, batch: int, place: Size, accumulate: int = 1) -> float:
        if place.gpus == 1:
            return accumulate * self.compute_s(batch)
        rest_s = self.exposed_s(batch, place) + self.interference_s
        return accumulate * self.compute_s(batch) + rest_s

    def observation(
        self, gpus: int, batch: int, nodes: int = 1, accumulate: int = 1, **changes: Any
    ) -> Observation:
        place = Size(nodes, gpus)
        values: dict[str, Any] = {
            "gpus": gpus,
            "nodes": nodes,
            "batch": batch,
            "accumulate": accumulate,
            "strategy": Strategy.DDP if gpus > 1 else Strategy.SINGLE,
            "step_s": self.step_s(batch, place, accumulate),
        }
        if gpus > 1:
            values |= {
                "unsynced_s": accumulate * self.compute_s(batch),
                "backward_s": self.backward_s(batch),
                "optimizer_s": 0.0,
                "exposed_s": self.exposed_s(batch, place),
                "messages": self.messages(),
                "sweeps": (self.sweep(place),),
            }
        return Observation(**(values | changes))

    def messages(self) -> tuple[SentMessages, ...]:
        return tuple(
            SentMessages(kind=CollectiveKind.ALL_REDUCE, bytes=size, per_iteration=1.0)
            for size in self.buckets
        )

    def sweep(self, place: Size) -> Sweep:
        sizes = sorted({*(2**power for power in range(10, 29)), *self.buckets})
        times_s = {size: self.message_s(size, place) for size in sizes}
        return Sweep(kind=CollectiveKind.ALL_REDUCE, times_s=times_s)

    def cells(self, sizes: Iterable[tuple[int, int]], batches: Iterable[int]) -> list[Observation]:
        """Cells of every size (GPUs, nodes) at every batch."""
        listed = list(batches)
        return [self.observation(gpus, b, nodes) for gpus, nodes in sizes for b in listed]
