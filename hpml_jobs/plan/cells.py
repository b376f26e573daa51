"""The cells of one combination, what each requests, and the plan that they make."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from hpml_jobs.core.cell import Cell, CellFile, Protocol
from hpml_jobs.core.cluster import Cluster, Shape
from hpml_jobs.core.formulas import gpu_hours
from hpml_jobs.core.strategies import Device, Loader, Strategy
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan import machine
from hpml_jobs.plan.auto import Goal
from hpml_jobs.plan.data import data_root
from hpml_jobs.plan.loader import DEFAULT_WORKERS, Choose, cpus_per_gpu
from hpml_jobs.plan.own_code import WorkingTree
from hpml_jobs.plan.rules import iterations_fit_into_an_epoch, refuse
from hpml_jobs.plan.settings import Settings
from hpml_jobs.slurm import commands
from hpml_jobs.study.study import Study


class PlannedCell(NamedTuple):
    """One cell as it will be submitted; `slug` is its name in the study.

    `block` is the name of the grid's block that it is of, empty without one.
    """

    file: CellFile
    shape: Shape
    slug: str
    block: str = ""

    @property
    def cell(self) -> Cell:
        """The measurement itself."""
        return self.file.cell

    @property
    def gpu_hours(self) -> float:
        """The most GPU-hours it can use: the requested GPUs until the time limit."""
        return gpu_hours(
            self.shape.nodes * self.shape.gpus_per_node, self.shape.minutes
        )


class Plan(NamedTuple):
    """All cells of one submission in the order of the command line, and how to submit them.

    `pack`: cells share allocations. `collect_after`: a follow-up job writes the report.
    `is_retry`: a follow-up job submits cells again. `exclude`: nodes that jobs must avoid.
    `origins`: where the value of each key comes from. With a `goal` the cells are those among which
    `auto` chooses; a follow-up job repeats the `words` that were typed. `step` says what the cells
    are for. `most_gpu_hours` are those that the study may still use.
    """

    study: Study
    cluster: Cluster
    cells: list[PlannedCell]
    rerun: bool = False
    origins: dict[str, str] = {}
    pack: bool = False
    collect_after: bool = False
    is_retry: bool = False
    exclude: tuple[str, ...] = ()
    goal: Goal | None = None
    words: tuple[str, ...] = ()
    step: str = ""
    most_gpu_hours: float = 0.0

    @property
    def has_followup(self) -> bool:
        """Whether a follow-up job comes after the cells."""
        return self.collect_after or self.goal is not None


class ResolvedWorkload(NamedTuple):
    """A workload with what was read of it: images, parameters, source files; where its data is."""

    workload: Workload
    root: Path
    tree: WorkingTree


class CellDraft(NamedTuple):
    """A cell on its way to the plan; `gpu_type` is requested with it.

    It begins with what the command line alone determines. GPU type, loader workers, derived nodes
    and images follow one by one, so that wrong options are refused before the cluster and the data
    are read. `block` is the name of the grid's block that it is of, empty without one.
    """

    settings: Settings
    cell: Cell
    gpu_type: str | None = None
    block: str = ""

    def with_cell(self, **fields: Any) -> "CellDraft":
        """Return the draft with other fields of its cell."""
        return self._replace(cell=replace(self.cell, **fields))

    def shape(self, cluster: Cluster) -> Shape:
        """Return the resources that the cell requests."""
        return make_shape(self.cell, cluster, self.gpu_type, self.settings.minutes)


class GivenWorkload(NamedTuple):
    """A workload as it was given, and the folder that its data is in."""

    workload: Workload
    root: Path


def given_workload(settings: Settings) -> GivenWorkload:
    """Return the workload of one combination."""
    workload = replace(settings.workload, limit=settings.data.limit)
    return GivenWorkload(workload, data_root(settings.data.root, settings.cluster))


def draft_of(settings: Settings, block: str) -> CellDraft:
    """Return the cell of one combination, which is of a grid's block of this name."""
    strategy = settings.strategy if settings.gpus > 1 else Strategy.SINGLE
    return CellDraft(settings, _cell(settings, strategy), block=block)


def _cell(settings: Settings, strategy: Strategy) -> Cell:
    if settings.script is not None:
        return _cell_of_script(settings, strategy)
    of_ranks = _options_of_ranks(settings, strategy)
    return Cell(
        gpus=settings.gpus,
        nodes=settings.nodes or 1,
        batch=settings.batch,
        strategy=strategy,
        workload=given_workload(settings).workload,
        protocol=settings.protocol,
        epochs=settings.protocol.epochs if settings.epochs is None else settings.epochs,
        epoch_iterations=settings.iterations,
        probe_s=settings.probe_s,
        device=device_of(settings),
        threads=settings.threads,
        loader=settings.loader,
        loader_workers=_loader_workers(settings),
        seed=settings.seed,
        recipe=settings.recipe.at(settings.gpus * settings.batch * settings.accumulate),
        evaluate=settings.evaluate,
        path=settings.path_on(device_of(settings)),
        **of_ranks,
        quantize=settings.quantize.for_cell,
    )


def _options_of_ranks(settings: Settings, strategy: Strategy) -> dict[str, Any]:
    """Return what a cell with several ranks chooses."""
    if not strategy.under_torchrun:
        return {}
    buffers = settings.sync_buffers
    is_default = buffers is strategy.traffic.sync_buffers
    return {
        "set_epoch": settings.set_epoch,
        "sync_buffers": None if is_default else buffers,
    }


def _loader_workers(settings: Settings) -> int:
    if settings.loader is Loader.DEVICE:
        return 0
    workers = settings.loader_workers
    return DEFAULT_WORKERS if workers is None else workers


def _cell_of_script(settings: Settings, strategy: Strategy) -> Cell:
    """Return the cell of a script, which decides everything else by itself."""
    return Cell(
        gpus=settings.gpus,
        nodes=settings.nodes or 1,
        batch=settings.batch,
        strategy=strategy,
        workload=settings.workload,
        protocol=Protocol.OUTSIDE,
        epochs=Protocol.OUTSIDE.epochs,
        probe_s=0.0,
        device=device_of(settings),
        threads=settings.threads,
        loader_workers=settings.loader_workers or 0,
        seed=settings.seed,
        script=settings.script_of_cell,
    )


def device_of(settings: Settings) -> Device:
    """Return the chosen device, else the cluster's; on a local machine, what it has."""
    device = settings.device or settings.cluster.device
    if device is not None:
        return Device(device)
    return Device.CUDA if machine.local_gpus() else Device.CPU


def with_workers(draft: CellDraft, choose: Choose) -> CellDraft:
    """Return the draft with chosen loader workers if the user gives none."""
    settings, cell = draft.settings, draft.cell
    is_given = settings.loader_workers is not None or cell.loader is not Loader.WORKERS
    if is_given or cell.device is not Device.CUDA:
        return draft
    return draft.with_cell(loader_workers=choose(draft.gpu_type, cell.threads))


def placed(draft: CellDraft, cluster: Cluster) -> CellDraft:
    """Return the draft with the nodes of its cell, and its GPU type."""
    nodes = draft.settings.nodes or cluster.nodes_for(
        draft.settings.gpus, draft.gpu_type
    )
    in_cell = draft.gpu_type if draft.cell.device is Device.CUDA else None
    return draft.with_cell(nodes=nodes, gpu_type=in_cell)


def planned_cells(
    draft: CellDraft, resolved: ResolvedWorkload, cluster: Cluster
) -> Iterator[PlannedCell]:
    """Yield the cells of a draft, one per repeat."""
    settings, workload = draft.settings, resolved.workload
    refuse([iterations_fit_into_an_epoch], settings, workload, draft.cell.global_batch)
    shape = draft.shape(cluster)
    code_root = str(Path.cwd())
    for repeat in range(settings.repeats):
        cell = replace(draft.cell, workload=workload, repeat=repeat)
        file = CellFile(
            cell=cell,
            data_root=str(resolved.root),
            code_root=code_root,
            trace=settings.trace,
            cancel_below_utilization=cluster.cancel_below_utilization,
            shape=shape,
            code_commit=resolved.tree.commit,
            code_dirty=resolved.tree.dirty,
        )
        yield PlannedCell(file, shape, cell.slug, draft.block)


def make_shape(
    cell: Cell, cluster: Cluster, gpu_type: str | None, minutes: int
) -> Shape:
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
