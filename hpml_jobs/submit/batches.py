"""What goes out with one sbatch: an array of one shape, or cells that share an allocation."""

import random
from collections.abc import Callable, Hashable, Iterable
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from hpml_jobs.core.cluster import Cluster, Shape
from hpml_jobs.core.formulas import gpu_hours
from hpml_jobs.errors import UsageError
from hpml_jobs.plan import machine
from hpml_jobs.plan.plan import Plan, PlannedCell
from hpml_jobs.slurm import commands

DEFAULT_MAX_ARRAY_SIZE = 1001
"""SLURM's own default of MaxArraySize."""

MARGIN_MINUTES = 1
"""Per cell of a shared allocation, for what lies between two cells."""


class Way(StrEnum):
    """How the cells of a batch meet their allocation."""

    ARRAY = "array"  # a task of its own for each
    PACK = "pack"  # one allocation, one after another, whatever becomes of each
    LADDER = "ladder"  # one allocation, growing batches, until one does not fit


class Batch(NamedTuple):
    """Cells that go out with one sbatch; `shape` is what each task, or the allocation, asks for."""

    way: Way
    shape: Shape
    cells: list[PlannedCell]

    @property
    def gpu_hours(self) -> float:
        """GPU-hours at most: until the time limits, for the GPUs that are requested."""
        hours = gpu_hours(self.shape.nodes * self.shape.gpus_per_node, self.shape.minutes)
        return hours * (len(self.cells) if self.way is Way.ARRAY else 1)

    def __str__(self) -> str:
        """For people, e.g. `3 x 1 node x 4 rtx8000, 12 CPUs, 30 min`."""
        if self.way is Way.ARRAY:
            return f"{len(self.cells)} x {self.shape}"
        return f"{self.way.value} of {len(self.cells)} in {self.shape}"


def batches(plan: Plan, cells: list[PlannedCell]) -> list[Batch]:
    """Cells as they go out: ladders, then packs where asked for, else an array per shape."""
    rest = [one for one in cells if not one.file.ladder]
    climbing = [_timely(batch, plan.cluster) for batch in ladders(cells)]
    return [*climbing, *(_packs if plan.pack else _arrays)(rest, plan.cluster)]


def shuffled(cells: list[PlannedCell]) -> list[PlannedCell]:
    """Cells in random order, the same for the same cells and seed."""
    return random.Random(cells[0].cell.seed).sample(cells, len(cells))  # noqa: S311  (an order)


def _grouped(
    cells: Iterable[PlannedCell], key: Callable[[PlannedCell], Hashable]
) -> list[list[PlannedCell]]:
    groups: dict[Hashable, list[PlannedCell]] = {}
    for one in cells:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def _arrays(cells: list[PlannedCell], cluster: Cluster) -> list[Batch]:
    """One array per shape, in seeded random order inside a shape, split at MaxArraySize."""
    size = cluster.max_array_size or int(
        commands.limits().get("MaxArraySize") or DEFAULT_MAX_ARRAY_SIZE
    )
    found = []
    for group in _grouped(cells, lambda one: msgspec.json.encode(one.shape)):
        order = shuffled(group)
        chunks = (order[start : start + size] for start in range(0, len(group), size))
        found += [Batch(Way.ARRAY, chunk[0].shape, chunk) for chunk in chunks]
    return found


def _packs(cells: list[PlannedCell], cluster: Cluster) -> list[Batch]:
    """One allocation per GPU kind and number of nodes, as large as its largest cell asks for.

    Packs are split where their time limit would be over what the partition gives.
    """
    found = []
    for group in _grouped(cells, lambda one: (one.shape.gpu_type, one.shape.nodes)):
        longest = machine.longest_minutes(group[0].shape, cluster)
        for chunk in _within(shuffled(group), longest):
            found.append(Batch(Way.PACK, _around(chunk), chunk))
    return found


def ladders(cells: list[PlannedCell]) -> list[Batch]:
    """One allocation per ladder among the cells, the smallest batch first."""
    groups = _grouped((one for one in cells if one.file.ladder), lambda one: one.cell.ladder)
    ordered = [sorted(group, key=lambda one: one.cell.batch) for group in groups]
    return [Batch(Way.LADDER, _around(group), group) for group in ordered]


def _timely(ladder: Batch, cluster: Cluster) -> Batch:
    """A ladder with a time limit that it can have; what is cut off can be sent again."""
    longest = machine.longest_minutes(ladder.shape, cluster)
    minutes = min(ladder.shape.minutes, int(longest or ladder.shape.minutes))
    return ladder._replace(shape=msgspec.structs.replace(ladder.shape, minutes=minutes))


def _within(cells: list[PlannedCell], longest: float | None) -> list[list[PlannedCell]]:
    """Cut a list of cells so that each part's time limit is allowed."""
    parts: list[list[PlannedCell]] = [[]]
    total = 0
    for one in cells:
        minutes = one.shape.minutes + MARGIN_MINUTES
        if longest and parts[-1] and total + minutes > longest:
            parts.append([])
            total = 0
        parts[-1].append(one)
        total += minutes
    return parts


def _around(cells: list[PlannedCell]) -> Shape:
    """The shape that holds any of the cells, for as long as all of them may take."""

    def most(name: str) -> Any:
        values = [getattr(one.shape, name) for one in cells]
        return max((value for value in values if value is not None), default=None)

    return Shape(
        nodes=most("nodes"),
        gpus_per_node=most("gpus_per_node"),
        gpu_type=cells[0].shape.gpu_type,
        cpus_per_node=most("cpus_per_node"),
        mem_gb_per_node=most("mem_gb_per_node"),
        minutes=sum(one.shape.minutes + MARGIN_MINUTES for one in cells),
    )


def check_budget(cluster: Cluster, going: list[Batch], used: float) -> float:
    """The GPU-hours that batches ask for at most.

    Raises:
        UsageError: with those used before they are more than the cluster's budget.
    """
    asked, budget = sum(batch.gpu_hours for batch in going), cluster.gpu_hours_budget
    if budget is not None and used + asked > budget:
        before = f" after {used:.3g} used or asked for by this study before" if used else ""
        raise UsageError(
            f"these cells ask for {asked:.3g} GPU-hours at most{before}; cluster.gpu_hours_budget "
            f"is {budget:g}: take fewer cells, shorter minutes=, or a larger budget"
        )
    return asked
