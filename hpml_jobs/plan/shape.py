"""The resources that a cell requests, checked against the cluster's limits and nodes."""

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.cluster import Cluster, Launcher, Shape, check_inventory, sbatch_options
from hpml_jobs.core.gpus import is_mig_type
from hpml_jobs.core.strategies import Device
from hpml_jobs.errors import UsageError
from hpml_jobs.plan import machine
from hpml_jobs.plan.loader_workers import cpus_per_gpu
from hpml_jobs.slurm import commands


def make_shape(cell: Cell, cluster: Cluster, gpu_type: str | None, minutes: int) -> Shape:
    """Return what a cell requests on each node, in CPUs, GPUs, memory (GB) and minutes."""
    per_node = cell.gpus_per_node
    requests_gpus = cell.device is Device.CUDA or cluster.request_gpus_for_cpu
    memory = cluster.mem_gb_per_gpu
    return Shape(
        nodes=cell.nodes,
        gpus_per_node=per_node if requests_gpus else 0,
        gpu_type=gpu_type,
        cpus_per_node=_cpus(cell, gpu_type),
        mem_gb_per_node=memory * per_node if memory else None,
        minutes=minutes,
    )


def _cpus(cell: Cell, gpu_type: str | None) -> int:
    """Return the CPUs on each node: of loader workers and threads, and of what else CUDA needs.

    No node need have CPUs for the latter.
    """
    least = cell.gpus_per_node * (cell.loader_workers + cell.threads)
    if cell.device is Device.CPU:
        return least
    wanted = cell.gpus_per_node * cpus_per_gpu(
        cell.loader_workers, cell.threads, several_nodes=cell.nodes > 1
    )
    nodes = [node for node in commands.inventory() if node.gpus >= cell.gpus_per_node]
    typed = [node for node in nodes if gpu_type in (None, node.gpu_type)] or nodes
    largest = max((node.cpus for node in typed), default=wanted)
    return min(wanted, max(least, largest))


def check_shape(
    shape: Shape, cell: Cell, cluster: Cluster, *, minutes_option: str = "minutes="
) -> None:
    """Refuse a cell that this cluster, or this machine, can never run.

    `minutes_option` is how the user gave the time limit, for the message.

    Raises:
        UsageError: with what is there, and a value that would work.
    """
    if cluster.launcher is Launcher.LOCAL:
        _check_local(cell)
        return
    if shape.gpus_per_node > 1 and is_mig_type(shape.gpu_type or ""):
        raise UsageError(
            f"gpus={cell.gpus} with gpu_type={shape.gpu_type}: of the instances of a divided GPU "
            "(MIG) a process sees one; use gpus=1, or a whole GPU"
        )
    sbatch_options(shape, cluster)  # refuses what the cluster has no options for
    longest = machine.longest_minutes(shape, cluster)
    if longest is not None and shape.minutes > longest:
        raise UsageError(
            f"{minutes_option}{shape.minutes}: the time limit of this partition is {longest:g} "
            f"minutes, the job would never start; use {minutes_option}{longest:g} or less, or "
            "another partition"
        )
    nodes = list(commands.inventory())
    size = cluster.gpu_types.get(shape.gpu_type or "")
    if nodes:
        check_inventory(shape, cluster, nodes)
    elif size and shape.gpus_per_node > size:
        raise UsageError(
            f"gpus={cell.gpus} on nodes={cell.nodes} are {shape.gpus_per_node} per node; "
            f"a node of cluster={cluster.name} has {size} {shape.gpu_type}"
        )


def _check_local(cell: Cell) -> None:
    if cell.nodes > 1:
        raise UsageError(f"nodes={cell.nodes}: cluster=local is one machine; use nodes=1")
    gpus_here = len(machine.local_gpus())
    if cell.device is Device.CUDA and cell.gpus > gpus_here:
        raise UsageError(f"gpus={cell.gpus} with device=cuda: this machine has {gpus_here} GPUs")
