"""The model of measured cells: t = compute(batch) + exposed communication + interference.

A target is predicted from its anchor, the largest measured size that is not larger: the anchor's
time at that batch, plus the difference of the exposed communication. What a measured cell takes
beyond compute and exposed communication is interference, one constant per iteration, and stays.
docs/choose_predict.md derives it.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import fsum, hypot, log
from typing import NamedTuple

from hpml_jobs.core.strategies import BASELINE, is_baseline
from hpml_jobs.predict import least_squares
from hpml_jobs.predict.compute import Compute, slowdown
from hpml_jobs.predict.curves import batch_curve, nearest_batch
from hpml_jobs.predict.exposure import hiding_of, messages_at
from hpml_jobs.predict.network import Network, Size, UnknownPriceError, size_of
from hpml_jobs.predict.values import (
    CannotPredictError,
    Observation,
    Parts,
    Place,
    Target,
    changed,
)

GIVEN_NETWORK = (
    "the network is as given, not measured: the band holds messages that take twice as long"
)

LEAST_SIZES = 2
"""Sizes that a prediction of another size needs, one GPU included."""


class Estimate(NamedTuple):
    """The model's time of an iteration, its parts where known, and the measured place behind it.

    `doubt` is |log| of the ratio to the time where messages grow as in rings over nodes
    (`Network.as_rings`), and to that where messages by a sweep from elsewhere take twice as long.
    """

    step_s: float
    parts: Parts | None
    anchor: Observation
    remarks: tuple[str, ...]
    doubt: float = 0.0


class Kind(NamedTuple):
    """What all observations of a series share: strategy, training path and treatment."""

    strategy: str
    path: str
    treatment: str


def kind_of(place: Place) -> Kind:
    """Return the kind of a place."""
    return Kind(place.strategy.value, place.path, place.treatment)


class Model:
    """The model of one series: a strategy on several GPUs, and the plain loop of the same path."""

    def __init__(
        self, series: Sequence[Observation], single: Sequence[Observation], network: Network
    ) -> None:
        """Take the measured cells: `series` on several GPUs, `single` on one; none is needed."""
        self.network = network
        self.single = {cell.batch: cell for cell in single if cell.accumulate == 1}
        self.compute = Compute(self.single, series)
        self.series = list(series)

    @cached_property
    def sizes(self) -> list[Size]:
        """The measured sizes, from the smallest."""
        return sorted({size_of(cell) for cell in self.series})

    def estimate(self, target: Target) -> Estimate:
        """Return the time of a target.

        Raises:
            CannotPredictError: what it needs was not measured.
        """
        goal = size_of(target)
        size = self._anchor_size(target)
        if goal != size and len(self.sizes) + bool(self.single) < LEAST_SIZES:
            alone = changed(target, gpus=1, nodes=1, strategy=BASELINE, treatment=target.path)
            raise CannotPredictError(
                f"only one size was measured ({size.text}): a second one shows what more GPUs cost",
                alone,
            )
        cells = self._cells(size, target.accumulate)
        anchor = cells[nearest_batch(target.batch, cells)]
        base_s, remarks = self._at_batch(size, cells, target.batch)
        if target.accumulate != anchor.accumulate:
            further = target.accumulate - anchor.accumulate
            at_size = [cell for cell in self.series if size_of(cell) == size]
            base_s += further * self.compute.micro_step_s(at_size, target)
        change = self._change(anchor, target)
        step_s = base_s + change.added_s
        if step_s <= 0:
            raise CannotPredictError(
                f"the parts measured on {size.text} are longer than its iteration: repeat this cell"
            )
        return Estimate(
            step_s=step_s,
            parts=self._parts(anchor, target, step_s, change.exposed_s),
            anchor=anchor,
            remarks=(*remarks, *change.remarks),
            doubt=hypot(*(log((base_s + other_s) / step_s) for other_s in change.others_s)),
        )

    def _change(self, anchor: Observation, target: Target) -> "_Change":
        """Return how the exposed communication changes from the anchor's size to the target's.

        Raises:
            CannotPredictError: the exchange has no price at one of them.
        """
        goal, size = size_of(target), size_of(anchor)
        try:
            here = self._exposed(anchor, size, target.batch)
            there = self._exposed(anchor, goal, target.batch)
        except UnknownPriceError as missing:
            if goal == size:
                return _Change(0.0)
            raise CannotPredictError(str(missing), self._wanted(missing, target)) from missing
        is_given = there.given_slower_s > there.seconds and goal != size
        return _Change(
            added_s=there.seconds - here.seconds,
            others_s=(
                there.as_rings_s - here.seconds,
                *([there.given_slower_s - here.seconds] if is_given else []),
            ),
            exposed_s=there.seconds,
            remarks=(*there.remarks, *([GIVEN_NETWORK] if is_given else [])),
        )

    def _wanted(self, missing: UnknownPriceError, target: Target) -> Place | None:
        """Return the place whose cell would give the missing price: two nodes like the target's."""
        if not missing.across_nodes:
            return None
        return changed(target, gpus=2 * target.gpus_per_node, nodes=2, accumulate=1)

    def _anchor_size(self, target: Target) -> Size:
        """Return the largest measured size that is not larger.

        Across nodes, one with as many GPUs on a node is preferred, and one across nodes; of these
        the largest one at which the batch was measured, or follows from measured ones.
        """
        goal = size_of(target)
        smaller = [s for s in self.sizes if s.gpus <= goal.gpus and s.nodes <= goal.nodes]
        if not smaller:
            least = self.sizes[0]
            raise CannotPredictError(
                f"nothing as small as {goal.text} was measured: the smallest measured size is "
                f"{least.text}",
                target,
            )
        preferred = smaller
        if goal.crosses_nodes:
            alike = [size for size in smaller if size.gpus_per_node == goal.gpus_per_node]
            crossing = [size for size in smaller if size.crosses_nodes]
            crossing_alike = [size for size in alike if size.crosses_nodes]
            preferred = crossing_alike or alike or crossing or smaller
        ranked = sorted(preferred, key=lambda size: (size.gpus, size.nodes), reverse=True)

        def has_batch(size: Size) -> bool:
            cells = self._cells(size, target.accumulate)
            return self._time_at(size, cells, target.batch) is not None

        return next(filter(has_batch, ranked), ranked[0])

    def _cells(self, size: Size, accumulate: int) -> dict[int, Observation]:
        """Return a size's cells by batch, of the measured accumulation nearest to one."""
        cells = [cell for cell in self.series if size_of(cell) == size]
        nearest = min(
            {cell.accumulate for cell in cells},
            key=lambda measured: (abs(log(measured / accumulate)), measured),
        )
        return {cell.batch: cell for cell in cells if cell.accumulate == nearest}

    # ---- the time of a measured size at any batch ----

    def _at_batch(
        self, size: Size, cells: Mapping[int, Observation], batch: int
    ) -> tuple[float, tuple[str, ...]]:
        """Return an iteration of a measured size, and remarks where nothing tells its batch."""
        step_s = self._time_at(size, cells, batch)
        if step_s is not None:
            return step_s, ()
        batches = ", ".join(map(str, sorted(cells)))
        return batch_curve({b: cell.step_s for b, cell in cells.items()}).at(batch), (
            f"only batch {batches} was measured: time is taken in proportion to the batch",
        )

    def _time_at(self, size: Size, cells: Mapping[int, Observation], batch: int) -> float | None:
        """Return an iteration of a measured size: as measured, else by other sizes or batches.

        None where nothing that was measured tells how it depends on the batch.
        """
        if batch in cells:
            return cells[batch].step_s
        for smaller in self._smaller(size, next(iter(cells.values())).accumulate):
            common = [b for b in cells if b in smaller]
            if batch in smaller and common:
                return self._transferred(cells, smaller, common, batch)
        curve = self.compute.curve_of(cells)
        return curve.at(batch) if curve else None

    def _smaller(self, size: Size, accumulate: int) -> list[dict[int, Observation]]:
        """Return the cells of smaller sizes by batch, the largest size first, then one GPU."""
        smaller = [s for s in self.sizes if s.gpus < size.gpus and s.nodes <= size.nodes]
        cells = [
            {
                cell.batch: cell
                for cell in self.series
                if size_of(cell) == other and cell.accumulate == accumulate
            }
            for other in reversed(smaller)
        ]
        return [*cells, self.single] if accumulate == 1 else cells

    def _transferred(
        self,
        cells: Mapping[int, Observation],
        smaller: Mapping[int, Observation],
        common: Sequence[int],
        batch: int,
    ) -> float:
        """Return t(N, b) = h t(n, b) + [t(N, b') - h t(n, b')] + the change of exposed exchange.

        h is how much longer an iteration without exchange takes on the larger size, where more of
        its processes share a node. What the batches b' = `common` have in common besides is one
        constant: against one GPU it is interference, which is zero or more.
        """
        slower = slowdown([cells[b] for b in common], [smaller[b] for b in common])
        added_s = {b: self._added_s(cells[b], smaller[b], b) for b in common}
        rests = [cells[b].step_s - slower * smaller[b].step_s - added_s[b] for b in common]
        weights = [1 / cells[b].step_s for b in common]
        if smaller[batch].gpus == 1:
            constant_s = least_squares.fit([(1.0,)] * len(rests), rests, weights).coefficients[0]
        else:
            squares = [weight * weight for weight in weights]
            constant_s = fsum(w * r for w, r in zip(squares, rests, strict=True)) / fsum(squares)
        near = nearest_batch(batch, {b: cells[b] for b in common})
        added_here_s = self._added_s(cells[near], smaller[batch], batch)
        return slower * smaller[batch].step_s + added_here_s + constant_s

    def _added_s(self, cell: Observation, smaller: Observation, batch: int) -> float:
        """Return a cell's exposed communication less that of a smaller size; 0 if unknown."""
        try:
            here = self._exposed(cell, size_of(cell), batch)
            if smaller.gpus == 1:
                return here.seconds
            below = self._exposed(smaller, size_of(smaller), batch)
        except UnknownPriceError:
            return 0.0
        return here.seconds - below.seconds

    # ---- the parts ----

    def _exposed(self, cell: Observation, size: Size, batch: int) -> "_Exposed":
        """Return the exposed communication of a cell's messages at a size and batch.

        Raises:
            UnknownPriceError: the cell has no messages, or they have no price there.
        """
        if not cell.messages:
            raise UnknownPriceError(
                f"no cell of strategy={cell.strategy.value} on several GPUs has its messages "
                "(protocol=full records them)"
            )
        measured = self.network.price(cell.messages, size_of(cell))
        messages = messages_at(cell, size.gpus)
        price = self.network.price(messages, size)
        as_rings = self.network._replace(as_rings=True).price(messages, size)
        hiding = hiding_of(cell, measured)
        if batch != cell.batch:
            hiding = hiding.scaled(self.compute.ratio(cell, batch))
        return _Exposed(
            seconds=hiding.exposed_s(price.total_s),
            as_rings_s=hiding.exposed_s(as_rings.total_s),
            given_slower_s=hiding.exposed_s(price.total_s + price.given_s),
            remarks=price.remarks,
        )

    def _parts(
        self, anchor: Observation, target: Target, step_s: float, exposed_s: float | None
    ) -> Parts | None:
        """Return the parts of a time; None where they are not known by themselves."""
        ratio = self.compute.ratio(anchor, target.batch)
        compute_s = anchor.unsynced_s
        if compute_s is None and target.batch in self.single and target.accumulate == 1:
            compute_s, ratio = self.single[target.batch].step_s, 1.0
        if compute_s is None or exposed_s is None:
            return None
        compute_s *= ratio * target.accumulate / anchor.accumulate
        exposed_s = min(exposed_s, step_s)
        interference_s = max(0.0, step_s - exposed_s - compute_s)
        return Parts(
            compute_s=step_s - exposed_s - interference_s,
            exposed_s=exposed_s,
            interference_s=interference_s,
        )


class _Exposed(NamedTuple):
    """Exposed communication of an iteration, and what its figure does not rest on.

    `as_rings_s` is of messages that grow as in rings over nodes, `given_slower_s` where messages by
    a sweep from elsewhere take twice as long.
    """

    seconds: float
    as_rings_s: float
    given_slower_s: float
    remarks: tuple[str, ...]


class _Change(NamedTuple):
    """How exposed communication changes, what it is at the target, and what of it is not measured.

    `exposed_s` is None where messages have no price; `others_s` are `added_s` by other prices.
    """

    added_s: float
    others_s: tuple[float, ...] = ()
    exposed_s: float | None = None
    remarks: tuple[str, ...] = ()


def series_of(observations: Sequence[Observation]) -> dict[Kind, list[Observation]]:
    """Return the measured cells on several GPUs by strategy, path and treatment."""
    series: dict[Kind, list[Observation]] = {}
    for cell in observations:
        if cell.gpus > 1:
            series.setdefault(kind_of(cell), []).append(cell)
    return series


def singles_of(observations: Sequence[Observation], path: str) -> list[Observation]:
    """Return the plain loop on one GPU with a training path."""
    return [
        cell
        for cell in observations
        if cell.gpus == 1
        and cell.path == path
        and is_baseline(cell.strategy, cell.treatment, cell.path)
    ]
