"""From settings to a `Plan`, in the order of `make_plan`: defaults resolved, every cell checked."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from hpml_jobs.core.cluster import Cluster, Launcher
from hpml_jobs.core.environment import refusal
from hpml_jobs.core.errors import UsageError
from hpml_jobs.core.paths import resolve_path
from hpml_jobs.core.strategies import Device, Loader
from hpml_jobs.plan import machine, rules
from hpml_jobs.plan.auto import LEAST_ITERATIONS
from hpml_jobs.plan.capacity import check_shape
from hpml_jobs.plan.cells import (
    CellDraft,
    GivenWorkload,
    Plan,
    PlannedCell,
    ResolvedWorkload,
    device_of,
    draft_of,
    given_workload,
    placed,
    planned_cells,
    with_workers,
)
from hpml_jobs.plan.data import resolve_workload, with_facts
from hpml_jobs.plan.loader import chooser
from hpml_jobs.plan.own_code import examined, working_tree
from hpml_jobs.plan.script import workload_of
from hpml_jobs.plan.settings import Notify, Settings, Sweep
from hpml_jobs.slurm import commands
from hpml_jobs.study.selection import check_name
from hpml_jobs.study.study import Study


def make_plan(
    sweep: Sweep, *, sending: bool = True, fetch: bool = True, notify: Notify
) -> Plan:
    """Resolve and check all cells; nothing is written and nothing is submitted.

    `sending=False` is for a cell that runs in this process (`hpml-jobs run`): the cluster's rules
    for submission and its nodes are not checked. `fetch=False` announces missing data instead of
    downloading it, and this machine need not be able to submit. `notify` gets each decision as a
    sentence, once.
    """
    first, notify = sweep.first, cache(notify)  # each sentence once
    # from the command line alone
    _refuse_shadowing_files(Path.cwd())
    for note in sweep.notes:
        notify(note)
    rules.refuse(rules.RULES_OF_SWEEP, sweep)
    drafts = [
        draft_of(settings, block)
        for settings, block in zip(sweep.settings, sweep.blocks, strict=True)
        if _fits(settings, settings.workload.images, sweep)
    ]
    if first.cluster.is_local and not first.cluster.hosts:
        _check_this_machine(drafts, notify, sending=sending)
    _say_sizes_of_iterations(sweep, notify)
    rules.refuse(rules.RULES_OF_OPTIONS, sweep.settings)
    rules.refuse([rules.syncbn_runs_on_gpus], [draft.cell for draft in drafts])
    # from the cluster and the study
    cluster = _checked_cluster(first.cluster, sending=sending, fetch=fetch)
    drafts = _with_gpu_types(drafts, cluster, notify)
    study = Study(resolve_path(first.outputs) / _study_name(first, drafts))
    study.check_schema()
    if sending:
        cluster = _cluster_of_study(cluster, study)
    drafts = _with_workers_and_nodes(drafts, cluster, study, notify)
    if sending or (cluster.is_local and "SLURM_JOB_ID" not in os.environ):
        for draft in drafts:
            check_shape(draft.shape(cluster), draft.cell, cluster)
    # from the data and the user's code
    workloads = _workloads(sweep, cluster, notify, fetch=fetch)
    cells: list[PlannedCell] = []
    for draft in drafts:
        resolved = workloads[given_workload(draft.settings)]
        if _fits(draft.settings, resolved.workload.images, sweep):
            cells += planned_cells(draft, resolved, cluster)
    origins = _origins(sweep, workloads)
    cells = _each_once(cells, sweep, notify)
    return Plan(
        study=study,
        cluster=cluster,
        cells=_named(cells, study),
        rerun=first.rerun,
        origins=origins,
        pack=first.pack,
        collect_after=first.collect_after,
        goal=sweep.goal,
    )


# ---- from the command line alone ----


def _refuse_shadowing_files(folder: Path) -> None:
    """Refuse to submit from a folder in which jobs would find a file instead of Python's module."""
    packages = (path.parent for path in folder.glob("*/__init__.py"))
    python_own = sys.stdlib_module_names - {"test"}  # which no program imports
    for path in [*folder.glob("*.py"), *packages]:
        if path.stem in python_own:
            raise UsageError(
                f"{path} has the name of a module of Python, and jobs would import it instead: "
                "rename it, or submit from another folder"
            )


def _check_this_machine(
    drafts: Iterable[CellDraft], notify: Notify, *, sending: bool
) -> None:
    """Say where a machine without GPUs decides the device; refuse variables that its cells inherit.

    The jobs of a cluster refuse the variables that they inherit themselves.
    """
    cpus = len(os.sched_getaffinity(0))
    for settings, cell, *_ in drafts:
        is_on_cpu = cell.device is Device.CPU
        if is_on_cpu and settings.device is settings.cluster.device is None:
            notify(f"no NVIDIA GPU answers here: device=cpu, threads={cell.threads}")
        if is_on_cpu and cell.processes * cell.threads > cpus:
            notify(
                f"more threads than the {cpus} CPUs of this machine: speedups of such cells "
                "measure the scheduler; use fewer gpus= or threads="
            )
        refused = refusal(os.environ, cell.device, communicates=cell.processes > 1)
        if sending and refused:
            raise UsageError(refused)


def _say_sizes_of_iterations(sweep: Sweep, notify: Notify) -> None:
    """Say how to get speedups where cells of several sizes train on other numbers of samples."""
    if not sweep.first.iterations:
        return
    limits = {(settings.batch, settings.data.limit or 0) for settings in sweep.settings}
    batches = {batch for batch, _ in limits}
    sizes = {settings.gpus for settings in sweep.settings}
    if len(sizes) > 1 and len(limits) > len(batches):
        notify(
            f"iterations={sweep.first.iterations} trains more samples on more GPUs, so there will "
            f"be no speedups: for these use data.limit={max(limit for _, limit in limits)} "
            "instead, which is the same for all sizes"
        )


def _fits(settings: Settings, images: int | None, sweep: Sweep) -> bool:
    """Whether `auto` may try its batch: the smallest, or one that leaves an epoch its iterations.

    These are the iterations of the largest size; of a script they are known once it is measured.
    """
    if sweep.goal is None or images is None:
        return True
    most = max(other.gpus for other in sweep.settings)
    is_smallest = settings.batch == min(other.batch for other in sweep.settings)
    return is_smallest or settings.batch * most * LEAST_ITERATIONS <= images


# ---- from the cluster and the study ----


def _checked_cluster(cluster: Cluster, *, sending: bool, fetch: bool) -> Cluster:
    """Return the cluster with its GPU types; to submit, refuse one that does not accept jobs.

    Without `fetch` (`hpml-jobs plan`) this machine may be one without sbatch.
    """
    if not cluster.is_local:
        commands.ask_cluster(cluster.clusters)
    if not sending:
        return cluster
    if not cluster.is_local and not cluster.gpu_types:
        cluster = msgspec.structs.replace(cluster, gpu_types=_listed_gpu_types())
    cluster.check()
    if not cluster.is_local and fetch:
        machine.check_can_submit(cluster)
    return cluster


def _listed_gpu_types() -> dict[str, int]:
    """Return the GPU types that sinfo lists, with the most GPUs that a node has of each."""
    most: dict[str, int] = {}
    for node in commands.inventory():
        if node.gpu_type and node.gpus:
            most[node.gpu_type] = max(node.gpus, most.get(node.gpu_type, 0))
    return most


def _with_gpu_types(
    drafts: Iterable[CellDraft], cluster: Cluster, notify: Notify
) -> list[CellDraft]:
    """Return the drafts with GPU types: as given, else the cluster's default."""
    return [
        draft._replace(gpu_type=_gpu_type(draft.settings, cluster, notify))
        for draft in drafts
    ]


def _gpu_type(settings: Settings, cluster: Cluster, notify: Notify) -> str | None:
    """Return the GPU type to request; None without GPUs, or on a local machine."""
    wants_gpus = device_of(settings) is Device.CUDA or cluster.request_gpus_for_cpu
    if not wants_gpus or cluster.is_local:
        return None
    gpu_type = cluster.gpu_type_for(settings.gpu_type)
    if settings.gpu_type is None and gpu_type is not None:
        notify(
            f"GPU type: {gpu_type}, the default of cluster={cluster.name} (change it: gpu_type=)"
        )
    return gpu_type


def _study_name(first: Settings, drafts: Iterable[CellDraft]) -> str:
    """Return the given name, else WORKLOAD-CLUSTER[-GPUTYPE]."""
    if first.study is not None:
        return check_name(first.study)
    workloads = dict.fromkeys(draft.settings.workload.name for draft in drafts)
    # a local machine's cells request no type
    types = {draft.gpu_type for draft in drafts if draft.gpu_type is not None}
    return check_name(
        "-".join(["_".join(workloads), first.cluster.name, *sorted(types)])
    )


def _cluster_of_study(cluster: Cluster, study: Study) -> Cluster:
    """Return the SLURM cluster that has the study's jobs, where none is given.

    Raises:
        UsageError: another one is given; its jobs may have the same numbers.
    """
    earlier = study.last_cluster()
    if earlier is None or Launcher.LOCAL in (earlier.launcher, cluster.launcher):
        return cluster
    if earlier.clusters == cluster.clusters or not study.history().has_jobs:
        return cluster
    if earlier.clusters is None or cluster.clusters is not None:
        jobs_are_on = earlier.clusters or _THIS_MACHINES_CLUSTER
        raise UsageError(
            f"cluster.clusters={cluster.clusters}: the jobs of study {study.name} are on "
            f"{jobs_are_on}; use another study="
        )
    commands.ask_cluster(earlier.clusters)
    return msgspec.structs.replace(cluster, clusters=earlier.clusters)


_THIS_MACHINES_CLUSTER = "the cluster of this machine (SLURM_CLUSTERS was not set)"


def _with_workers_and_nodes(
    drafts: Sequence[CellDraft], cluster: Cluster, study: Study, notify: Notify
) -> list[CellDraft]:
    """Return the drafts with loader workers and nodes, cell by cell.

    Cells keep the number of workers that those of the study have, unless numbers are compared.
    loader_workers=null is left out where it is the number that it is compared with.
    """
    given = {draft.settings.loader_workers for draft in drafts}
    choose = chooser(cluster, study if len(given) == 1 else None, notify)
    complete = [placed(with_workers(draft, choose), cluster) for draft in drafts]
    chosen = {draft.cell.loader_workers for draft in complete}
    if not (None in given and len(chosen) == 1 < len(given)):
        return complete
    notify(
        f"loader_workers=null is {max(chosen)} here, so there is nothing to compare: name two "
        "numbers, e.g. loader_workers=2,4"
    )
    return [draft for draft in complete if draft.settings.loader_workers is not None]


# ---- from the data and the user's code ----


def _workloads(
    sweep: Sweep, cluster: Cluster, notify: Notify, *, fetch: bool
) -> dict[GivenWorkload, ResolvedWorkload]:
    """Return each workload with its images counted; each is looked at once."""
    given = dict.fromkeys(map(given_workload, sweep.settings))
    if sweep.first.script is None:
        return {
            workload: _resolved(workload, sweep, cluster, notify, fetch=fetch)
            for workload in given
        }
    script = workload_of(sweep.settings, notify)
    rules.refuse([rules.batch_of_script_is_given], sweep)
    tree = working_tree(Path.cwd(), script.code)
    return {
        workload: ResolvedWorkload(script, workload.root, tree) for workload in given
    }


def _resolved(
    given: GivenWorkload, sweep: Sweep, cluster: Cluster, notify: Notify, *, fetch: bool
) -> ResolvedWorkload:
    workload, root = given
    counted = with_facts(workload, root, cluster, sweep.origins, notify)
    if workload.own_code:
        users = (s for s in sweep.settings if given_workload(s) == given)
        as_tensors = any(settings.loader is Loader.DEVICE for settings in users)
        counted = examined(counted, root, cluster, notify, as_tensors=as_tensors)
    resolved = resolve_workload(counted, root, cluster, fetch=fetch, notify=notify)
    return ResolvedWorkload(resolved, root, working_tree(Path.cwd(), resolved.code))


def _origins(
    sweep: Sweep, workloads: Mapping[GivenWorkload, ResolvedWorkload]
) -> dict[str, str]:
    """Return where the value of each key comes from, also of those that follow from others."""
    origins = dict(sweep.origins)
    if sweep.first.global_batch:
        origins["batch"] = "global_batch / gpus / accumulate"
    if sweep.first.iterations:
        origins["data.limit"] = "iterations x gpus x batch"
    for given, resolved in workloads.items():
        for key in ("classes", "parameters", "images", "context"):
            if getattr(given.workload, key) != getattr(resolved.workload, key):
                origins[f"workload.{key}"] = "derived from data and model"
    return origins


def _each_once(
    cells: Sequence[PlannedCell], sweep: Sweep, notify: Notify
) -> list[PlannedCell]:
    """Return each cell once, of the block where it is first."""
    unique: dict[str, PlannedCell] = {}
    for planned in cells:
        first = unique.get(planned.cell.digest, planned)
        unique[planned.cell.digest] = planned._replace(block=first.block)
    has_strategies = len({settings.strategy for settings in sweep.settings}) > 1
    if has_strategies and len(unique) < len(cells):
        notify(
            f"{len(unique)} cells instead of {len(cells)}: with gpus=1 all strategies share one "
            "baseline (single)"
        )
    return list(unique.values())


def _named(cells: Iterable[PlannedCell], study: Study) -> list[PlannedCell]:
    """Return the cells with names that are unique in the study.

    Where 6 digits of the hash are those of another cell, of this plan or of the study, the later
    cell has more. The same cells get the same names again, because a study's cells keep theirs.
    """
    history = study.history()
    digests: dict[str, str | None] = {}  # of the cell that has each name
    named = []
    for planned in cells:
        digest = planned.cell.digest
        for slug in planned.cell.slugs():
            if slug not in digests:
                copy = history.copy_of(slug)  # a cell without its folder keeps its name
                of_copy = copy.cell.digest if copy else None
                digests[slug] = study.cell(slug).digest() or of_copy
            if digests[slug] in (None, digest):
                digests[slug] = digest
                named.append(planned._replace(slug=slug))
                break
    return named
