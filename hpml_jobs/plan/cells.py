"""The cells of one combination of settings: one per strategy, batch of a ladder and repeat."""

from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell, CellFile
from hpml_jobs.core.cluster import Cluster, Shape
from hpml_jobs.core.strategies import Device, Loader, Sharded, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan import machine
from hpml_jobs.plan.loader_workers import DEFAULT_WORKERS
from hpml_jobs.plan.plan import PlannedCell
from hpml_jobs.plan.settings import Settings
from hpml_jobs.plan.shape import check_shape, make_shape
from hpml_jobs.plan.working_tree import WorkingTree


class ResolvedWorkload(NamedTuple):
    """A workload with what was read of it: images, parameters, source files; where its data is."""

    workload: Workload
    root: Path
    tree: WorkingTree


class Draft(NamedTuple):
    """A checked cell of one combination, before its data is looked at: the images are unknown."""

    cell: Cell
    shape: Shape


def cells_of(settings: Settings) -> list[Cell]:
    """Return the cells of one combination with what the command line alone determines.

    GPU type, derived nodes and images are added later, so that wrong options are refused before
    the cluster and the data are read.
    """
    return [_cell(settings, strategy) for strategy in _strategies(settings)]


def _strategies(settings: Settings) -> list[Strategy]:
    """Return the strategies that one combination measures: on one GPU, the baseline or both."""
    if settings.gpus > 1:
        return [settings.strategy]
    if settings.strategy is settings.baseline is Strategy.DDP:
        return [Strategy.SINGLE, Strategy.DDP]
    return [Strategy.SINGLE]


def _cell(settings: Settings, strategy: Strategy) -> Cell:
    has_ranks = strategy.under_torchrun and settings.gpus > 1  # else there is nothing to choose
    buffers = settings.sync_buffers if has_ranks else None
    path = settings.path_on(device_of(settings))
    return Cell(
        gpus=settings.gpus,
        nodes=settings.nodes or 1,
        batch=settings.batch,
        strategy=strategy,
        workload=msgspec.structs.replace(settings.workload, limit=settings.data.limit),
        protocol=settings.protocol,
        epochs=settings.protocol.epochs if settings.epochs is None else settings.epochs,
        probe_s=settings.probe_s,
        device=device_of(settings),
        threads=settings.threads,
        loader=settings.loader,
        loader_workers=_given_workers(settings),
        seed=settings.seed,
        recipe=settings.recipe.at(settings.gpus * settings.batch * settings.accumulate),
        set_epoch=settings.set_epoch or not has_ranks,
        sync_buffers=None if buffers is strategy.traffic.sync_buffers else buffers,
        evaluate=settings.evaluate,
        quantize=settings.quantize.for_cell,
        path=path if has_ranks else path.without_buckets,
        reshard=settings.reshard or strategy.traffic.shards is not Sharded.PARAMETERS,
    )


def _given_workers(settings: Settings) -> int:
    """Return the loader workers of a cell before its GPU is known."""
    if settings.loader is Loader.DEVICE:
        return 0
    return DEFAULT_WORKERS if settings.loader_workers is None else settings.loader_workers


def device_of(settings: Settings) -> Device:
    """Return the chosen device, else the cluster's; on a local machine, what it has."""
    device = settings.device or settings.cluster.device
    if device is not None:
        return Device(device)
    return Device.CUDA if machine.local_gpus() else Device.CPU


def drafts_of(
    settings: Settings, cells: list[Cell], gpu_type: str | None, cluster: Cluster, *, check: bool
) -> list[Draft]:
    """Return the cells of one combination with their nodes, GPU type and shape."""
    nodes = settings.nodes or cluster.nodes_for(settings.gpus, gpu_type)
    drafts = []
    for cell in cells:
        in_cell = gpu_type if cell.device is Device.CUDA else None
        placed = msgspec.structs.replace(cell, nodes=nodes, gpu_type=in_cell)
        shape = make_shape(placed, cluster, gpu_type, settings.minutes)
        if check:
            check_shape(shape, placed, cluster)
        drafts.append(Draft(placed, shape))
    return drafts


def planned_cells(
    settings: Settings, drafts: list[Draft], resolved: ResolvedWorkload, cluster: Cluster
) -> Iterator[PlannedCell]:
    """Yield the cells of one combination: per batch of a ladder, per strategy, per repeat."""
    workload = resolved.workload
    for batch in _batches(settings, workload):
        recipe = settings.recipe.at(settings.gpus * batch * settings.accumulate)
        for draft in drafts:
            for repeat in range(settings.repeats):
                cell = msgspec.structs.replace(
                    draft.cell, batch=batch, recipe=recipe, workload=workload, repeat=repeat
                )
                file = CellFile(
                    cell=cell,
                    data_root=str(resolved.root),
                    code_root=str(Path.cwd()),
                    trace=settings.trace,
                    link_gb_per_s=cluster.link_of(draft.shape.gpu_type),
                    peak_tflop_per_s=cluster.peak_of(draft.shape.gpu_type),
                    shape=draft.shape,
                    ladder=bool(settings.ladder.start),
                    code_commit=resolved.tree.commit,
                    code_dirty=resolved.tree.dirty,
                )
                yield PlannedCell(file, draft.shape, cell.slug)


def _batches(settings: Settings, workload: Workload) -> list[int]:
    """Return the given batch; on a ladder, growing batches up to a GPU's share of the data."""
    if not settings.ladder.start:
        return [settings.batch]
    share = ceil((workload.images or 0) / settings.gpus)
    batches = [settings.ladder.start]
    while (larger := batches[-1] * settings.ladder.factor) <= share:
        batches.append(larger)
    return batches
