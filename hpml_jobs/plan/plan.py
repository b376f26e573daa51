"""A `Plan`: the resolved, checked cells of one submission, each with the resources it requests."""

from typing import NamedTuple

from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.cluster import Cluster, Shape
from hpml_jobs.core.formulas import gpu_hours
from hpml_jobs.study.study import Study


class PlannedCell(NamedTuple):
    """One cell as it will be submitted; `slug` is its name in the study."""

    file: CellFile
    shape: Shape
    slug: str

    @property
    def cell(self) -> Cell:
        """The measurement itself."""
        return self.file.cell

    @property
    def gpu_hours(self) -> float:
        """The most GPU-hours it can use: the requested GPUs until the time limit."""
        return gpu_hours(self.shape.nodes * self.shape.gpus_per_node, self.shape.minutes)


class Plan(NamedTuple):
    """All cells of one submission in the order of the command line, and how to submit them.

    `pack`: cells share allocations. `collect_after`: a follow-up job writes the report. `retries`:
    the follow-up job resubmits cells that were lost to the cluster, at most this many times each.
    `is_retry`: a follow-up job makes this submission. `exclude`: nodes that jobs must avoid.
    `origins`: where the value of each key comes from.
    """

    study: Study
    cluster: Cluster
    cells: list[PlannedCell]
    rerun: bool = False
    origins: dict[str, str] = {}
    pack: bool = False
    collect_after: bool = False
    retries: int = 0
    is_retry: bool = False
    exclude: tuple[str, ...] = ()

    @property
    def has_followup(self) -> bool:
        """Whether a follow-up job comes after the cells."""
        return self.collect_after or self.retries > 0
