"""The loader workers of a cell where the user gives none."""

import functools
import os
from collections.abc import Callable
from typing import NamedTuple

from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.plan import machine
from hpml_jobs.plan.settings import Notify
from hpml_jobs.results.gpus import peak_rate
from hpml_jobs.slurm import commands
from hpml_jobs.study.study import Study

DEFAULT_WORKERS = 2
"""Of cells on CPUs and on GPUs that are slow or not known, and of all versions before 0.8.0."""

WORKERS_BY_PEAK = ((300e12, 8), (30e12, 4))
"""From this peak FLOP/s of fp32 values on (tensor cores included): that many workers. A ResNet-18
on 32x32 images takes more per second than 2 workers make there (docs/keys.md)."""


def cpus_per_gpu(
    loader_workers: int, threads: int, *, several_nodes: bool = False
) -> int:
    """Return the CPUs that a process on a GPU keeps busy.

    Beside loader workers and the threads of the training loop, autograd and the thread that pins
    batches work, and between nodes NCCL's proxy, which polls.

    >>> cpus_per_gpu(8, 1), cpus_per_gpu(2, 1, several_nodes=True)
    (10, 5)
    """
    return loader_workers + threads + (2 if several_nodes else 1)


class Workers(NamedTuple):
    """A chosen number, and why; no reason for the default."""

    number: int
    reason: str = ""


def workers_for(gpu: str | None, cpus: int | None, threads: int) -> Workers:
    """Return the number for a GPU by its name, as many as have one of its node's `cpus` per GPU.

    >>> workers_for("h200", None, 1).number, workers_for("h200", 6, 1).number
    (8, 4)
    >>> workers_for("rtx8000", 48, 1), workers_for(None, None, 1)
    (Workers(number=2, reason=''), Workers(number=2, reason=''))
    """
    peak = peak_rate(gpu, "fp32") if gpu else None
    if peak is None:
        return Workers(DEFAULT_WORKERS)
    enough = (number for least, number in WORKERS_BY_PEAK if peak.flop_per_s >= least)
    wanted = next(enough, DEFAULT_WORKERS)
    possible = wanted
    if cpus is not None:
        possible = max(DEFAULT_WORKERS, cpus - cpus_per_gpu(0, threads))
    if DEFAULT_WORKERS in (wanted, possible):
        return Workers(DEFAULT_WORKERS)
    if possible < wanted:
        return Workers(possible, f"there are {cpus} CPUs for each {gpu}")
    return Workers(wanted, f"the default for {gpu}")


Choose = Callable[[str | None, int], int]
"""Returns the number for a GPU type and a number of threads."""


def chooser(cluster: Cluster, study: Study | None, notify: Notify) -> Choose:
    """Return the function that chooses; it looks at the cluster and the study once for each GPU.

    Without a study the number is the GPU's own: it is compared with a number that is given.
    """
    return functools.cache(functools.partial(_chosen, cluster, study, notify))


def _chosen(
    cluster: Cluster,
    study: Study | None,
    notify: Notify,
    gpu_type: str | None,
    threads: int,
) -> int:
    """Return the number for cells on GPUs; say so where it is not the default of old versions.

    A study that has cells with this default keeps it, so that its cells can be compared, and
    finished ones are not measured again.
    """
    gpu = gpu_name(gpu_type, cluster)
    workers = workers_for(gpu, _cpus_per_gpu(gpu_type, cluster), threads)
    if workers.number == DEFAULT_WORKERS:
        return DEFAULT_WORKERS
    if study and _has_default_cells(study, gpu_type):
        notify(
            f"loader_workers={DEFAULT_WORKERS}, as other cells of {study.name} have (a new study "
            f"has {workers.number} on {gpu}; change it: loader_workers=)"
        )
        return DEFAULT_WORKERS
    notify(
        f"loader_workers={workers.number}: {workers.reason} (change it: loader_workers=)"
    )
    return workers.number


def gpu_name(gpu_type: str | None, cluster: Cluster) -> str | None:
    """Return the requested GPU type; on a local machine, the name of its first GPU."""
    if cluster.is_local:
        return next(iter(machine.local_gpus()), None)
    return gpu_type


def _cpus_per_gpu(gpu_type: str | None, cluster: Cluster) -> int | None:
    """Return the fewest CPUs that a node has for each GPU; None where that is not known."""
    if cluster.is_local:
        gpus = len(machine.local_gpus())
        if not gpus:
            return None
        return len(os.sched_getaffinity(0)) // gpus
    nodes = [node for node in commands.inventory() if node.gpus]
    typed = [node for node in nodes if node.gpu_type == gpu_type]
    return min((node.cpus // node.gpus for node in typed or nodes), default=None)


def _has_default_cells(study: Study, gpu_type: str | None) -> bool:
    for folder in study.cells():
        try:
            cell = folder.read().cell
        except HpmlError:  # the status of the study names it
            continue
        loader = (cell.device, cell.gpu_type, cell.loader, cell.loader_workers)
        if loader == (Device.CUDA, gpu_type, Loader.WORKERS, DEFAULT_WORKERS):
            return True
    return False
