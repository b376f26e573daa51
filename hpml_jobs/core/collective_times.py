"""The collectives of all ranks side by side: which belong together, and what each takes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpml_jobs.core.measurements import UNROOTED, CollectiveKind, Purpose, Role
from hpml_jobs.core.rank import Rank

Array = NDArray[Any]
Seconds = NDArray[np.float64]

KINDS = tuple(kind.value for kind in CollectiveKind)
PURPOSES = tuple(purpose.value for purpose in Purpose)
"""The names that `collective_kind` and `collective_purpose` are indices of."""

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
        return ~np.isin(self.kind, [KINDS.index(kind) for kind in UNROOTED])


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


class Begins(NamedTuple):
    """When each rank began an epoch: by one clock, or only as near as a barrier brings them."""

    seconds: Sequence[float]
    is_one_clock: bool


def begins_of(ranks: Sequence[Rank], *, meet: bool) -> Begins | None:
    """Return when the ranks began their instrumented epoch; None where clocks are not comparable.

    The processes of a host have one clock. Ranks that `meet` before an epoch begin it together.
    """
    epochs = [rank.epoch(Role.INSTRUMENTED) for rank in ranks]
    begun_s = [epoch.started_s for epoch in epochs if epoch]
    known_s = [begin_s for begin_s in begun_s if begin_s is not None]
    hosts = {rank.host for rank in ranks}
    if len(hosts) == 1 and len(known_s) == len(ranks):
        first_s = min(known_s)
        return Begins([begin_s - first_s for begin_s in known_s], is_one_clock=True)
    if not meet:
        return None
    return Begins([0.0] * len(ranks), is_one_clock=False)


def service_s(
    collectives: Collectives, parts_s: Seconds, begins: Begins | None
) -> Seconds | None:
    """Return the seconds that each collective takes once its last rank is there, (collectives).

    They count from the call of the last rank, or the end of the collective before. Ranks end an
    all-reduce nearly together: with one clock the mean end counts, else the least time of a rank
    does. A rooted collective lasts until the last return, that of the slowest receiver.

    `parts_s` are the parts of the iterations, (ranks, iterations, parts). Where `begins` are not
    known, ranks are compared by the ends of their all-reduces; None with rooted collectives alone.
    """
    is_rooted = collectives.is_rooted
    if begins is None and is_rooted.all():
        return None
    start_s = _batches_s(parts_s, collectives.iteration) + collectives.start_s
    end_s = start_s + collectives.duration_s
    if begins is None:
        together_s = end_s[:, ~is_rooted]
        begin_s = np.median(together_s[0] - together_s, axis=1)
    else:
        begin_s = np.array(begins.seconds)
    start_s = start_s + begin_s[:, np.newaxis]
    end_s = end_s + begin_s[:, np.newaxis]
    until_s = np.where(is_rooted, end_s.max(axis=0), end_s.mean(axis=0))
    before_s = np.concatenate([[-np.inf], np.maximum.accumulate(until_s)[:-1]])
    between_s = until_s - np.maximum(start_s.max(axis=0), before_s)
    service: Seconds = np.clip(between_s, 0.0, collectives.duration_s.max(axis=0))
    if begins is None or not begins.is_one_clock:
        service = np.where(is_rooted, service, collectives.served_s.min(axis=0))
    return service


def _batches_s(parts_s: Seconds, iterations: Array) -> Seconds:
    """Return when the batch of each collective's iteration came, since the epoch's begin."""
    of_iterations_s = parts_s[:, :, :BATCH_PARTS].sum(axis=2)
    begins_s = np.cumsum(of_iterations_s, axis=1) - of_iterations_s
    return np.take_along_axis(begins_s + parts_s[:, :, STALL], iterations, axis=1)
