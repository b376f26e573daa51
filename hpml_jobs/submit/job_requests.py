"""A submission as job requests, each an array of one shape or a shared allocation."""

import hashlib
import math
import random
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from hpml_jobs.core.cluster import Cluster, GpuRequest, Isolate, Shape
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.formulas import gpu_hours
from hpml_jobs.core.text import counted, duration_text, hours_text
from hpml_jobs.core.value import by_key
from hpml_jobs.plan import machine
from hpml_jobs.plan.cells import Plan, PlannedCell
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.nodes import Node
from hpml_jobs.status.usage import committed_gpu_hours
from hpml_jobs.submit.selection import Selection

AT_ONCE = 64
"""Tasks of an array that run at a time at most."""

DEFAULT_MAX_ARRAY_SIZE = 1001
"""SLURM's own default of MaxArraySize."""

MARGIN_MINUTES = 1
"""Added per cell of a shared allocation, for the time between two cells."""


class JobKind(StrEnum):
    """The way in which the cells of a job share it."""

    ARRAY = "array"  # one array task per cell
    PACK = "pack"  # one allocation, one cell after another, failed or not


class JobRequest(NamedTuple):
    """The cells of one sbatch call; `shape` is what each array task, or the allocation, requests.

    `is_retry`: a follow-up job submits it. `exclude`: nodes that it must avoid. `charged_gpus` are
    those of each node: all of them where the job has whole nodes.
    """

    kind: JobKind
    shape: Shape
    cells: list[PlannedCell]
    is_retry: bool = False
    exclude: tuple[str, ...] = ()
    charged_gpus: int = 0

    @property
    def slugs(self) -> tuple[str, ...]:
        """The names of the cells, in their order in the job."""
        return tuple(planned.slug for planned in self.cells)

    @property
    def pickle_name(self) -> str:
        """The name of the file that the tasks of an array run."""
        digest = hashlib.sha256("\n".join(self.slugs).encode()).hexdigest()
        return f"cells-{digest[:12]}.pkl"

    @property
    def tasks(self) -> int:
        """The number of allocations: one per cell of an array, else one."""
        return len(self.cells) if self.kind is JobKind.ARRAY else 1

    def jobs_of_cells(self, job: str) -> tuple[str, ...]:
        """Return the job or the task of each cell, by the id that sbatch gave."""
        if self.kind is JobKind.ARRAY and len(self.cells) > 1:
            return tuple(f"{job}_{index}" for index in range(len(self.cells)))
        return (job,) * len(self.cells)

    @property
    def gpu_hours(self) -> float:
        """The most GPU-hours it can use: the charged GPUs until the time limits."""
        gpus = self.tasks * self.shape.nodes * self.charged_gpus
        return gpu_hours(gpus, self.shape.minutes)

    def __str__(self) -> str:
        """For people, e.g. `3 cells: 1 node x 4 rtx8000, 12 CPUs, 30 min`."""
        how = "" if self.kind is JobKind.ARRAY else f" as one {self.kind.value}"
        return f"{counted(len(self.cells), 'cell')}{how}: {self.shape}"


def gpu_hours_of(requests: Iterable[JobRequest]) -> float:
    """Return the most GPU-hours that job requests can use."""
    return sum(request.gpu_hours for request in requests)


def most_gpu_hours(plan: Plan, requests: Iterable[JobRequest]) -> float:
    """Return the most GPU-hours that requests can use; with `auto`, those of all its steps."""
    return max(plan.most_gpu_hours, gpu_hours_of(requests))


def make_requests(plan: Plan, cells: list[PlannedCell]) -> list[JobRequest]:
    """Return the job requests of cells: packs, or an array per shape."""
    cluster = plan.cluster
    requests = _packs(cells, cluster) if plan.pack else _arrays(cells)
    nodes = _nodes(cluster) if cluster.isolate is Isolate.EXCLUSIVE else []
    return [
        request._replace(
            is_retry=plan.is_retry,
            exclude=plan.exclude,
            charged_gpus=_gpus_of_node(request.shape, nodes),
        )
        for request in requests
    ]


def in_rounds(cells: list[PlannedCell]) -> list[PlannedCell]:
    """Return the cells in rounds: every setting once, in random order, then every setting again.

    A machine that becomes slower during the study then slows all settings alike. The order is the
    same for the same cells and seed. Seeds count as repeats.
    """
    settings: dict[bytes, list[PlannedCell]] = {}
    for planned in cells:
        setting = msgspec.json.encode(replace(planned.cell, seed=0, repeat=0))
        settings.setdefault(setting, []).append(planned)
    rounds: dict[int, list[PlannedCell]] = {}
    for runs in settings.values():
        ordered = sorted(runs, key=lambda p: (p.cell.repeat, p.cell.seed))
        for number, planned in enumerate(ordered):
            rounds.setdefault(number, []).append(planned)
    seed = min((planned.cell.seed for planned in cells), default=0)
    order = random.Random(seed)  # noqa: S311  (an order)
    shuffled = []
    for runs in rounds.values():
        shuffled += order.sample(runs, len(runs))
    return shuffled


def _arrays(cells: list[PlannedCell]) -> list[JobRequest]:
    """Return one array per shape, in seeded rounds, split at the site's MaxArraySize."""
    limit = commands.limits().get("MaxArraySize", "")
    size = int(limit if limit.isdecimal() else 0) or DEFAULT_MAX_ARRAY_SIZE
    requests = []
    by_shape = by_key(
        (msgspec.json.encode(planned.shape), planned) for planned in cells
    )
    for group in by_shape.values():
        order = in_rounds(group)
        for start in range(0, len(order), size):
            chunk = order[start : start + size]
            requests.append(JobRequest(JobKind.ARRAY, chunk[0].shape, chunk))
    return requests


def _packs(cells: list[PlannedCell], cluster: Cluster) -> list[JobRequest]:
    """Return one allocation per GPU type and number of nodes, as large as its largest cell.

    Packs are split where they would exceed the time limit of the partition.
    """
    requests = []
    by_nodes = by_key(((p.shape.gpu_type, p.shape.nodes), p) for p in cells)
    for group in by_nodes.values():
        longest = machine.longest_minutes(group[0].shape, cluster)
        for chunk in _split_by_minutes(in_rounds(group), longest):
            requests.append(JobRequest(JobKind.PACK, _allocation(chunk), chunk))
    return requests


def _split_by_minutes(
    cells: list[PlannedCell], longest: float | None
) -> list[list[PlannedCell]]:
    """Split cells so that the time limit of each part is at most `longest` minutes."""
    parts: list[list[PlannedCell]] = [[]]
    total = 0
    for planned in cells:
        minutes = planned.shape.minutes + MARGIN_MINUTES
        if longest and parts[-1] and total + minutes > longest:
            parts.append([])
            total = 0
        parts[-1].append(planned)
        total += minutes
    return parts


def _allocation(cells: list[PlannedCell]) -> Shape:
    """Return the shape that holds any of the cells, long enough for all of them in turn."""
    shapes = [planned.shape for planned in cells]
    memory = [s.mem_gb_per_node for s in shapes if s.mem_gb_per_node is not None]
    return Shape(
        nodes=max(shape.nodes for shape in shapes),
        gpus_per_node=max(shape.gpus_per_node for shape in shapes),
        gpu_type=shapes[0].gpu_type,
        cpus_per_node=max(shape.cpus_per_node for shape in shapes),
        mem_gb_per_node=max(memory, default=None),
        minutes=sum(shape.minutes + MARGIN_MINUTES for shape in shapes),
    )


def check_submission(selection: Selection, requests: Iterable[JobRequest]) -> None:
    """Check that the requests of the selected cells may be submitted.

    Raises:
        UsageError: with earlier jobs they exceed the cluster's budget; or the follow-up job needs a
            partition, and none without GPUs is known.
    """
    cluster = selection.plan.cluster
    if selection.plan.has_followup and lacks_partition(cluster):
        raise UsageError(
            f"cluster={cluster.name} needs a partition for the follow-up job: add "
            "cluster.cpu_partition=NAME, or leave collect_after and auto out"
        )
    budget = cluster.gpu_hours_budget
    if budget is None:
        return
    hours = most_gpu_hours(selection.plan, requests)
    committed = committed_gpu_hours(selection.status)
    if committed + hours > budget:
        before = (
            f", after {hours_text(committed)} used or requested by this study"
            if committed
            else ""
        )
        raise UsageError(
            f"these cells request up to {hours_text(hours)} GPU-hours{before}; "
            f"cluster.gpu_hours_budget is {budget:g}: submit fewer cells, use fewer "
            "minutes=, or raise the budget"
        )


def lacks_partition(cluster: Cluster) -> bool:
    """Return whether the follow-up job needs a partition, and none without GPUs is known."""
    by_partition = cluster.gpu_request is GpuRequest.PARTITION
    return by_partition and not (cluster.cpu_partition or cluster.partition)


def isolation_note(cluster: Cluster, requests: Sequence[JobRequest]) -> str:
    """Return how long cells take one by one, or that several fit on a node; else nothing."""
    if cluster.isolate is Isolate.EXCLUSIVE:
        return ""
    if cluster.isolate is Isolate.SERIAL:
        if sum(request.tasks for request in requests) < 2:
            return ""
        minutes = sum(request.shape.minutes * request.tasks for request in requests)
        return (
            "one cell at a time (cluster.isolate=serial): time limits of "
            f"{duration_text(60 * minutes)} in all, without the queue; cluster.isolate=off is "
            "faster, but cells on one node slow each other down"
        )
    shapes = []  # of what can run at the same time
    for request in requests:
        shapes += [request.shape] * min(request.tasks, AT_ONCE)
    most = max(_count_fitting(shapes, node) for node in _nodes(cluster))
    if most < 2:
        return ""
    return (
        f"{most} of these cells fit on one node at the same time and would slow each other down: "
        "add cluster.isolate=serial (one cell at a time)"
    )


def exclusive_note(cluster: Cluster, requests: Sequence[JobRequest]) -> str:
    """Return what keeps jobs of others off the nodes of cells, with its GPU-hours.

    It is empty where nodes are not shared, and of cells without GPUs.
    """
    hours = gpu_hours_of(requests)
    if cluster.isolate is Isolate.EXCLUSIVE or not hours:
        return ""
    whole = gpu_hours_of(
        request._replace(charged_gpus=_gpus_of_node(request.shape, _nodes(cluster)))
        for request in requests
    )
    cost = "no more"
    if whole > hours:
        cost = f"{hours_text(whole)} GPU-hours at most instead of {hours_text(hours)}"
    return (
        "jobs of others may run on the node of a cell; cluster.isolate=exclusive asks for whole "
        f"nodes, and costs {cost}"
    )


def _gpus_of_node(shape: Shape, nodes: Iterable[Node]) -> int:
    """Return the GPUs of the largest node that a shape with GPUs may be given."""
    sizes = [node.gpus for node in nodes if node.gpu_type in (shape.gpu_type, None)]
    return max([shape.gpus_per_node, *sizes]) if shape.gpus_per_node else 0


def _nodes(cluster: Cluster) -> Sequence[Node]:
    """Return the cluster's nodes; where SLURM lists none, those of the profile by their GPUs."""
    return commands.inventory() or [
        Node("", gpu_type, gpus, sys.maxsize, math.inf, frozenset())
        for gpu_type, gpus in [(None, 0), *cluster.gpu_types.items()]
    ]


def _count_fitting(shapes: list[Shape], node: Node) -> int:
    """Return how many of the shapes, the smallest first, a node holds together."""
    gpus, cpus, memory_gb = node.gpus, node.cpus, node.memory_gb
    count = 0
    for shape in sorted(
        shapes, key=lambda shape: (shape.gpus_per_node, shape.cpus_per_node)
    ):
        if shape.gpu_type and node.gpu_type not in (shape.gpu_type, None):
            continue
        gpus -= shape.gpus_per_node
        cpus -= shape.cpus_per_node
        memory_gb -= shape.mem_gb_per_node or 0
        if min(gpus, cpus, memory_gb) < 0:
            break
        count += 1
    return count
