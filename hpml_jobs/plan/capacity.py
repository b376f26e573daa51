"""What nodes can give: cells that a cluster, or this machine, can never run are refused."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.cluster import Cluster, GpuRequest, Shape, sbatch_options
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.gpus import is_mig_type
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import counted
from hpml_jobs.plan import machine
from hpml_jobs.slurm import commands
from hpml_jobs.slurm.nodes import Node


def check_shape(
    shape: Shape, cell: Cell, cluster: Cluster, *, minutes_option: str = "minutes="
) -> None:
    """Refuse a cell that this cluster, or this machine, can never run.

    `minutes_option` is how the user gave the time limit, for the message.

    Raises:
        UsageError: with what is there, and a value that would work.
    """
    if cluster.is_local:
        _check_local(cell, cluster)
        return
    _check_gpu_instances(shape, cell)
    sbatch_options(shape, cluster)  # refuses what the cluster has no options for
    _check_minutes(shape, cluster, minutes_option)
    nodes = commands.inventory()
    if nodes:
        check_inventory(shape, cluster, nodes)
    else:
        _check_profile(shape, cell, cluster)


def _check_local(cell: Cell, cluster: Cluster) -> None:
    if cluster.hosts:
        hosts = len(cluster.hosts)
        if cell.nodes > hosts:
            raise UsageError(
                f"nodes={cell.nodes}: cluster.hosts has {hosts}; name more, or use nodes={hosts} "
                "or less"
            )
        return
    if cell.nodes > 1:
        raise UsageError(
            f"nodes={cell.nodes}: cluster=local is one machine; use nodes=1"
        )
    gpus_here = len(machine.local_gpus())
    if cell.device is Device.CUDA and cell.gpus > gpus_here:
        there = f"this machine has {counted(gpus_here, 'GPU')}"
        fix = f"use gpus={gpus_here} or less" if gpus_here else "use device=cpu"
        raise UsageError(f"gpus={cell.gpus} with device=cuda: {there}; {fix}")


def _check_gpu_instances(shape: Shape, cell: Cell) -> None:
    if shape.gpus_per_node > 1 and is_mig_type(shape.gpu_type or ""):
        raise UsageError(
            f"gpus={cell.gpus} with gpu_type={shape.gpu_type}: of the instances of a divided GPU "
            "(MIG) a process sees one; use gpus=1, or a whole GPU"
        )


def _check_minutes(shape: Shape, cluster: Cluster, minutes_option: str) -> None:
    longest = machine.longest_minutes(shape, cluster)
    if longest is not None and shape.minutes > longest:
        raise UsageError(
            f"{minutes_option}{shape.minutes}: the time limit of this partition is {longest:g} "
            f"minutes, the job would never start; use {minutes_option}{longest:g} or less, or "
            "another partition"
        )


def _check_profile(shape: Shape, cell: Cell, cluster: Cluster) -> None:
    """Refuse more GPUs per node than the cluster's profile names, where sinfo does not answer."""
    most = cluster.gpu_types.get(shape.gpu_type or "")
    if most and shape.gpus_per_node > most:
        raise UsageError(
            f"gpus={cell.gpus} on nodes={cell.nodes} are {shape.gpus_per_node} per node; "
            f"a node of cluster={cluster.name} has {most} {shape.gpu_type}"
        )


class Need(NamedTuple):
    """What a cell needs of each of its nodes, what a node has, what to do where no node has it."""

    unit: str
    needed: Callable[[Shape], int]
    available: Callable[[Node], float]
    remedy: str


NEEDS = (
    Need(
        "GPUs",
        lambda shape: shape.gpus_per_node,
        lambda node: node.gpus,
        "use a smaller gpus= or more nodes=",
    ),
    Need(
        "CPUs",
        lambda shape: shape.cpus_per_node,
        lambda node: node.cpus,
        "use fewer loader_workers= or a smaller gpus=",
    ),
    Need(
        "GB of memory",
        lambda shape: shape.mem_gb_per_node or 0,
        lambda node: node.memory_gb,
        "lower cluster.mem_gb_per_gpu=",
    ),
)


def check_inventory(shape: Shape, cluster: Cluster, nodes: Sequence[Node]) -> None:
    """Refuse a shape that this cluster can never start; sbatch would accept it."""
    partition = sbatch_options(shape, cluster).get("partition")
    inside = _of_partition(partition, nodes) if partition else nodes
    if shape.gpu_type:
        inside = _of_gpu_type(shape.gpu_type, cluster, inside)
    for need in NEEDS:
        fitting = [
            node for node in inside if need.available(node) >= need.needed(shape)
        ]
        if len(fitting) < shape.nodes:
            raise UsageError(_shortage(shape, need, inside, len(fitting)))
        inside = fitting


def _of_partition(partition: str, nodes: Sequence[Node]) -> list[Node]:
    inside = [node for node in nodes if partition in node.partitions]
    if not inside:
        names = ", ".join(
            sorted(frozenset().union(*(node.partitions for node in nodes)))
        )
        raise UsageError(f"partition {partition} does not exist here: {names}")
    return inside


def _shortage(shape: Shape, need: Need, nodes: Sequence[Node], fitting: int) -> str:
    """Return that too few of the nodes can give what a cell needs; `fitting` of them can."""
    largest = max(map(need.available, nodes), default=0)
    with_type = f" with {shape.gpu_type}" if shape.gpu_type else ""
    remedy = "use a smaller gpus= or nodes=" if fitting else need.remedy
    return (
        f"a cell needs {counted(shape.nodes, 'node')}{with_type} of {need.needed(shape)} "
        f"{need.unit} each; {fitting} of the nodes here can give that (the largest has "
        f"{largest:g}), so the job would never start; {remedy}"
    )


def _of_gpu_type(gpu_type: str, cluster: Cluster, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes with a GPU type; all with GPUs where SLURM has no such type."""
    typed = [node for node in nodes if node.gpu_type == gpu_type]
    types = sorted({node.gpu_type for node in nodes if node.gpu_type})
    if not typed and types and cluster.gpu_request is GpuRequest.GRES_TYPE:
        raise UsageError(
            f"gpu_type={gpu_type}: SLURM has only {', '.join(types)} here (sinfo)"
        )
    return typed or [node for node in nodes if node.gpus]
