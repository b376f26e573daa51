"""The errors of the model and of the null on a study's own cells, each left out and predicted."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hpml_jobs.predict.band import distance
from hpml_jobs.predict.exposure import unmeasured_hiding
from hpml_jobs.predict.model import Model
from hpml_jobs.predict.network import Network, UnknownPriceError, measured_sweeps, size_of
from hpml_jobs.predict.values import (
    Axis,
    CannotPredictError,
    LeftOut,
    Observation,
    Place,
    Skill,
    changed,
)

HOW = {
    Axis.GPUS: "each size from the smaller ones",
    Axis.NODES: "each number of nodes from fewer",
    Axis.BATCH: "each batch from the others",
    Axis.TRANSFER: "each batch of a size from its others and from smaller sizes",
    Axis.ACCUMULATE: "each accumulation from the others",
}
"""What was left out and what it was predicted from, in words."""

FROM_ONE = "the smallest size from one GPU and the microbenchmark, without interference"
"""The same where only one size of several GPUs was measured."""

AT_OTHER_BATCHES = "each size from smaller ones at other batches"
"""The same where no two sizes have a batch in common, as with a fixed global batch."""


class Cells(NamedTuple):
    """The measured cells of a series, and those of the plain loop on one GPU."""

    series: tuple[Observation, ...]
    single: tuple[Observation, ...]

    def without(self, is_left_out: Callable[[Observation], bool]) -> "Cells":
        """Return the cells without some of them."""
        return Cells(
            tuple(cell for cell in self.series if not is_left_out(cell)),
            tuple(cell for cell in self.single if not is_left_out(cell)),
        )

    @property
    def all(self) -> tuple[Observation, ...]:
        """Both."""
        return (*self.single, *self.series)


def model_of(cells: Cells, network: Network) -> Model:
    """Return the model of some cells, with no other measured sweep than theirs."""
    own = network._replace(sweeps=measured_sweeps(cells.series))
    return Model(cells.series, cells.single, own)


def left_out(
    axis: Axis, cells: Cells, network: Network, *, any_batch: bool = False
) -> list[LeftOut]:
    """Return every cell of the series that the others can predict along an axis.

    `network` is the one that the cells were measured on. With `any_batch` the others need not have
    the cell's batch.
    """
    points = []
    for cell in cells.series:
        rest = cells.without(_left_out_with(axis, cell))
        if any(_can_anchor(axis, cell, other, any_batch=any_batch) for other in rest.series):
            point = _point(cell, rest, network)
            points += [point] if point else []
    return points


class Tried(NamedTuple):
    """The errors that stand for a prediction; `untried` axes of it have no left-out cell.

    Where none of its axes has one, they are those of the first other axis that has.
    """

    skill: Skill | None
    untried: tuple[Axis, ...]


def tried(axes: Iterable[Axis], cells: Cells, network: Network) -> Tried:
    """Return the errors along some axes together."""
    by_axis = {axis: _along(axis, cells, network) for axis in axes}
    skills = [along for along in by_axis.values() if along]
    with_batch = any(along.how == AT_OTHER_BATCHES for along in skills)
    untried = tuple(
        axis
        for axis, along in by_axis.items()
        if along is None and not (with_batch and axis in (Axis.BATCH, Axis.TRANSFER))
    )
    if not skills:
        others = (_along(axis, cells, network) for axis in HOW if axis not in by_axis)
        return Tried(next((along for along in others if along), None), untried)
    how = "; ".join(along.how for along in skills)
    return Tried(Skill(how=how, points=tuple(p for s in skills for p in s.points)), untried)


def _along(axis: Axis, cells: Cells, network: Network) -> Skill | None:
    """Return the errors along one axis; None where nothing can be left out."""
    points, how = left_out(axis, cells, network), HOW[axis]
    if not points and axis is Axis.GPUS:
        points, how = _from_one(cells, network), FROM_ONE
    if not points and axis in (Axis.GPUS, Axis.NODES):
        points, how = left_out(axis, cells, network, any_batch=True), AT_OTHER_BATCHES
    return Skill(how=how, points=tuple(points)) if points else None


def axes_of(target: Place, anchor: Observation, cells: Cells) -> tuple[Axis, ...]:
    """Return what a target changes against the place that its prediction starts from."""
    is_new = all(cell.batch != target.batch for cell in cells.all)
    changes = {
        Axis.GPUS: target.gpus != anchor.gpus and target.nodes == anchor.nodes,
        Axis.NODES: target.nodes != anchor.nodes,
        Axis.BATCH: target.batch != anchor.batch and is_new,
        Axis.TRANSFER: target.batch != anchor.batch and not is_new,
        Axis.ACCUMULATE: target.accumulate != anchor.accumulate,
    }
    return tuple(axis for axis, is_changed in changes.items() if is_changed)


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
            return lambda o: o.batch == cell.batch and size_of(o) >= size_of(cell)
        case Axis.ACCUMULATE:
            return lambda o: o.gpus > 1 and o.accumulate == cell.accumulate


def _can_anchor(
    axis: Axis, cell: Observation, other: Observation, *, any_batch: bool = False
) -> bool:
    """Return whether a prediction of a cell from another one changes nothing but the axis.

    With `any_batch` it may change the batch, too.
    """
    same_size = size_of(other) == size_of(cell)
    match axis:
        case Axis.GPUS | Axis.NODES:
            same_batch = any_batch or other.batch == cell.batch
            return same_batch and other.accumulate == cell.accumulate
        case Axis.BATCH | Axis.TRANSFER:
            return same_size and other.accumulate == cell.accumulate
        case Axis.ACCUMULATE:
            return same_size and other.batch == cell.batch


def _point(cell: Observation, rest: Cells, network: Network) -> LeftOut | None:
    """Return a cell with its errors; None where the rest does not predict it."""
    target = changed(cell)
    try:
        estimate = model_of(rest, network).estimate(target)
    except CannotPredictError:
        return None
    alike_s = null_s(target, rest.all)
    if alike_s is None or estimate.step_s <= 0:
        return None
    steps = distance(target, estimate.anchor)
    return LeftOut(observation=cell, model_s=estimate.step_s, null_s=alike_s, distance=steps)


def _from_one(cells: Cells, network: Network) -> list[LeftOut]:
    """Return the cells of the smallest size, predicted from those on one GPU at their batch."""
    if not cells.series:
        return []
    single = {cell.batch: cell for cell in cells.single if cell.accumulate == 1}
    smallest = min(size_of(cell) for cell in cells.series)
    at_size = [
        cell
        for cell in cells.series
        if size_of(cell) == smallest and cell.batch in single and cell.accumulate == 1
    ]
    priced = network._replace(sweeps=measured_sweeps(cells.series))
    points = []
    for cell in at_size:
        alone = single[cell.batch]
        try:
            price = priced.price(cell.messages, smallest)
        except UnknownPriceError:
            continue
        model_s = alone.step_s + unmeasured_hiding(cell, price).exposed_s(price.total_s)
        steps = distance(cell, alone)
        points.append(
            LeftOut(observation=cell, model_s=model_s, null_s=alone.step_s, distance=steps)
        )
    return points


def null_s(target: Place, measured: Iterable[Observation]) -> float | None:
    """Return an iteration if a GPU took as long for a sample as in the nearest measured place.

    It is that at the same batch with the most GPUs that are not more than the target's; without
    that batch, the one with the nearest batch. None without any.
    """
    smaller = [cell for cell in measured if cell.gpus <= target.gpus]
    if not smaller:
        return None
    nearest = min(
        smaller,
        key=lambda cell: (
            abs(math.log(cell.batch / target.batch)),
            -cell.gpus,
            abs(math.log(cell.accumulate / target.accumulate)),
        ),
    )
    ratio = target.batch * target.accumulate / (nearest.batch * nearest.accumulate)
    return nearest.step_s * ratio
