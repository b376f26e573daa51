"""Simulated ranks with known causes: the arrays that they would record, and the same without one.

An iteration of a rank is: wait for a batch (from a loader that prefetches, or loaded by itself),
forward, backward with buckets whose all-reduces run beside it in order, optimizer. No noise.
"""

from typing import NamedTuple

import numpy as np

ALL_REDUCE, GRADIENTS = 0, 0
DEPTH = 2
"""Batches that each worker of the loader has in hand."""


class Epoch(NamedTuple):
    """A simulated epoch: its seconds, and the arrays of iterations.npz."""

    seconds: float
    arrays: dict[str, np.ndarray]


def simulate(
    ranks,
    iterations,
    *,
    forward,
    backward,
    optimizer,
    exchange=0.0,
    buckets=1,
    period=0.0,
    burst=1,
    loading=0.0,
):
    """Simulate an epoch; `forward`, `backward` and `loading` are (ranks, iterations).

    Every `period` a prefetching loader has a `burst` of batches; `loading` is what a rank takes
    itself. Seconds.
    """
    shape = (ranks, iterations)
    forward, backward, loading = (
        np.broadcast_to(values, shape) for values in (forward, backward, loading)
    )
    count = iterations * buckets if ranks > 1 else 0
    starts, ends, served, exposed = (np.zeros((ranks, count)) for _ in range(4))
    parts = np.zeros((*shape, 14))
    ready, taken = np.zeros(shape), np.zeros(shape)
    now, link_free = np.zeros(ranks), -np.inf
    for number in range(iterations):
        asked = now.copy()
        if period:
            before = ready[:, number - 1] if number else 0.0
            in_hand = (
                taken[:, number - DEPTH * burst] if number >= DEPTH * burst else 0.0
            )
            is_next = number % burst == 0
            ready[:, number] = (
                np.maximum(before, in_hand) + period if is_next else before
            )
            now = np.maximum(now, ready[:, number])
        batch = taken[:, number] = now = now + loading[:, number]
        computed = batch + forward[:, number] + backward[:, number]
        end = computed
        for bucket in range(count // iterations):
            column = number * buckets + bucket
            done = (bucket + 1) / buckets
            issued = batch + forward[:, number] + backward[:, number] * done
            finished = max(issued.max(), link_free) + exchange / buckets
            starts[:, column], ends[:, column] = issued - batch, finished - batch
            served[:, column] = finished - np.maximum(issued, link_free)
            exposed[:, column] = np.maximum(0, finished - end)
            end, link_free = np.maximum(end, finished), finished
        parts[:, number, 0] = batch - asked
        parts[:, number, 2] = forward[:, number]
        parts[:, number, 3] = backward[:, number]
        parts[:, number, 4] = end - computed
        parts[:, number, 5] = optimizer
        now = end + optimizer
    columns = np.repeat(np.arange(iterations), buckets if count else 0)
    arrays = {
        "parts_s": parts,
        "parts_last_stall_s": now.max() - now,
        "collective_start_s": starts,
        "collective_s": ends - starts,
        "collective_served_s": served,
        "collective_exposed_s": exposed,
        "collective_iteration": np.tile(columns, (ranks, 1)),
        "collective_bytes": np.full((ranks, count), 100),
        "collective_kind": np.full((ranks, count), ALL_REDUCE),
        "collective_purpose": np.full((ranks, count), GRADIENTS),
    }
    return Epoch(float(now.max()), arrays)
