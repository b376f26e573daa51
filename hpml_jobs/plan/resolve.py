"""From settings to a `Plan`: defaults resolved and every cell checked; nothing is written."""

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.environment import refusal
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.core.workload import Workload
from hpml_jobs.plan import machine
from hpml_jobs.plan.cells import (
    Draft,
    Plan,
    PlannedCell,
    ResolvedWorkload,
    check_shape,
    device_of,
    drafts_of,
    placed,
    planned_cells,
    with_workers,
)
from hpml_jobs.plan.data import NO_TRIAL, TrialRequest, data_root, resolve_workload, with_facts
from hpml_jobs.plan.loader import chooser
from hpml_jobs.plan.own_code import examined, working_tree
from hpml_jobs.plan.path import origins_of_path, with_path
from hpml_jobs.plan.script import refuse_other_exchange, refuse_unread, script_workload
from hpml_jobs.plan.settings import Settings
from hpml_jobs.plan.sweep import Sweep
from hpml_jobs.slurm import commands
from hpml_jobs.study.selection import check_name
from hpml_jobs.study.study import Study

Notify = Callable[[str], None]

TRIED_SAMPLES = 2
"""Samples of a batch that is tried at submission."""


def make_plan(sweep: Sweep, *, sending: bool = True, fetch: bool = True, notify: Notify) -> Plan:
    """Resolve and check all cells; nothing is written and nothing is submitted.

    `sending=False` is for a cell that runs in this process (`hpml-jobs run`): the cluster's rules
    for submission and its nodes are not checked. `fetch=False` announces missing data instead of
    downloading it. `notify` gets each decision as a sentence, once.
    """
    notify = functools.cache(notify)  # each sentence once
    _refuse_shadows(Path.cwd())
    for note in sweep.notes:
        notify(note)
    first = sweep.settings[0]
    if first.ladder.start and "batch" in sweep.origins:
        raise UsageError("batch= with a ladder: it chooses the batches; use ladder.start=N instead")
    if first.global_batch is not None and "batch" in sweep.origins:
        raise UsageError(
            f"batch= with global_batch=: the batch per GPU follows from it ({first.batch} on "
            f"gpus={first.gpus}); leave batch= out ({sweep.origins['batch']})"
        )
    refuse_unread(sweep.settings, sweep.origins)
    _refuse_uneven_nodes(sweep.settings)
    drafts = [draft for settings in sweep.settings for draft in drafts_of(settings)]
    _check_this_machine(drafts, sending=sending, notify=notify)
    _note_sizes_of_iterations(sweep.settings, notify)
    refuse_unused(sweep.settings, [draft.cell for draft in drafts])
    if first.cluster.launcher is Launcher.SLURM:
        commands.ask_cluster(first.cluster.clusters)
    cluster = _checked_cluster(first.cluster, can_submit=fetch) if sending else first.cluster
    drafts = [d._replace(gpu_type=_gpu_type(d.settings, cluster, notify)) for d in drafts]
    given, drafts = drafts, [with_path(draft, cluster, notify) for draft in drafts]
    of_path = origins_of_path(given, drafts)
    study = Study(resolve_path(first.outputs) / _study_name(drafts))
    study.check_schema()
    if sending:
        cluster = _with_clusters_of(study, cluster)
    numbers = {settings.loader_workers for settings in sweep.settings}
    choose = chooser(cluster, study if len(numbers) == 1 else None, notify)
    drafts = [placed(with_workers(draft, choose), cluster) for draft in drafts]
    chosen = {draft.cell.loader_workers for draft in drafts}
    if None in numbers and len(numbers) > len(chosen) == 1:
        notify(
            f"loader_workers=null is {max(chosen)} here, so there is nothing to compare: name two "
            "numbers, e.g. loader_workers=2,4"
        )
        drafts = [draft for draft in drafts if draft.settings.loader_workers is not None]
    if sending:
        for draft in drafts:
            check_shape(draft.shape(cluster), draft.cell, cluster)
    workloads = _workloads(sweep, cluster, fetch=fetch, trial=sending, notify=notify)
    planned = [
        cell
        for draft in drafts
        for cell in planned_cells(draft, workloads[_data_of(draft.settings)], cluster)
    ]
    of_batch = {"batch": "global_batch / gpus / accumulate"} if first.global_batch else {}
    of_batch |= {"data.limit": "iterations x gpus x batch"} if first.iterations else {}
    return Plan(
        study=study,
        cluster=cluster,
        cells=named(_without_duplicates(planned, notify), study),
        rerun=first.rerun,
        origins=of_path | sweep.origins | _derived(workloads) | of_batch,
        pack=first.pack,
        collect_after=first.collect_after,
        retries=first.retries,
    )


def _check_this_machine(drafts: Iterable[Draft], *, sending: bool, notify: Notify) -> None:
    """Say where a machine without GPUs decides the device; refuse variables that its cells inherit.

    What the jobs of a cluster inherit is not known here: they refuse the variables themselves.
    """
    cpus = len(os.sched_getaffinity(0))
    for settings, cell, _ in drafts:
        if settings.cluster.launcher is not Launcher.LOCAL or settings.cluster.hosts:
            continue
        is_default = settings.device is None and settings.cluster.device is None
        if is_default and cell.device is Device.CPU:
            notify("no NVIDIA GPU answers here: device=cpu")
        if cell.device is Device.CPU and cell.processes * cell.threads > cpus:
            notify(
                f"more processes than the {cpus} CPUs of this machine: speedups of such cells "
                "measure the scheduler; use fewer gpus="
            )
        refused = refusal(os.environ, cell.device, communicates=cell.processes > 1)
        if sending and refused:
            raise UsageError(refused)


def _note_sizes_of_iterations(sweep: Sequence[Settings], notify: Notify) -> None:
    """Say how to get speedups where cells of several sizes train on other numbers of samples."""
    sizes = {settings.gpus for settings in sweep}
    of_batch: dict[int, set[int | None]] = {}
    for settings in sweep:
        of_batch.setdefault(settings.batch, set()).add(settings.data.limit)
    if sweep[0].iterations and len(sizes) > 1 and any(len(of) > 1 for of in of_batch.values()):
        largest = max(settings.data.limit or 0 for settings in sweep)
        notify(
            f"iterations={sweep[0].iterations} trains more samples on more GPUs, so there will be "
            f"no speedups: for these use data.limit={largest} instead, which is the same for all "
            "sizes"
        )


def _refuse_shadows(folder: Path) -> None:
    """Refuse to submit from a folder in which jobs would find a file instead of Python's module."""
    packages = (path.parent for path in folder.glob("*/__init__.py"))
    python_own = sys.stdlib_module_names - {"test"}  # which no program imports
    files = [path for path in [*folder.glob("*.py"), *packages] if path.stem in python_own]
    if files:
        raise UsageError(
            f"{files[0]} has the name of a module of Python, and jobs would import it instead: "
            "rename it, or submit from another folder"
        )


def _refuse_uneven_nodes(sweep: Sequence[Settings]) -> None:
    """Refuse a sweep of gpus= and nodes= whose product has GPUs that do not divide over nodes."""
    uneven = next((s for s in sweep if s.nodes is not None and s.gpus % s.nodes), None)
    if uneven is None or len(sweep) == 1:
        return  # of a single cell, the cell says it
    even: dict[int, dict[int, None]] = {}  # the GPUs that divide, by nodes
    for settings in sweep:
        if settings.nodes is not None and settings.gpus % settings.nodes == 0:
            even.setdefault(settings.nodes, {})[settings.gpus] = None
    lines = [f"-m gpus={','.join(map(str, gpus))} nodes={nodes}" for nodes, gpus in even.items()]
    remedy = "leave nodes= out for as few nodes as hold the GPUs"
    if lines:
        remedy += f", or submit one line per nodes= to the same study: {', then '.join(lines)}"
    raise UsageError(f"gpus={uneven.gpus} does not divide over nodes={uneven.nodes}: {remedy}")


def refuse_unused(sweep: Sequence[Settings], cells: Sequence[Cell]) -> None:
    """Refuse options that no cell would use: choices for ranks, workers of loader=device.

    In a sweep, cells of one GPU share the baseline: one cell that uses the key is enough.
    """
    distributed = [cell for cell in cells if cell.strategy.under_torchrun and cell.gpus > 1]
    remedy = "use strategy=ddp with gpus=2 or more"
    if not distributed:
        if any(not settings.set_epoch for settings in sweep):
            raise UsageError(f"set_epoch=false: no cell has ranks that share the data; {remedy}")
        buffers = next((s.sync_buffers for s in sweep if s.sync_buffers is not None), None)
        if buffers is not None:
            raise UsageError(f"sync_buffers={buffers.value}: no cell has several ranks; {remedy}")
        if any(settings.path_on(Device.CPU).buckets_label for settings in sweep):
            raise UsageError(
                "bucket_cap_mb, gradient_as_bucket_view and static_graph: no cell has several "
                f"ranks; {remedy}"
            )
    if all(cell.reshard for cell in cells) and not all(s.reshard for s in sweep):
        raise UsageError(
            "reshard=false: no cell gathers parameters; use strategy=fsdp with gpus=2 or more"
        )
    workers = next((s.loader_workers for s in sweep if s.loader_workers), None)
    if workers is not None and all(s.loader is Loader.DEVICE for s in sweep):
        raise UsageError(
            f"loader_workers={workers} with loader=device: the device makes the batches; leave "
            "loader_workers= out"
        )


def _checked_cluster(cluster: Cluster, *, can_submit: bool) -> Cluster:
    """Return a cluster that accepts jobs, with its GPU types.

    `can_submit` refuses a machine without sbatch; `hpml-jobs plan` works there too.
    """
    if cluster.launcher is Launcher.SLURM and not cluster.gpu_types:
        cluster = msgspec.structs.replace(cluster, gpu_types=_listed_gpu_types())
    cluster.check()
    if can_submit and cluster.launcher is Launcher.SLURM:
        machine.check_can_submit(cluster)
    return cluster


def _with_clusters_of(study: Study, cluster: Cluster) -> Cluster:
    """Return the cluster with the SLURM cluster that has the study's jobs, where none is given.

    Raises:
        UsageError: another one is given; its jobs may have the same numbers.
    """
    earlier = study.last_cluster()
    if earlier is None or Launcher.LOCAL in (earlier.launcher, cluster.launcher):
        return cluster
    history = study.history()
    if earlier.clusters == cluster.clusters or not (history.sent or history.unanswered):
        return cluster
    if earlier.clusters is None or cluster.clusters is not None:
        raise UsageError(
            f"cluster.clusters={cluster.clusters}: the jobs of study {study.name} are on "
            f"{earlier.clusters or 'the cluster of this machine (SLURM_CLUSTERS was not set)'}; "
            "use another study="
        )
    commands.ask_cluster(earlier.clusters)
    return msgspec.structs.replace(cluster, clusters=earlier.clusters)


def _listed_gpu_types() -> dict[str, int]:
    """Return the GPU types that sinfo lists, with the most GPUs that a node has of each."""
    gpus_per_node: dict[str, int] = {}
    for node in commands.inventory():
        if node.gpu_type and node.gpus:
            gpus_per_node[node.gpu_type] = max(node.gpus, gpus_per_node.get(node.gpu_type, 0))
    return gpus_per_node


def _gpu_type(settings: Settings, cluster: Cluster, notify: Notify) -> str | None:
    """Return the GPU type to request; None without GPUs, or on a local machine."""
    wants_gpus = device_of(settings) is Device.CUDA or cluster.request_gpus_for_cpu
    if not wants_gpus or cluster.launcher is Launcher.LOCAL:
        return None
    gpu_type = cluster.gpu_type_for(settings.gpu_type)
    if settings.gpu_type is None and gpu_type is not None:
        notify(
            f"GPU type: {gpu_type}, the default of cluster={cluster.name} (change it: gpu_type=)"
        )
    return gpu_type


def _study_name(drafts: Sequence[Draft]) -> str:
    """Return the given name, or WORKLOAD-CLUSTER[-GPUTYPE]."""
    first = drafts[0].settings
    if first.study is not None:
        return check_name(first.study)
    workloads = "_".join(dict.fromkeys(draft.settings.workload.name for draft in drafts))
    parts = [workloads, first.cluster.name]
    if first.cluster.launcher is Launcher.SLURM:
        parts += sorted({draft.gpu_type for draft in drafts if draft.gpu_type is not None})
    return check_name("-".join(parts))


def _data_of(settings: Settings) -> tuple[Workload, Path]:
    """Return the workload as it was given, and the folder its data is in."""
    workload = msgspec.structs.replace(settings.workload, limit=settings.data.limit)
    return workload, data_root(settings.data.root, settings.cluster)


def _workloads(
    sweep: Sweep, cluster: Cluster, *, fetch: bool, trial: bool, notify: Notify
) -> dict[tuple[Workload, Path], ResolvedWorkload]:
    """Return each workload of the sweep with its images counted; each is looked at once.

    With `trial`, a small batch of the user's code is tried for each batch of the sweep.
    """
    result = {}
    if (first := sweep.settings[0]).script is not None:
        resolved = script_workload(first, notify)
        refuse_other_exchange(sweep.settings)
        tree = working_tree(Path.cwd(), resolved.code)
        each = dict.fromkeys(_data_of(settings) for settings in sweep.settings)
        return {key: ResolvedWorkload(resolved, key[1], tree) for key in each}
    for workload, root in dict.fromkeys(_data_of(settings) for settings in sweep.settings):
        counted = with_facts(workload, root, cluster, sweep.origins, notify)
        if workload.own_code:
            users = [each for each in sweep.settings if _data_of(each) == (workload, root)]
            request = _trial(users) if trial else NO_TRIAL
            counted = examined(counted, root, cluster, request, notify)
        resolved = resolve_workload(counted, root, cluster, fetch=fetch, notify=notify)
        tree = working_tree(Path.cwd(), resolved.code)
        result[workload, root] = ResolvedWorkload(resolved, root, tree)
    return result


def _trial(sweep: Sequence[Settings]) -> TrialRequest:
    """Return the batches to try of one workload: of two samples, where a cell has one, also one."""
    wanted = [settings for settings in sweep if settings.try_batch]
    devices = {device_of(settings) for settings in wanted}
    device = Device.CUDA if Device.CUDA in devices else Device.CPU
    batches = {min(TRIED_SAMPLES, settings.ladder.start or settings.batch) for settings in wanted}
    as_tensors = any(settings.loader is Loader.DEVICE for settings in sweep)
    return TrialRequest(device, tuple(sorted(batches)), as_tensors)


def _derived(workloads: dict[tuple[Workload, Path], ResolvedWorkload]) -> dict[str, str]:
    """Return the origin of the keys whose values are those of the data and the model."""
    return {
        f"workload.{key}": "derived from data and model"
        for (given, _), resolved in workloads.items()
        for key in ("classes", "parameters", "images", "context")
        if getattr(given, key) != getattr(resolved.workload, key)
    }


def named(planned: list[PlannedCell], study: Study) -> list[PlannedCell]:
    """Return the cells with names that are unique in the study.

    Where 6 digits of the hash are those of another cell, of this plan or of the study, the later
    cell has more. The same cells get the same names again, because a study's cells keep theirs.
    """
    history = study.history()

    def digest_at(slug: str) -> str | None:
        copy = history.copy_of(slug)  # a cell without its folder keeps its name
        return study.cell(slug).digest() or (copy.cell.digest if copy else None)

    digests: dict[str, str | None] = {}  # of the cell that has each name
    result = []
    for planned_cell in planned:
        digest = planned_cell.cell.digest
        for slug in planned_cell.cell.slugs():
            if digests.setdefault(slug, digest_at(slug)) in (None, digest):
                digests[slug] = digest
                result.append(planned_cell._replace(slug=slug))
                break
    return result


def _without_duplicates(planned: list[PlannedCell], notify: Notify) -> list[PlannedCell]:
    unique = {planned_cell.cell.digest: planned_cell for planned_cell in planned}
    if len(unique) < len(planned):
        reason = ": with gpus=1 all strategies share one baseline (single)"
        shares = any(planned_cell.cell.gpus == 1 for planned_cell in planned)
        notify(
            f"{len(planned)} combinations are {len(unique)} cells{reason if shares else ''}, "
            "duplicates are left out"
        )
    return list(unique.values())
