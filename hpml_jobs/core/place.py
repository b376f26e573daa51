"""Places of cells: GPUs, nodes, strategy and treatment, at a batch per GPU.

Rows of tables name what was measured by them.
"""

from typing import NamedTuple

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.strategies import BASELINE, Strategy, is_baseline
from hpml_jobs.core.text import NaturalKey, natural_key


class Setup(NamedTuple):
    """A row of a table; `treatment` is what was done to its cells, in words, empty if nothing.

    `path` is the part of it that a cell on one GPU has too, the training path: rows are compared
    within their path.
    """

    gpus: int
    nodes: int
    strategy: Strategy
    treatment: str = ""
    path: str = ""

    @property
    def is_baseline(self) -> bool:
        """Whether others of its path are compared with it: the plain loop on one GPU."""
        return is_baseline(self.strategy, self.treatment, self.path)

    @property
    def is_plain(self) -> bool:
        """Whether nothing but its training path was done to it."""
        return self.treatment == self.path


def baseline_setup(path: str = "") -> Setup:
    """Return the setup that all others of a training path are compared with."""
    return Setup(1, 1, BASELINE, path, path)


class Place(NamedTuple):
    """Position of a value in the tables: a setup (row) and a batch (column)."""

    setup: Setup
    batch_per_gpu: int


def setup_of(cell: Cell) -> Setup:
    """Return the setup that a cell measures."""
    return Setup(cell.gpus, cell.nodes, cell.strategy, cell.treatment, cell.path.label)


def place_of(cell: Cell) -> Place:
    """Return the place that a cell measures."""
    return Place(setup_of(cell), cell.batch)


def setup_order(setup: Setup) -> tuple[int, int, int, NaturalKey]:
    """Return the order of rows: GPUs, nodes, strategy (`single` first), treatment (none first)."""
    strategy = list(Strategy).index(setup.strategy)
    return setup.gpus, setup.nodes, strategy, natural_key(setup.treatment)
