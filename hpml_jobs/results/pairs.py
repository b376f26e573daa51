"""Pairs of rows with equal global batches: strong scaling."""

from typing import NamedTuple

from hpml_jobs.core import formulas
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import Row, by_key, reference_among


class Pair(NamedTuple):
    """The same global batch, or batch per GPU, on the reference and on more GPUs.

    The reference is one GPU, or the smallest size.
    """

    reference: Row
    parallel: Row

    @property
    def reference_s(self) -> float:
        """Seconds of the reference's epoch."""
        return self.reference.figures.epoch_s

    @property
    def parallel_s(self) -> float:
        """Seconds of the other epoch."""
        return self.parallel.figures.epoch_s

    @property
    def global_batch(self) -> int:
        """Samples of an iteration on all GPUs."""
        return self.parallel.global_batch

    @property
    def speedup(self) -> float:
        """The ratio of the times; strong(N; G) = epoch_s(g, G / g) / epoch_s(N, G / N)."""
        return formulas.speedup(self.reference_s, self.parallel_s)

    @property
    def efficiency(self) -> float:
        """Share of the ideal speedup, N / g."""
        return formulas.efficiency(
            self.speedup, self.parallel.gpus, self.reference.gpus
        )

    @property
    def karp_flatt(self) -> float | None:
        """The serial fraction by Karp and Flatt; it may be outside (0, 1).

        None against more than one GPU: T1, which it divides by, is not known.
        """
        if not self.reference.is_baseline:
            return None
        return formulas.karp_flatt(self.speedup, self.parallel.gpus)

    @property
    def serial_fraction(self) -> float | None:
        """The same; None where it is no fraction."""
        value = self.karp_flatt
        return value if value is not None and 0 < value < 1 else None


def pairs(group: ConditionGroup) -> list[Pair]:
    """Return every pair with the same global batch in the grid."""
    rows = [((row.global_batch, row.path_of_batch), row) for row in group.timed]
    by_global_batch = by_key(rows)
    same_batch = []
    for batch, row in rows:
        candidates = by_global_batch[batch]
        # The same global batch may be a batch on N GPUs and N accumulated batches on one.
        candidates.sort(key=lambda candidate: candidate.path != row.path)
        reference = reference_among(row, candidates, group.baseline)
        if row.gpus > 1 and reference and reference.gpus < row.gpus:
            same_batch.append(Pair(reference, row))
    return same_batch
