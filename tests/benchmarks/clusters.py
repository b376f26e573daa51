"""How often the band of a prediction across nodes contains the truth, on simulated clusters.

    python tests/benchmarks/clusters.py [--clusters 50]

A cluster has 8 GPUs a node, and speeds, latencies, a model and noise of its own. DDP's buckets are
sent one after another while backward computes; an iteration takes as long as its slowest rank; each
launch differs by 0.5 to 2.5 %. All-reduces are rings over nodes with rings inside them
(hierarchical), or one ring over all GPUs (flat); a spine that is oversubscribed has half to a
quarter of the speed beyond 4 nodes. Prints the table of docs/predict_validation.json; the test
tests/unit/extras/predict/test_clusters.py runs the same functions with fewer clusters.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from random import Random
from statistics import NormalDist, mean
from typing import NamedTuple

from hpml_jobs.core.place import Place, Setup
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.extras.predict.forecast import Refusal, predict
from hpml_jobs.extras.predict.place import MeasuredPlace, Target


class Size(NamedTuple):
    """A number of GPUs on a number of nodes."""

    nodes: int
    gpus: int


GPUS_PER_NODE = 8
BATCHES = (32, 128)
SPINE_NODES = 4
"""Nodes below one switch."""

BUCKET_BYTES = 25_000_000


@dataclass(frozen=True)
class Cluster:
    """A machine and a model; the shares are of an iteration's computation."""

    random: Random
    flat: bool
    spine: float  # speed of a node's links beyond SPINE_NODES, as a share
    fixed_s: float
    per_sample_s: float
    buckets: int
    in_node_latency_s: float
    node_latency_s: float
    in_node_bytes_per_s: float
    node_bytes_per_s: float
    jitter: float
    contention: float
    launch_noise: float

    def compute_s(self, batch: int, ranks: int) -> float:
        """Return forward and backward on the slowest rank."""
        latest = NormalDist().inv_cdf(ranks / (ranks + 1)) if ranks > 1 else 0.0
        return (self.fixed_s + self.per_sample_s * batch) * (1 + self.jitter * latest)

    def message_s(self, sent: int, size: Size) -> float:
        """Return an all-reduce."""
        inside = min(size.gpus, GPUS_PER_NODE)
        in_ring_s = _ring_s(
            sent, inside, self.in_node_latency_s, self.in_node_bytes_per_s
        )
        if size.nodes == 1:
            return in_ring_s
        speed = self.node_bytes_per_s * (
            self.spine if size.nodes > SPINE_NODES else 1.0
        )
        if self.flat:
            return _ring_s(sent, size.gpus, self.node_latency_s, speed)
        return in_ring_s + _ring_s(sent, size.nodes, self.node_latency_s, speed)

    def exposed_s(self, batch: int, size: Size) -> float:
        """Return what the pipeline of buckets has not sent when backward ends."""
        backward_s = 2 / 3 * self.compute_s(batch, 1)
        end_s = 0.0
        for bucket in range(1, self.buckets + 1):
            ready_s = backward_s * bucket / self.buckets
            end_s = max(end_s, ready_s) + self.message_s(BUCKET_BYTES, size)
        return end_s - backward_s

    def step_s(self, batch: int, size: Size) -> float:
        """Return an iteration without the noise of a launch."""
        alone_s = self.compute_s(batch, size.gpus)
        if size.gpus == 1:
            return alone_s
        sending_s = min(
            2 / 3 * alone_s, self.buckets * self.message_s(BUCKET_BYTES, size)
        )
        return alone_s + self.exposed_s(batch, size) + self.contention * sending_s

    def observation(self, batch: int, size: Size) -> MeasuredPlace:
        """Return the median of three launches."""
        launch = self.random.lognormvariate(0.0, self.launch_noise / sqrt(2))
        step_s = launch * self.step_s(batch, size)
        return MeasuredPlace(place=_place(batch, size), step_s=step_s)


def _ring_s(sent: int, ranks: int, latency_s: float, bytes_per_s: float) -> float:
    return 2 * (ranks - 1) * (latency_s + sent / ranks / bytes_per_s)


def a_cluster(seed: int, *, flat: bool, spine: bool = False) -> Cluster:
    """Return a cluster and a model at random."""
    random = Random(seed)

    def between(low: float, high: float) -> float:
        return float(low * (high / low) ** random.random())

    return Cluster(
        random=random,
        flat=flat,
        spine=between(0.25, 0.5) if spine else 1.0,
        fixed_s=between(0.005, 0.05),
        per_sample_s=between(0.0003, 0.003),
        buckets=random.randint(2, 24),
        in_node_latency_s=between(4e-6, 15e-6),
        node_latency_s=between(5e-6, 20e-6),
        in_node_bytes_per_s=between(20e9, 250e9),
        node_bytes_per_s=between(8e9, 50e9),
        jitter=between(0.003, 0.03),
        contention=between(0.005, 0.08),
        launch_noise=between(0.005, 0.025),
    )


class Coverage(NamedTuple):
    """Of predictions: the share inside the band, its width, errors, and the share with a remark."""

    inside: float
    width: float
    error: float
    remarked: float


def coverage(
    clusters: Sequence[Cluster], measured: Sequence[int], asked: int
) -> Coverage:
    """Predict `asked` GPUs from `measured` numbers of them at all batches, on each cluster."""
    rows = []
    for cluster in clusters:
        cells = [
            cluster.observation(b, size_of(gpus)) for gpus in measured for b in BATCHES
        ]
        size = size_of(asked)
        targets = [Target(place=_place(batch, size)) for batch in BATCHES]
        for one in predict(cells, targets):
            if isinstance(one, Refusal):
                raise ValueError(f"no prediction: {one}")
            truth_s = cluster.observation(one.target.batch, size).step_s
            rows.append(
                (
                    one.low_s <= truth_s <= one.high_s,
                    one.high_s / one.step_s - 1,
                    abs(one.step_s / truth_s - 1),
                    bool(one.remarks),
                )
            )
    return Coverage(*(mean(column) for column in zip(*rows, strict=True)))


def size_of(gpus: int) -> Size:
    """Return so many GPUs on whole nodes."""
    return Size(-(-gpus // GPUS_PER_NODE), gpus)


def _place(batch: int, size: Size) -> Place:
    strategy = Strategy.DDP if size.gpus > 1 else Strategy.SINGLE
    return Place(Setup(size.gpus, size.nodes, strategy), batch)


CASES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1, 2, 4), 8),
    ((1, 8, 16), 32),
    ((1, 8, 16), 64),
    ((1, 8, 16), 128),
    ((1, 8, 16, 32), 128),
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=50)
    seeds = range(parser.parse_args().clusters)
    print("| GPUs measured -> asked | ring | in the band | width | error | remarked |")
    print("|:--|:--|--:|--:|--:|--:|")
    for spine in (False, True):
        for measured, asked in CASES:
            if spine and size_of(asked).nodes <= SPINE_NODES:
                continue
            for flat in (False, True):
                clusters = [a_cluster(seed, flat=flat, spine=spine) for seed in seeds]
                of = coverage(clusters, measured, asked)
                name = f"{', '.join(map(str, measured))} -> {asked}"
                ring = ("flat" if flat else "hierarchical") + (
                    ", spine" if spine else ""
                )
                texts = [f"{100 * share:.0f} %" for share in of]
                print("|", " | ".join((name, ring, *texts)), "|")


if __name__ == "__main__":
    main()
