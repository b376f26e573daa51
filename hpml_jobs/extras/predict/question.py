"""What to predict: the keys of `hpml-jobs predict`, and the targets that they name."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from hpml_jobs.core.errors import UsageError, refuse_below
from hpml_jobs.core.strategies import BASELINE, Strategy
from hpml_jobs.core.value import Value
from hpml_jobs.extras.predict.forecast import CommandOf
from hpml_jobs.extras.predict.place import MeasuredPlace, Target, changed, series_of

MOST_GPUS = 1024
"""The largest number of GPUs that is predicted."""

DOUBLINGS = 2
"""Sizes beyond the largest measured one that are predicted where none is asked for."""


class Question(Value, frozen=True, kw_only=True):
    """What to predict; empty or None: as measured, and the next sizes."""

    gpus: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    strategy: tuple[Strategy, ...] = ()
    nodes: int | None = None
    gpus_per_node: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that no cell can have."""
        for key, values in (("gpus", self.gpus), ("batch", self.batch)):
            for value in values:
                refuse_below(1, key, value)
        refuse_below(1, "nodes", self.nodes)
        refuse_below(1, "cluster.gpus_per_node", self.gpus_per_node)
        if BASELINE in self.strategy:
            raise UsageError(
                f"strategy={BASELINE.value}: it has one GPU, 2 or more are predicted"
            )
        for gpus in self.gpus:
            self._check_size(gpus)

    @property
    def names_size(self) -> bool:
        """Whether it says on how many GPUs or nodes, or how many GPUs a node has."""
        return bool(self.gpus or self.nodes or self.gpus_per_node)

    def _check_size(self, gpus: int) -> None:
        if gpus == 1:
            raise UsageError("gpus=1: 2 or more are predicted; one is measured")
        if gpus > MOST_GPUS:
            raise UsageError(f"gpus={gpus}: at most {MOST_GPUS} are predicted")
        if self.nodes is not None and gpus % self.nodes:
            raise UsageError(
                f"gpus={gpus} does not divide over nodes={self.nodes}; "
                f"use gpus={self.nodes * math.ceil(gpus / self.nodes)} or another nodes="
            )


def nodes_for(gpus: int, question: Question, gpus_per_node: int) -> int:
    """Return the nodes of a target: as asked for, else the fewest that hold its GPUs.

    Raises:
        UsageError: they cannot hold them.
    """
    if question.nodes is not None:
        if math.ceil(gpus / question.nodes) > gpus_per_node:
            raise UsageError(
                f"gpus={gpus} on nodes={question.nodes}: a node has {gpus_per_node}; "
                f"use nodes={math.ceil(gpus / gpus_per_node)}, or give cluster.gpus_per_node="
            )
        return question.nodes
    nodes = math.ceil(gpus / gpus_per_node)
    if gpus % nodes:
        raise UsageError(
            f"gpus={gpus} does not divide over {nodes} nodes of {gpus_per_node}; "
            f"use gpus={nodes * gpus_per_node}, or give nodes= yourself"
        )
    return nodes


def targets_of(
    question: Question,
    observations: Sequence[MeasuredPlace],
    gpus_per_node: int,
    command_of: CommandOf = lambda _: None,
) -> list[Target]:
    """Return the targets that a question names of each measured strategy, in reading order.

    A place that was measured is no target.

    Raises:
        UsageError: a strategy that was not measured, or GPUs that the nodes cannot hold.
    """
    series = series_of(observations)
    strategies = list(dict.fromkeys(kind.strategy for kind in series))
    for strategy in question.strategy:
        if strategy not in strategies:
            cells_of_all = itertools.chain(*series.values())
            smallest = min(cells_of_all, key=lambda cell: cell.gpus)
            remedy = "measure a cell of it"
            if command := command_of(changed(smallest, strategy=strategy)):
                remedy += f": {command}"
            raise UsageError(
                f"strategy={strategy.value} was not measured on several GPUs (measured: "
                f"{', '.join(strategies)}): {remedy}"
            )
    chosen = question.strategy or strategies
    targets: list[Target] = []
    for kind, cells in series.items():
        if kind.strategy in chosen:
            targets += _of_series(question, cells, gpus_per_node)
    return targets


def _of_series(
    question: Question, cells: Sequence[MeasuredPlace], gpus_per_node: int
) -> Iterator[Target]:
    """Yield the targets of a series by size and batch."""
    measured = {cell.place for cell in cells}
    batches = question.batch or sorted({cell.batch for cell in cells})
    sizes = _sizes(question, cells, gpus_per_node)
    for (gpus, nodes), batch in itertools.product(sizes, batches):
        target = changed(cells[0], batch=batch, gpus=gpus, nodes=nodes)
        if target.place not in measured:
            yield target


def _sizes(
    question: Question, cells: Iterable[MeasuredPlace], gpus_per_node: int
) -> list[tuple[int, int]]:
    """Return the GPUs and nodes of the targets.

    Raises:
        UsageError: nodes are given alone, and no cell was measured on so many.
    """
    sizes = {(cell.gpus, cell.nodes) for cell in cells}
    if question.gpus:
        return [
            (gpus, nodes_for(gpus, question, gpus_per_node))
            for gpus in dict.fromkeys(question.gpus)
        ]
    if question.nodes is not None:
        on_nodes = sorted(size for size in sizes if size[1] == question.nodes)
        if not on_nodes:
            raise UsageError(
                f"nodes={question.nodes}: no cell on so many nodes was measured; add gpus="
            )
        return on_nodes
    if question.batch:
        return sorted(sizes)
    largest, nodes = max(sizes)
    beyond = [largest * 2**step for step in range(1, DOUBLINGS + 1)]
    return [
        (gpus, _equal_nodes(gpus, max(nodes, math.ceil(gpus / gpus_per_node))))
        for gpus in beyond
        if gpus <= MOST_GPUS
    ]


def _equal_nodes(gpus: int, least: int) -> int:
    """Return the fewest nodes from some number on that share the GPUs equally.

    >>> [_equal_nodes(20, least) for least in (2, 3)]
    [2, 4]
    """
    return next(nodes for nodes in range(least, gpus + 1) if gpus % nodes == 0)
