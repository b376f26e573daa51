"""What a model of iterations is: made from measured cells, it gives the time at a place.

A model may need more than it finds: then it says why it cannot predict, and what to measure.
"""

import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from hpml_jobs.core.value import Value
from hpml_jobs.predict.place import Observation, Place, Target

FAR = 4
"""Ratio to the measured size from which on a prediction is marked."""

BEYOND_NODES = (
    "links that more than {nodes} nodes share (a spine) may be slower than the measured ones: no "
    "band contains that"
)


class Axis(StrEnum):
    """What a target changes against the measured places."""

    GPUS = "GPUs"
    NODES = "nodes"
    BATCH = "batch"
    TRANSFER = "batch, measured on fewer GPUs"
    ACCUMULATE = "accumulation"


HOW = {
    Axis.GPUS: "each size from the smaller ones",
    Axis.NODES: "each number of nodes from fewer",
    Axis.BATCH: "each batch from the others",
    Axis.TRANSFER: "each batch of a size from its others and from smaller sizes",
    Axis.ACCUMULATE: "each accumulation from the others",
}
"""What is left out to try an axis and what it is predicted from, in words."""


class Parts(Value, frozen=True, kw_only=True):
    """The parts of a time of an iteration; they add up to it."""

    compute_s: float
    exposed_s: float
    interference_s: float


class Step(NamedTuple):
    """A part of the way from the measured places to a target: along some axes, so far.

    `errors` per root of the distance (see `left_out`) are known before any cell is left out: of the
    fit, and of published tables.
    """

    axes: tuple[Axis, ...]
    distance: float
    errors: tuple[float, ...] = ()


class Estimate(NamedTuple):
    """A time of an iteration with the way to it from what was measured, and what it rests on.

    `doubt` is |log| of the ratio to the time of another form that the cells do not rule out, of
    several ones the root of the sum of squares. `is_null`: it is no more than no change per GPU.
    """

    step_s: float
    steps: tuple[Step, ...] = ()
    doubt: float = 0.0
    parts: Parts | None = None
    remarks: tuple[str, ...] = ()
    is_null: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        """What the target changes."""
        return tuple(axis for step in self.steps for axis in step.axes)


class CannotPredictError(Exception):
    """Why a target cannot be predicted, and the place whose cell would make it possible."""

    def __init__(self, reason: str, wanted: Place | None = None) -> None:
        """Keep the reason, and the place that a cell should measure."""
        super().__init__(reason)
        self.wanted = wanted


class Fitted(Protocol):
    """What is known of some cells."""

    def at(self, target: Target) -> Estimate:
        """Return the time of a target.

        Raises:
            CannotPredictError: what it needs was not measured.
        """
        ...


class LeaveOut(NamedTuple):
    """A measured cell, the other cells that may predict it, and what a model made of these."""

    cell: Observation
    rest: Sequence[Observation]
    fitted: Fitted


class Model(Fitted, Protocol):
    """A way to predict, made from cells, that can be tried on them."""

    def trials(self, axis: Axis) -> Iterator[tuple[str, Iterator[LeaveOut]]]:
        """Yield ways to leave out cells along an axis, in words; the first that works counts."""
        ...


class NoChange(NamedTuple):
    """The null: a GPU takes as long for a sample as in the nearest measured place.

    It is that at the same batch with the most GPUs that are not more than the target's, on no more
    nodes; without that batch, the one with the nearest batch.
    """

    cells: Sequence[Observation]

    def at(self, target: Target) -> Estimate:
        """Return the time of a target.

        Raises:
            CannotPredictError: nothing as small was measured.
        """
        smaller = [c for c in self.cells if c.gpus <= target.gpus and c.nodes <= target.nodes]
        if not smaller:
            raise CannotPredictError(f"nothing as small as {target.size.text} was measured", target)
        nearest = min(
            smaller,
            key=lambda cell: (
                abs(math.log(cell.batch / target.batch)),
                -cell.gpus,
                abs(math.log(cell.accumulate / target.accumulate)),
            ),
        )
        ratio = target.batch * target.accumulate / (nearest.batch * nearest.accumulate)
        return Estimate(nearest.step_s * ratio, is_null=True)
