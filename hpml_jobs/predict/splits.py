"""The model of cells with their messages: t = compute(batch) + exposed + interference.

A target is predicted from its anchor, the largest measured size that is not larger: the anchor's
time at that batch, plus the difference of the exposed communication. What a measured cell takes
beyond compute and exposed communication is interference, one constant per iteration, and stays.
docs/choose_predict.md derives it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import hypot, log
from typing import NamedTuple

from hpml_jobs.core.strategies import BASELINE
from hpml_jobs.predict.compute import Compute, batch_curve, nearest_batch
from hpml_jobs.predict.model import (
    BEYOND_NODES,
    FAR,
    HOW,
    Axis,
    CannotPredictError,
    Estimate,
    LeaveOut,
    Parts,
    Step,
)
from hpml_jobs.predict.network import (
    BusSweep,
    Network,
    Sweeps,
    UnknownPriceError,
    measured_sweeps,
    unmeasured_hiding,
)
from hpml_jobs.predict.place import Observation, Size, Target, changed, distance

GIVEN_NETWORK = (
    "the network is as given, not measured: the band holds messages that take twice as long"
)

LEAST_SIZES = 2
"""Sizes that a prediction of another size needs, one GPU included."""

STALL_SHARE = 0.05
"""Share of an iteration in which waiting for data is remarked on."""

WAITING = (
    "more than 5 % of the measured iteration is waiting for data, which is taken to stay: a faster "
    "loader makes it shorter"
)

FROM_ONE = "the smallest size from one GPU and the microbenchmark, without interference"
"""What is left out where only one size of several GPUs was measured."""

AT_OTHER_BATCHES = "each size from smaller ones at other batches"
"""The same where no two sizes have a batch in common, as with a fixed global batch."""


class Splits:
    """The model of one series: a strategy on several GPUs, and the plain loop of the same path."""

    def __init__(
        self,
        cells: Sequence[Observation],
        given: BusSweep | None = None,
        sweeps: Sweeps | None = None,
    ) -> None:
        """Take the measured cells, and a sweep from elsewhere.

        `sweeps` are those of all cells of a group; None: of these cells.
        """
        self.cells, self.given = cells, given
        self.series = [cell for cell in cells if cell.gpus > 1]
        own = measured_sweeps(self.series) if sweeps is None else sweeps
        self.compute = Compute(cells, Network(own, given))

    def at(self, target: Target) -> Estimate:
        """Return the time of a target.

        Raises:
            CannotPredictError: what it needs was not measured.
        """
        goal = target.size
        size = self._anchor_size(target)
        if goal != size and len(self.compute.sizes) + bool(self.compute.single) < LEAST_SIZES:
            alone = changed(target, gpus=1, nodes=1, strategy=BASELINE, treatment=target.path)
            raise CannotPredictError(
                f"only one size was measured ({size.text}): a second one shows what more GPUs cost",
                alone,
            )
        cells = self.compute.cells_of(size, target.accumulate)
        anchor = cells[nearest_batch(target.batch, cells)]
        remarks: tuple[str, ...] = ()
        base_s = self.compute.time_at(size, cells, target.batch)
        if base_s is None:
            batches = ", ".join(map(str, sorted(cells)))
            remarks = (
                f"only batch {batches} was measured: time is taken in proportion to the batch",
            )
            base_s = batch_curve({b: c.step_s for b, c in cells.items()}).at(target.batch)
        if target.accumulate != anchor.accumulate:
            further = target.accumulate - anchor.accumulate
            base_s += further * self.compute.micro_step_s(size, target)
        change = self._change(anchor, target)
        step_s = base_s + change.added_s
        if step_s <= 0:
            raise CannotPredictError(
                f"the parts measured on {size.text} are longer than its iteration: repeat this cell"
            )
        return Estimate(
            step_s=step_s,
            steps=(Step(self._axes(target, anchor), distance(target, anchor)),),
            doubt=hypot(*(log((base_s + other_s) / step_s) for other_s in change.others_s)),
            parts=self._parts(anchor, target, step_s, change.exposed_s),
            remarks=(*remarks, *change.remarks, *_remarks(target, anchor)),
        )

    def _axes(self, target: Target, anchor: Observation) -> tuple[Axis, ...]:
        """Return what a target changes against its anchor."""
        is_new = all(cell.batch != target.batch for cell in self.cells)
        changes = {
            Axis.GPUS: target.gpus != anchor.gpus and target.nodes == anchor.nodes,
            Axis.NODES: target.nodes != anchor.nodes,
            Axis.BATCH: target.batch != anchor.batch and is_new,
            Axis.TRANSFER: target.batch != anchor.batch and not is_new,
            Axis.ACCUMULATE: target.accumulate != anchor.accumulate,
        }
        return tuple(axis for axis, is_changed in changes.items() if is_changed)

    def _change(self, anchor: Observation, target: Target) -> "_Change":
        """Return how the exposed communication changes from the anchor's size to the target's.

        Raises:
            CannotPredictError: the exchange has no price at one of them.
        """
        goal, size = target.size, anchor.size
        try:
            here = self.compute.exposed(anchor, size, target.batch)
            there = self.compute.exposed(anchor, goal, target.batch)
        except UnknownPriceError as missing:
            if goal == size:
                return _Change(0.0)
            two_nodes = changed(target, gpus=2 * target.gpus_per_node, nodes=2, accumulate=1)
            wanted = two_nodes if missing.across_nodes else None
            raise CannotPredictError(str(missing), wanted) from missing
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

    def _anchor_size(self, target: Target) -> Size:
        """Return the largest measured size that is not larger.

        Across nodes, one with as many GPUs on a node is preferred, and one across nodes; of these
        the largest one at which the batch was measured, or follows from measured ones.
        """
        goal = target.size
        smaller = [s for s in self.compute.sizes if s.gpus <= goal.gpus and s.nodes <= goal.nodes]
        if not smaller:
            least = self.compute.sizes[0]
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
            cells = self.compute.cells_of(size, target.accumulate)
            return self.compute.time_at(size, cells, target.batch) is not None

        return next(filter(has_batch, ranked), ranked[0])

    def _parts(
        self, anchor: Observation, target: Target, step_s: float, exposed_s: float | None
    ) -> Parts | None:
        """Return the parts of a time; None where they are not known by themselves."""
        ratio = self.compute.ratio(anchor, target.batch)
        compute_s = anchor.unsynced_s
        if compute_s is None and target.batch in self.compute.single and target.accumulate == 1:
            compute_s, ratio = self.compute.single[target.batch].step_s, 1.0
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

    # ---- what is left out ----

    def trials(self, axis: Axis) -> Iterator[tuple[str, Iterator[LeaveOut]]]:
        """Yield ways to leave out cells of the series along an axis, in words."""
        yield HOW[axis], self._left_out(axis)
        if axis is Axis.GPUS:
            yield FROM_ONE, self._from_one()
        if axis in (Axis.GPUS, Axis.NODES):
            yield AT_OTHER_BATCHES, self._left_out(axis, any_batch=True)

    def _left_out(self, axis: Axis, *, any_batch: bool = False) -> Iterator[LeaveOut]:
        """Yield each cell with others from which its prediction changes nothing but the axis.

        With `any_batch` they need not have the cell's batch. No other sweep is known than theirs.
        """
        for cell in self.series:
            is_left_out = _left_out_with(axis, cell)
            rest = [other for other in self.cells if not is_left_out(other)]
            model = Splits(rest, self.given)
            if any(_can_anchor(axis, cell, other, any_batch=any_batch) for other in model.series):
                yield LeaveOut(cell, rest, model.at)

    def _from_one(self) -> Iterator[LeaveOut]:
        """Yield the cells of the smallest size, each with the plain loop at its batch."""
        for cell in self.series:
            alone = self.compute.single.get(cell.batch)
            if alone and cell.size == self.compute.sizes[0] and cell.accumulate == 1:
                yield LeaveOut(cell, [alone], partial(self._without_interference, cell, alone))

    def _without_interference(
        self, cell: Observation, alone: Observation, target: Target
    ) -> Estimate:
        """Return the plain loop with a cell's messages, of which backward hides all that it can.

        Raises:
            CannotPredictError: its messages have no price.
        """
        network = Network(measured_sweeps(self.series), self.given)
        try:
            price = network.price(cell.messages, target.size)
        except UnknownPriceError as missing:
            raise CannotPredictError(str(missing)) from missing
        exposed_s = unmeasured_hiding(cell, price).exposed_s(price.total_s)
        return Estimate(alone.step_s + exposed_s, (Step((Axis.GPUS,), distance(target, alone)),))


def _left_out_with(axis: Axis, cell: Observation) -> Callable[[Observation], bool]:
    """Return which cells may not predict a cell along an axis."""
    match axis:
        case Axis.GPUS:
            return lambda o: o.gpus > 1 and (o.gpus >= cell.gpus or o.nodes != cell.nodes)
        case Axis.NODES:
            return lambda o: o.gpus > 1 and o.nodes >= cell.nodes
        case Axis.BATCH:
            return lambda o: o.batch == cell.batch
        case Axis.TRANSFER:
            return lambda o: o.batch == cell.batch and o.size >= cell.size
        case Axis.ACCUMULATE:
            return lambda o: o.gpus > 1 and o.accumulate == cell.accumulate


def _can_anchor(axis: Axis, cell: Observation, other: Observation, *, any_batch: bool) -> bool:
    """Return whether a prediction of a cell from another one changes nothing but the axis.

    With `any_batch` it may change the batch, too.
    """
    match axis:
        case Axis.GPUS | Axis.NODES:
            same_batch = any_batch or other.batch == cell.batch
            return same_batch and other.accumulate == cell.accumulate
        case Axis.BATCH | Axis.TRANSFER:
            return other.size == cell.size and other.accumulate == cell.accumulate
        case Axis.ACCUMULATE:
            return other.size == cell.size and other.batch == cell.batch


class _Change(NamedTuple):
    """How exposed communication changes, what it is at the target, and what of it is not measured.

    `exposed_s` is None where messages have no price; `others_s` are `added_s` by other prices.
    """

    added_s: float
    others_s: tuple[float, ...] = ()
    exposed_s: float | None = None
    remarks: tuple[str, ...] = ()


def _remarks(target: Target, anchor: Observation) -> Iterator[str]:
    """Yield what a prediction from an anchor does not rest on."""
    if min(target.nodes, anchor.nodes) > 1 and target.gpus_per_node != anchor.gpus_per_node:
        yield (
            f"measured across nodes with {anchor.gpus_per_node} on each: another number on a node "
            "may share its links differently"
        )
    if target.nodes > anchor.nodes > 1:
        yield BEYOND_NODES.format(nodes=anchor.nodes)
    if target.gpus >= FAR * anchor.gpus:
        yield f"{target.gpus / anchor.gpus:g} times the largest measured size that it starts from"
    if (anchor.stall_s or 0.0) > STALL_SHARE * anchor.step_s:
        yield WAITING
