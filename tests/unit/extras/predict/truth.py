"""Observations of a machine whose compute, links and interference are known."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2

from hpml_jobs.core.formulas import ring_factor
from hpml_jobs.core.place import Place, Setup
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.extras.predict.place import MeasuredPlace

BUCKETS = (1_000_000, 24_000_000, 20_000_000)
"""Bytes of DDP's buckets, the first one that is sent first."""


@dataclass(frozen=True)
class Machine:
    """Its times are compute(batch) + exposed exchange + interference."""

    fixed_s: float = 0.010
    per_sample_s: float = 0.0005
    in_node_gb_per_s: float = 20.0
    node_gb_per_s: float = 5.0
    startup_s: float = 20e-6
    share: float = 0.3
    interference_s: float = 0.004
    buckets: tuple[int, ...] = BUCKETS

    def compute_s(self, batch: int) -> float:
        return self.fixed_s + self.per_sample_s * batch

    def message_s(self, size: int, gpus: int, nodes: int) -> float:
        """An all-reduce; the startup grows with log2, as in a tree."""
        speed = self.node_gb_per_s if nodes > 1 else self.in_node_gb_per_s
        return log2(gpus) * self.startup_s + ring_factor(gpus) * size / (1e9 * speed)

    def exposed_s(self, batch: int, gpus: int, nodes: int) -> float:
        """A share of it, and what backward has no time to hide."""
        window_s = (1 - 1 / len(self.buckets)) * 0.6 * self.compute_s(batch)
        exchange_s = sum(self.message_s(size, gpus, nodes) for size in self.buckets)
        return max(self.share * exchange_s, exchange_s - window_s)

    def step_s(self, batch: int, gpus: int, nodes: int = 1) -> float:
        if gpus == 1:
            return self.compute_s(batch)
        return (
            self.compute_s(batch)
            + self.exposed_s(batch, gpus, nodes)
            + self.interference_s
        )

    def observation(self, gpus: int, batch: int, nodes: int = 1) -> MeasuredPlace:
        strategy = Strategy.DDP if gpus > 1 else Strategy.SINGLE
        place = Place(Setup(gpus, nodes, strategy), batch)
        return MeasuredPlace(place=place, step_s=self.step_s(batch, gpus, nodes))

    def cells(
        self, sizes: Iterable[tuple[int, int]], batches: Iterable[int]
    ) -> list[MeasuredPlace]:
        """Cells of every size (GPUs, nodes) at every batch."""
        listed = list(batches)
        return [
            self.observation(gpus, b, nodes) for gpus, nodes in sizes for b in listed
        ]
