"""Iterations of several micro-steps: with accumulate=K, K batches before one optimizer step."""

from collections.abc import Sequence
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hpml_jobs.worker.instruments.timing import IterationTimes


class MicroSteps:
    """The micro-steps of an epoch, in groups of `accumulate`; the last group may be smaller.

    `samples` are those of the epoch on this rank, and `batch` those of a full micro-step. With
    `accumulate=1` every micro-step is an iteration.
    """

    def __init__(self, accumulate: int, count: int, batch: int, samples: int) -> None:
        self.count = count
        self._accumulate = accumulate
        self._in_group = batch * accumulate
        self._samples = samples

    @property
    def iterations(self) -> int:
        """Number of optimizer steps."""
        return ceil(self.count / self._accumulate)

    def ends_iteration(self, index: int) -> bool:
        """Return whether gradients are exchanged and weights changed after a micro-step."""
        return (index + 1) % self._accumulate == 0 or index + 1 == self.count

    def weight(self, index: int, samples: int) -> float:
        """Return the share of a micro-step in the mean loss of its iteration."""
        if self._accumulate == 1:
            return 1.0
        before = index // self._accumulate * self._in_group
        return samples / min(self._in_group, self._samples - before)

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum over the micro-steps of each iteration, along the first axis."""
        starts = np.arange(0, len(values), self._accumulate)
        sums: NDArray[np.float64] = np.add.reduceat(values, starts, axis=0)
        return sums

    def least_sum(self, values: Sequence[float]) -> float:
        """Return the least sum of an iteration; one with fewer micro-steps counts if it is alone.

        Of the host's times the least is taken, since a host far ahead of the device waits for it.
        """
        whole = max(1, len(values) // self._accumulate)
        return float(self.sums(np.array(values))[:whole].min())

    def sample_sums(self, samples: Sequence[int]) -> list[int]:
        """Return the number of samples of each iteration."""
        width = self._accumulate
        return [sum(samples[start : start + width]) for start in range(0, len(samples), width)]

    def mean_losses(self, losses: Tensor, samples: Sequence[int]) -> Tensor:
        """Return the mean loss over the samples of each iteration."""
        if self._accumulate == 1:
            return losses
        weights = np.array(samples, dtype=np.float64)
        sums = self.sums(losses.double().numpy() * weights) / self.sums(weights)
        return torch.from_numpy(sums).to(losses.dtype)

    def times(self, times: IterationTimes) -> IterationTimes:
        """Return the times of the iterations from those of their micro-steps."""
        if self._accumulate == 1:
            return times
        step_s, stall_s = self.sums(times.step_s), self.sums(times.stall_s)
        return times._replace(step_s=step_s, stall_s=stall_s, batch_stall_s=times.stall_s)
