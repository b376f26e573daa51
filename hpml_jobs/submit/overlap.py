"""What isolation costs: time where cells run one by one, else cells that share a node."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpml_jobs.core.cluster import Cluster, Isolate, Launcher, Shape
from hpml_jobs.core.text import duration_text
from hpml_jobs.slurm import commands
from hpml_jobs.submit.job_requests import JobKind, JobRequest

SERIAL = "one cell at a time (cluster.isolate=serial)"
REMEDY = (
    "without the time in the queue; cluster.isolate=off is faster, but cells that share a node "
    "slow each other down"
)


class _Room(NamedTuple):
    """What a node has; `gpu_type` is None where SLURM does not name one."""

    gpu_type: str | None
    gpus: float
    cpus: float
    memory_gb: float


def isolation_note(cluster: Cluster, requests: Sequence[JobRequest]) -> str:
    """Return how long cells take one by one, or that several fit on a node; else nothing."""
    if cluster.isolate is Isolate.EXCLUSIVE or cluster.launcher is Launcher.LOCAL:
        return ""
    if cluster.isolate is Isolate.SERIAL:
        jobs = [len(r.cells) if r.kind is JobKind.ARRAY else 1 for r in requests]
        minutes = sum(r.shape.minutes * n for r, n in zip(requests, jobs, strict=True))
        return "" if sum(jobs) < 2 else f"{SERIAL}: up to {duration_text(60 * minutes)}, {REMEDY}"
    shapes = [shape for request in requests for shape in _at_once(request, cluster)]
    most = max((_count_fitting(shapes, room) for room in _rooms(cluster)), default=0)
    if most < 2:
        return ""
    return (
        f"{most} of these cells fit on one node at the same time and would slow each other down: "
        "add cluster.isolate=serial (one cell at a time)"
    )


def _at_once(request: JobRequest, cluster: Cluster) -> list[Shape]:
    """Return the shapes of what can run at the same time: the tasks of an array, or one job."""
    is_array = request.kind is JobKind.ARRAY
    return [request.shape] * (min(len(request.cells), cluster.array_parallelism) if is_array else 1)


def _rooms(cluster: Cluster) -> Iterator[_Room]:
    """Yield the nodes of the cluster; by the profile, of which only the GPUs are known."""
    nodes = commands.inventory()
    for node in nodes:
        yield _Room(node.gpu_type, node.gpus, node.cpus, node.memory_gb)
    if not nodes:
        yield _Room(None, 0, math.inf, math.inf)
        for gpu_type, gpus in cluster.gpu_types.items():
            yield _Room(gpu_type, gpus, math.inf, math.inf)


def _count_fitting(shapes: list[Shape], room: _Room) -> int:
    """Return how many of the shapes, the smallest first, a node holds together."""
    _, gpus, cpus, memory_gb = room
    count = 0
    for shape in sorted(shapes, key=lambda shape: (shape.gpus_per_node, shape.cpus_per_node)):
        if shape.gpus_per_node and shape.gpu_type and room.gpu_type not in (shape.gpu_type, None):
            continue
        gpus -= shape.gpus_per_node
        cpus -= shape.cpus_per_node
        memory_gb -= shape.mem_gb_per_node or 0
        if min(gpus, cpus, memory_gb) < 0:
            break
        count += 1
    return count
