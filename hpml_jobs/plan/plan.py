"""From settings to a `Plan`: resolved, checked cells with their shapes, before anything is sent."""

import functools
import os
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import NamedTuple

import msgspec

from hpml_jobs.core.cell import Cell, CellFile, Device, Strategy
from hpml_jobs.core.cluster import Cluster, Launcher, Shape, check_inventory, sbatch_options
from hpml_jobs.core.formulas import gpu_hours
from hpml_jobs.core.workload import Workload
from hpml_jobs.errors import UsageError
from hpml_jobs.plan import machine
from hpml_jobs.plan.data import data_root, settle_workload
from hpml_jobs.plan.settings import Settings
from hpml_jobs.plan.sweep import Sweep
from hpml_jobs.plan.unused import refuse_unused
from hpml_jobs.slurm import commands
from hpml_jobs.study.study import Study, check_name


class PlannedCell(NamedTuple):
    """One cell as it will be sent."""

    file: CellFile
    shape: Shape

    @property
    def cell(self) -> Cell:
        """The measurement itself."""
        return self.file.cell

    @property
    def gpu_hours(self) -> float:
        """GPU-hours at most: until the time limit, for the GPUs that are requested."""
        return gpu_hours(self.shape.nodes * self.shape.gpus_per_node, self.shape.minutes)


class Plan(NamedTuple):
    """All cells of one submission, in the order asked for, and what was decided on the way.

    `pack`: cells share allocations; `collect_after`: a closing job writes the report, `retries`:
    and sends cells again that the cluster lost, so often at most. `retry` marks such a submission;
    `exclude` are nodes to keep away from.
    """

    study: Study
    cluster: Cluster
    cells: list[PlannedCell]
    rerun: bool = False
    origins: dict[str, str] = {}
    pack: bool = False
    collect_after: bool = False
    retries: int = 0
    retry: bool = False
    exclude: tuple[str, ...] = ()


def make_plan(
    sweep: Sweep,
    *,
    sending: bool = True,
    fetch: bool = True,
    say: Callable[[str], None],
) -> Plan:
    """Resolve and check all cells; nothing is written and nothing is sent.

    `sending=False` is for a cell that runs right here (`hpml-jobs run`): the cluster's rules for
    submission and its inventory are not asked.
    """
    for sentence in sweep.said:
        say(sentence)
    first = sweep.settings[0]
    resolver = _Resolver(first.cluster, sending=sending, fetch=fetch, say=say)
    if first.ladder.start and "batch" in sweep.origins:
        raise UsageError("batch= on a ladder: it takes its own batches; say ladder.start=N instead")
    refuse_unused(sweep.settings, [resolver.checked_draft(each) for each in sweep.settings])
    cluster = resolver.cluster
    if sending:
        cluster.check()
    if sending and fetch and cluster.launcher is Launcher.SLURM:  # not for `hpml-jobs plan`
        machine.check_can_send(cluster.name)
    outputs = Path(os.path.expandvars(first.outputs)).expanduser().resolve()
    study = Study(outputs / _study_name(sweep, resolver))
    study.check_schema()
    ordered = [one for settings in sweep.settings for one in resolver.resolve(settings)]
    unique = {one.cell.slug: one for one in ordered}
    if len(unique) < len(ordered):
        say(
            f"{len(ordered)} combinations are {len(unique)} cells: gpus=1 is one shared baseline "
            "(single) for all strategies, duplicates are left out"
        )
    return Plan(
        study=study,
        cluster=cluster,
        cells=list(unique.values()),
        rerun=first.rerun,
        origins=sweep.origins,
        pack=first.pack,
        collect_after=first.collect_after,
        retries=first.retries,
    )


def _study_name(sweep: Sweep, resolver: "_Resolver") -> str:
    first = sweep.settings[0]
    if first.study is not None:
        return check_name(first.study)
    workloads = "_".join(dict.fromkeys(settings.workload.name for settings in sweep.settings))
    parts = [workloads, first.cluster.name]
    kinds = {resolver.kind(settings) for settings in sweep.settings} - {None}
    if first.cluster.launcher is Launcher.SLURM:
        parts += sorted(str(kind) for kind in kinds)
    return check_name("-".join(parts))


class _Resolver:
    """Defaults that need to know the cluster, the machine or the data; each asked once."""

    def __init__(
        self, cluster: Cluster, *, sending: bool, fetch: bool, say: Callable[[str], None]
    ) -> None:
        self._asked_cluster = cluster
        self.sending = sending
        self.fetch = fetch
        self.say = say
        self._workloads: dict[tuple[Workload, Path], Workload] = {}
        self._said: set[str] = set()

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self.say(sentence)

    @functools.cached_property
    def cluster(self) -> Cluster:
        """The study's one cluster; a generic one with the GPU kinds that sinfo shows."""
        cluster = self._asked_cluster
        if cluster.launcher is Launcher.LOCAL or cluster.gpu_types or not self.sending:
            return cluster
        kinds: dict[str, int] = {}
        for node in commands.inventory():
            if node.gpu_type and node.gpus:
                kinds[node.gpu_type] = max(node.gpus, kinds.get(node.gpu_type, 0))
        return msgspec.structs.replace(cluster, gpu_types=kinds)

    def device(self, settings: Settings) -> Device:
        """What was asked for, else what the cluster has; a local machine is looked at."""
        asked = settings.device or settings.cluster.device
        if asked is not None:
            return Device(asked)
        return Device.CUDA if machine.local_gpus() else Device.CPU

    def kind(self, settings: Settings) -> str | None:
        """The GPU kind to ask for; None where no GPU is requested, or on a local machine."""
        cluster = self.cluster
        wants_gpus = self.device(settings) is Device.CUDA or cluster.request_gpus_for_cpu
        if not wants_gpus or cluster.launcher is Launcher.LOCAL:
            return None
        kind = cluster.kind(settings.gpu_type)
        if settings.gpu_type is None and kind is not None:
            self._say_once(f"GPU kind: {kind}, the default of cluster={cluster.name} (gpu_type=…)")
        return kind

    def workload(self, settings: Settings) -> tuple[Workload, Path]:
        """The workload with its images counted, and the folder its data is in."""
        root = data_root(settings.data.root, settings.cluster)
        asked = msgspec.structs.replace(settings.workload, limit=settings.data.limit)
        if (asked, root) not in self._workloads:
            self._workloads[asked, root] = settle_workload(
                asked, root, self.cluster, fetch=self.fetch, say=self._say_once
            )
        return self._workloads[asked, root], root

    def resolve(self, settings: Settings) -> list[PlannedCell]:
        """The cells of one combination: one per repeat, and a second baseline where asked for."""
        strategies = [settings.strategy]
        if settings.gpus == 1:
            strategies = [Strategy.SINGLE]
            if settings.strategy is settings.baseline is Strategy.DDP:
                strategies.append(Strategy.DDP)
        return [
            self._ordered(rung, strategy, repeat)
            for rung in self._rungs(settings)
            for strategy in strategies
            for repeat in range(settings.repeats)
        ]

    def _rungs(self, settings: Settings) -> list[Settings]:
        """The combination itself; on a ladder, one per batch up to a GPU's share of the data."""
        if not settings.ladder.start:
            return [settings]
        workload, _ = self.workload(settings)
        share = ceil((workload.images or 0) / settings.gpus)
        batches = [settings.ladder.start]
        while (larger := batches[-1] * settings.ladder.factor) <= share:
            batches.append(larger)
        return [msgspec.structs.replace(settings, batch=batch) for batch in batches]

    def _draft(self, settings: Settings, strategy: Strategy) -> Cell:
        """The cell as far as the command line alone tells it: wrong usage is said first."""
        several = strategy.under_torchrun and settings.gpus > 1  # else there is nothing to choose
        buffers = settings.sync_buffers if several else None
        return Cell(
            gpus=settings.gpus,
            nodes=settings.nodes or 1,
            batch=settings.batch,
            strategy=strategy,
            workload=msgspec.structs.replace(settings.workload, limit=settings.data.limit),
            protocol=settings.protocol,
            epochs=settings.protocol.epochs if settings.epochs is None else settings.epochs,
            probe_s=settings.probe_s,
            device=self.device(settings),
            threads=settings.threads,
            loader_workers=settings.loader_workers,
            seed=settings.seed,
            recipe=settings.recipe.at(settings.gpus * settings.batch),
            set_epoch=settings.set_epoch or not several,
            sync_buffers=None if buffers is strategy.traffic.sync_buffers else buffers,
            evaluate=settings.evaluate,
            quantize=settings.quantize.settled,
        )

    def checked_draft(self, settings: Settings) -> Cell:
        """A combination's cell before cluster and data are looked at; wrong usage is refused."""
        return self._draft(settings, Strategy.SINGLE if settings.gpus == 1 else settings.strategy)

    def _ordered(self, settings: Settings, strategy: Strategy, repeat: int) -> PlannedCell:
        draft, kind = self._draft(settings, strategy), self.kind(settings)
        cluster = self.cluster
        draft = msgspec.structs.replace(
            draft,
            nodes=settings.nodes or cluster.nodes_for(settings.gpus, kind),
            gpu_type=kind if draft.device is Device.CUDA else None,
            repeat=repeat,
        )
        shape = self._shape(draft, cluster, kind, settings.minutes)  # before the data is looked at
        workload, root = self.workload(settings)
        cell = msgspec.structs.replace(draft, workload=workload)
        file = CellFile(
            cell=cell,
            data_root=str(root),
            code_root=str(Path.cwd()),
            trace=settings.trace,
            link_gb_per_s=cluster.link_gb_per_s,
            shape=shape,
            ladder=bool(settings.ladder.start),
        )
        return PlannedCell(file, shape)

    def _shape(self, cell: Cell, cluster: Cluster, kind: str | None, minutes: int) -> Shape:
        per_node = cell.gpus_per_node
        gpus = per_node if cell.device is Device.CUDA or cluster.request_gpus_for_cpu else 0
        memory = cluster.mem_gb_per_gpu
        shape = Shape(
            nodes=cell.nodes,
            gpus_per_node=gpus,
            gpu_type=kind,
            cpus_per_node=per_node * (cell.loader_workers + cell.threads),
            mem_gb_per_node=memory * per_node if memory else None,
            minutes=minutes,
        )
        if self.sending:
            self._check_fits(cell, cluster, shape)
        return shape

    def _check_fits(self, cell: Cell, cluster: Cluster, shape: Shape) -> None:
        if cluster.launcher is Launcher.SLURM:
            size = cluster.gpu_types.get(shape.gpu_type or "")
            sbatch_options(shape, cluster)  # refuses what the cluster cannot be asked for
            longest = machine.longest_minutes(shape, cluster)
            if longest is not None and shape.minutes > longest:
                raise UsageError(
                    f"minutes={shape.minutes}: this partition gives {longest:g} at most, the job "
                    "would wait for ever; take fewer minutes=, or another cluster.partition="
                )
            nodes = list(commands.inventory())
            if nodes:
                check_inventory(shape, cluster, nodes)
            elif size and shape.gpus_per_node > size:
                raise UsageError(
                    f"gpus={cell.gpus} on nodes={cell.nodes} are {shape.gpus_per_node} per node; "
                    f"a node of cluster={cluster.name} has {size} {shape.gpu_type}"
                )
            return
        if cell.nodes > 1:
            raise UsageError(f"nodes={cell.nodes}: cluster=local is one machine; take nodes=1")
        here = len(machine.local_gpus())
        if cell.device is Device.CUDA and cell.gpus > here:
            raise UsageError(f"gpus={cell.gpus} with device=cuda: this machine has {here} GPUs")
