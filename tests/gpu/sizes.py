"""How much the parts do on a card: workloads, sizes, and their pace on slower ones."""

from typing import NamedTuple

from hpml_jobs.core.built_in import RESNET18_PARAMETERS
from hpml_jobs.core.workload import Workload
from hpml_jobs.results.gpus import gpu_key, peaks

RESNET = Workload(
    name="synthetic",
    model="resnet18_cifar",
    data="synthetic",
    images=50_000,
    parameters=RESNET18_PARAMETERS,
)

GPT2 = Workload(
    name="gpt2_124m",
    model="gpt",
    data="tokens",
    images=512,
    lr=0.0006,
    weight_decay=0.1,
    optimizer="adamw",
    test_batch=4,
    layers=12,
    heads=12,
    width=768,
    context=1024,
    vocab=50_257,
    padded_vocab=50_304,
)

MOST_SHRUNK = 4
"""Slow cards do this many times less work at most: shorter epochs measure less well."""


class Pace(NamedTuple):
    """The work of parts on a card, and its time limits, as multiples of those on an H200."""

    work: float
    limits: float


def reached_tflop_per_s(card: str) -> float:
    """Return about what training a ResNet reaches of a card's peaks; an unknown card is a V100.

    The shares are those of ResNet-50 in NVIDIA/DeepLearningExamples on V100 and A100.
    """
    peak = peaks()[gpu_key(card) or "v100"]
    if peak.tf32 is None:
        return 0.57 * peak.fp32
    return max(0.15 * peak.tf32, 0.3 * peak.fp32)


def pace_of(card: str | None) -> Pace:
    """Return the pace of a card by what training a ResNet reaches on it.

    >>> cards = ("NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Quadro RTX 8000")
    >>> [tuple(round(factor, 2) for factor in pace_of(card)) for card in cards]
    [(1.0, 1.0), (0.32, 1.0), (0.25, 2.0)]
    """
    slowness = max(1.0, reached_tflop_per_s("h200") / reached_tflop_per_s(card or ""))
    shrunk = min(slowness, MOST_SHRUNK)
    return Pace(1 / shrunk, slowness / shrunk)


class Sizes(NamedTuple):
    """How much the parts do; `iterations` are those of an epoch in this process."""

    workload: Workload = RESNET
    transformer: Workload = GPT2
    batch: int = 128
    iterations: int = 100
    stamps: int = 20_000
    late_s: float = 0.03
    probe_s: float = 5.0
    cell_epoch_images: int = 50_000
    rounds: int = 8
    pairs: int = 6
    launched_images: int = 25_600
    launched_workers: int = 8
    launched_model: str = "resnet18_cifar"
    ladder_batch: int = 65_536

    def at(self, pace: Pace) -> "Sizes":
        """Return the sizes for a card that does less work in the time."""
        names = ("iterations", "cell_epoch_images", "launched_images")
        return self._replace(
            **{name: int(getattr(self, name) * pace.work) for name in names}
        )


SHORT = Sizes(
    iterations=60,
    stamps=5_000,
    probe_s=1.0,
    cell_epoch_images=12_800,
    rounds=3,
    pairs=2,
    launched_images=6_400,
    launched_workers=4,
)
"""Sizes of a visit of some minutes: less work, so more noise."""
