"""The collectives of all ranks side by side: which belong together, and what each takes."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpml_jobs.core.measurements import CollectiveKind, Purpose

Array = NDArray[Any]
Seconds = NDArray[np.float64]

KINDS = tuple(kind.value for kind in CollectiveKind)
PURPOSES = tuple(purpose.value for purpose in Purpose)
"""The names that `collective_kind` and `collective_purpose` are indices of."""

UNROOTED = [KINDS.index(kind) for kind in CollectiveKind if not kind.is_rooted]

BATCH_PARTS, STALL = 6, 0
"""The first parts of an iteration add up to it; the first of them is the stall."""


class Collectives(NamedTuple):
    """The collectives of an instrumented epoch, those of one column together.

    They are in the order of rank 0's calls. Arrays are (ranks, collectives), seconds as in
    iterations.npz; `kind` and `purpose` are (collectives).
    """

    kind: Array
    purpose: Array
    iteration: Array
    start_s: Seconds
    duration_s: Seconds
    served_s: Seconds
    exposed_s: Seconds

    @property
    def is_rooted(self) -> NDArray[np.bool_]:
        """Whether a collective has a root, whose return says nothing of the other ranks'."""
        return ~np.isin(self.kind, UNROOTED)


def paired(arrays: Mapping[str, Array]) -> Collectives | None:
    """Return the collectives of all ranks; None without any, or where the ranks have others.

    `arrays` are those of iterations.npz. Messages that are in flight together, or between two
    iterations, may begin in another order on each rank: those of a kind and size belong together
    one after the other.
    """
    if not len(arrays.get("collective_served_s", ())):
        return None
    kinds, sizes, iterations = (
        arrays[f"collective_{name}"] for name in ("kind", "bytes", "iteration")
    )
    by_size = np.lexsort([iterations, sizes, kinds])
    for of_ranks in (kinds, sizes):
        ordered = np.take_along_axis(of_ranks, by_size, axis=1)
        if (ordered != ordered[0]).any():
            return None
    order = by_size[:, np.argsort(by_size[0])]

    def values(name: str) -> Array:
        return np.take_along_axis(arrays[f"collective_{name}"], order, axis=1)

    return Collectives(
        kind=kinds[0].astype(np.int64),
        purpose=arrays["collective_purpose"][0],
        iteration=values("iteration").astype(np.int64),
        start_s=values("start_s"),
        duration_s=values("s"),
        served_s=values("served_s"),
        exposed_s=values("exposed_s"),
    )


def service_s(
    collectives: Collectives, parts_s: Seconds, *, begin_together: bool
) -> Seconds | None:
    """Return the seconds that each collective takes once its last rank is there, (collectives).

    Ranks end an all-reduce together, so the least time of a rank is that. Of a rooted collective
    it is the time of the slowest receiver less its wait for the root: from the call of the last
    rank, or the end of the collective before, to the last return. The ranks' times are comparable
    where they end all-reduces together, or where their epochs `begin_together`; None where they
    are not. `parts_s` are the parts of the iterations, (ranks, iterations, parts).
    """
    least_s: Seconds = collectives.served_s.min(axis=0)
    is_rooted = collectives.is_rooted
    if not is_rooted.any():
        return least_s
    if is_rooted.all() and not begin_together:
        return None
    start_s = _batches_s(parts_s, collectives.iteration) + collectives.start_s
    end_s = start_s + collectives.duration_s
    if not is_rooted.all():
        together_s = end_s[:, ~is_rooted]
        late_s = np.median(together_s - together_s[0], axis=1)[:, np.newaxis]
        start_s, end_s = start_s - late_s, end_s - late_s
    last_end_s = end_s.max(axis=0)
    before_s = np.concatenate([[-np.inf], np.maximum.accumulate(last_end_s)[:-1]])
    between_s = last_end_s - np.maximum(start_s.max(axis=0), before_s)
    received_s = np.clip(between_s, 0.0, collectives.duration_s.max(axis=0))
    return np.where(is_rooted, received_s, least_s)


def _batches_s(parts_s: Seconds, iterations: Array) -> Seconds:
    """Return when the batch of each collective's iteration came, since the epoch's begin."""
    of_iterations_s = parts_s[:, :, :BATCH_PARTS].sum(axis=2)
    begins_s = np.cumsum(of_iterations_s, axis=1) - of_iterations_s
    return np.take_along_axis(begins_s + parts_s[:, :, STALL], iterations, axis=1)
